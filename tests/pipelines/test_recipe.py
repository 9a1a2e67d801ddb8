"""Recipes are checked values, and a bad one says where it is bad."""

import json

import pytest

from pipelines import recipe
from tests.components.plans import check_pools
from trainer.errors import InputError
from trainer.machines.worker_pools import worker_pool_specs
from trainer.toml_reader import tomllib


def test_the_digits_recipe_trains_on_a_chief_and_a_worker():
    parameters = recipe.load("digits").parameters
    assert parameters.training.strategy == "multi_worker_mirrored"
    assert parameters.machines.worker_count == 1
    assert (parameters.records.image_size, parameters.records.channels) == (8, 1)


def test_the_flowers_recipe_is_the_tutorials():
    parameters = recipe.load("flowers").parameters
    assert parameters.records.image_size == 180
    assert parameters.training.model == "flowers_cnn"
    assert (parameters.training.optimizer, parameters.training.epochs) == ("adam", 10)


@pytest.mark.parametrize("name", recipe.names())
def test_a_recipe_begins_with_what_to_expect_of_it(name):
    text = (recipe.DIRECTORY / f"{name}.toml").read_text()
    head = text.partition("\n\n")[0]
    for word in ("Reproduces:", "Expected:", "Takes:", "Costs:", "Command:"):
        assert word in head
    assert f"python -m pipelines run {name} --local" in head


@pytest.mark.parametrize("name", recipe.names())
def test_a_recipes_pools_are_ones_that_vertex_ai_takes(name):
    check_pools(worker_pool_specs(recipe.load(name).parameters.machines, ["--config=c"]))


def test_changed_values_are_checked_with_the_recipes_others():
    digits = recipe.load("digits")
    assert digits.with_values({"epochs": "3"}, place="--set").training.epochs == 3
    with pytest.raises(InputError, match=r"^--set: strategy='multi_worker_mirror' is not one of"):
        digits.with_values({"strategy": "multi_worker_mirror"}, place="--set")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epochs = 0", "mine.toml: epochs=0 is out of range"),
        ("epoch = 3", "mine.toml: unknown parameter 'epoch'; did you mean 'epochs'?"),
        ("epochs = ", "mine.toml can't be read: Invalid value (at"),
        (f"labels = {'[' * 9_999}", "mine.toml can't be read: maximum recursion depth"),
        ("epochs = 3", 'mine.toml has no source of data; add source = "images'),
        ('epochs = "3"', 'mine.toml: epochs = "3" is text; give a whole number, without quotes'),
        ('xla = "true"', 'mine.toml: xla = "true" is text; give true or false, without quotes'),
        ("xla = 1", "mine.toml: xla = 1 is not a boolean; give true or false"),
        ('labels = "{}"', 'mine.toml: labels = "{}" is text; give a table, without quotes'),
        (
            'source = "digits"\n[[fallbacks]]\nworker_count = "2"',
            'mine.toml: fallbacks[1]: worker_count = "2" is text; give a whole number, without',
        ),
        ("[training]\nepochs = 3", "mine.toml: unknown parameter 'training'"),
    ],
)
def test_a_bad_recipe_is_refused_with_its_files_name(tmp_path, text, message):
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(InputError) as raised:
        recipe.load("mine", tmp_path)
    assert str(raised.value).startswith(message)


def test_a_recipe_is_utf_8_with_or_without_a_byte_order_mark(tmp_path):
    text = "# Köln\nsource = 'digits'\nimage_size = 8\n"
    (tmp_path / "mine.toml").write_text(text, encoding="utf-8-sig")
    assert recipe.load("mine", tmp_path).summary == "Köln"
    (tmp_path / "mine.toml").write_text(text, encoding="latin-1")
    with pytest.raises(InputError, match="write TOML in UTF-8"):
        recipe.load("mine", tmp_path)
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(InputError, match=r"folder\.toml can't be read: Is a directory$"):
        recipe.load("folder", tmp_path)


def test_recipes_of_the_working_folder_stand_beside_ours(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipes").mkdir()
    # The line that names the schema is no summary.
    text = '#:schema ./schema.json\n# Mine\nsource = "digits"\nimage_size = 8\n'
    (tmp_path / "recipes" / "mine.toml").write_text(text)
    assert {"digits", "mine"} <= set(recipe.names())
    assert recipe.load("mine").summary == "Mine"
    assert recipe.load("mine").parameters.records.image_size == 8
    (tmp_path / "recipes" / "digits.toml").write_text('# Mine, too\nsource = "digits"\n')
    assert recipe.names().count("digits") == 1
    with pytest.raises(InputError, match=r"^recipes/digits.toml has the name of a built-in recipe"):
        recipe.load("digits")


TYPES = {"integer": int, "number": (int, float), "string": str, "boolean": bool, "array": list}


@pytest.mark.parametrize("name", recipe.names())
def test_a_recipe_keeps_the_schema_that_editors_check_it_by(name, command):
    schema = json.loads(command("recipes", "--schema")[1])
    assert not schema["additionalProperties"]
    content = tomllib.loads((recipe.DIRECTORY / f"{name}.toml").read_text())
    assert set(schema["required"]) <= content.keys() <= schema["properties"].keys()
    for key, value in content.items():
        declared = schema["properties"][key]
        assert isinstance(value, TYPES.get(declared["type"], dict)), key
        assert value in declared.get("enum", [value])
        assert "minimum" not in declared or value >= declared["minimum"]
