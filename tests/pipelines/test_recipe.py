"""Recipes are read and checked, with their options of runs on Vertex AI."""

import json
import tomllib

import pytest

from components.planning.worker_pools import build_worker_pool_specs
from pipelines import recipe
from pipelines.run_options import parse_time
from tests.components.plans import check_pools
from tests.pipelines.conftest import RECIPES
from tests.refusals import refused
from vertex.errors import InputError

HOURLY = "[retraining]\ncron = '0 * * * *'\n"
OPTIONS = """
source = "digits"
epochs = 3
schedule = "cosine"
expected_minutes = 12
[[fallbacks]]
chief_machine_type = "n1-standard-8"
[[fallbacks]]
scheduling_strategy = "SPOT"
[retraining]
cron = "*/90  3-4,5 * * MON-FRI"
time_zone = "Europe/Berlin"
start = 2031-01-01
parameters = {epochs = 5}
"""
TYPES = {"integer": int, "number": (int, float), "string": str, "boolean": bool, "array": list}


def test_digits_and_flowers_have_their_documented_values():
    parameters = recipe.load("digits").parameters
    assert parameters.training.strategy == "multi_worker_mirrored"
    assert parameters.machines.worker_count == 1
    assert (parameters.records.image_size, parameters.records.channels) == (8, 1)
    parameters = recipe.load("flowers").parameters
    assert parameters.records.image_size == 180
    assert parameters.training.model == "flowers_cnn"
    assert (parameters.training.optimizer, parameters.training.epochs) == ("adam", 10)


@pytest.mark.parametrize("name", RECIPES)
def test_recipe_begins_with_what_to_expect(name):
    head = (recipe.DIRECTORY / f"{name}.toml").read_text().partition("\n\n")[0]
    for word in ("Reproduces:", "Expected:", "Takes:", "Costs:", "Command:"):
        assert word in head
    assert f"python -m pipelines run {name} --local" in head


@pytest.mark.parametrize("name", RECIPES)
def test_recipe_asks_for_pools_that_vertex_ai_provides(name):
    check_pools(build_worker_pool_specs(recipe.load(name).parameters.machines, ["--config=c"]))


@pytest.mark.parametrize("name", RECIPES)
def test_recipe_matches_the_schema_for_editors(name, succeed):
    schema = json.loads(succeed("recipes --schema"))
    assert not schema["additionalProperties"]
    content = tomllib.loads((recipe.DIRECTORY / f"{name}.toml").read_text())
    assert set(schema["required"]) <= content.keys() <= schema["properties"].keys()
    for key, value in content.items():
        declared = schema["properties"][key]
        assert isinstance(value, TYPES.get(declared["type"], dict)), key
        assert value in declared.get("enum", [value])
        assert "minimum" not in declared or value >= declared["minimum"]


def test_recipe_sets_fallbacks_and_retraining(tmp_path):
    (tmp_path / "mine.toml").write_text(OPTIONS)
    loaded = recipe.load("mine", tmp_path)
    assert loaded.parameters.registry.model_name == "mine"
    assert (loaded.parameters.training.epochs, loaded.run_options.expected_minutes) == (3, 12)
    # Not the [retraining] schedule.
    assert loaded.parameters.training.schedule == "cosine"
    assert loaded.run_options.fallbacks == [
        {"chief_machine_type": "n1-standard-8"},
        {"scheduling_strategy": "SPOT"},
    ]
    retraining = loaded.run_options.retraining
    assert (retraining.cron, retraining.time_zone) == ("*/90  3-4,5 * * MON-FRI", "Europe/Berlin")
    assert parse_time(retraining.start).isoformat() == "2031-01-01T00:00:00+00:00"
    assert parse_time(retraining.end) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epochs = 3", 'mine.toml has no source; add one, such as source = "images'),
        ("epochs = ", "mine.toml, line 1: 'epochs =' can't be read; "),
        (
            "epochs = 3\nepochs = 4",
            "mine.toml, line 2: 'epochs = 4' can't be read; the name is given twice",
        ),
        (f"labels = {'[' * 9_999}", "mine.toml has lists or tables nested too deeply"),
        ("epoch = 3", "mine.toml: unknown parameter 'epoch'; did you mean 'epochs'?"),
        ("[training]\nepochs = 3", "unknown parameter 'training'; set parameters above the first"),
        ("epochs = 0", "mine.toml: epochs=0 is out of range"),
        (f"seed = {2**53 + 2}", "mine.toml: seed=9007199254740994 is out of range: it must be at"),
        ("expected_minutes = -1", "mine.toml: expected_minutes=-1.0 is out of range"),
        ("model = 'flowers_cnn'\nimage_size = 4", "mine.toml: image_size=4 is too small for 3"),
        ('epochs = "3"', 'mine.toml: epochs = "3" is text; give a whole number, without quotes'),
        ('xla = "true"', 'mine.toml: xla = "true" is text; give true or false, without quotes'),
        ("xla = 1", "mine.toml: xla = 1 is not a boolean; give true or false"),
        ('labels = "{}"', 'mine.toml: labels = "{}" is text; give a table, without quotes'),
        ("labels = {since = 2026-11-22}", "contains a value that JSON lacks, such as a date; wr"),
        ("resume_from = 's3://b/job'", "resume_from: 's3://b/job' is neither gs://BUCKET/FOLDER"),
        ('expected_minutes = "12"', 'expected_minutes = "12" is text; give a number'),
        ("serving = {max_replicas = '2'}", '[serving]: max_replicas = "2" is text; give a'),
        ('model_options = {units = "8"}', 'model_options: units = "8" is text; give a whole'),
        ('retraining = "0 3 * * 1"', 'retraining = "0 3 * * 1" is text; give a table, without'),
        (HOURLY + 'max_runs = "3"', 'mine.toml: [retraining]: max_runs = "3" is text; give a'),
        (HOURLY + "allow_queueing = 1", "[retraining]: allow_queueing = 1 is not a boolean; give"),
        ("fallbacks = [{worker_count = '2'}]", 'fallbacks[1]: worker_count = "2" is text; give a'),
        ("fallbacks = [{epochs = 3}]", "mine.toml: fallbacks[1]: 'epochs' is not a parameter of"),
        ("fallbacks = [{accelerator_type = 'NVIDIA_L4'}]", "fallbacks[1]: accelerator_type='NVIDI"),
        ("step_machines = {records = 3}", "[step_machines]: records=3 is not a JSON object, such"),
        ("step_machines = {record = {cpus = 8}}", "[step_machines]: unknown parameter 'record'"),
        ("step_machines.records.cpus = 97", "[step_machines.records]: cpus=97 is out of range"),
        ("step_machines.evaluation.memory_gb = 625", "memory_gb=625 is out of range: it must be"),
        ("step_machines.evaluation.accelerator_type = 'NVIDIA_H100_80GB'", "is not one of '', "),
        ("serving = {min_replicas = 0}", "mine.toml: [serving]: min_replicas=0 is out of range"),
        ("serving = {machine_type = 'n4-standard-8'}", "is not a machine type for prediction"),
        ("notify = ['team']", "mine.toml: notify: 'team' is not an address like team"),
        (f"notify = {['a@b.de'] * 4}", "notify names 4 addresses, but Vertex AI writes to 3 at"),
        ("retraining = {time_zone = 'UTC'}", "mine.toml: [retraining]: cron='' is not five"),
        ("retraining = {cron = '0 24 * * *'}", "24 is not a valid hour; give 0"),
        (
            "retraining.cron = '0 3 ? * 1'",
            "'?' is not a valid day of the month; give *, numbers, ra",
        ),
        ("retraining.cron = '0 3 30 FEB *'", "no day 30 in that month; give 1 to 29"),
        ("retraining.cron = '0 3 * * MOM'", "'mom' is not a valid day of the week; give"),
        ("retraining.cron = '* * * * MON,8'", "8 is not a valid day of the week; give"),
        (HOURLY + "end = 'soon'", "[retraining]: end='soon' is not a"),
        (HOURLY + "parameters = {epoch = 3}", "[retraining] parameters: unknown parameter 'epoch'"),
    ],
)
def test_invalid_recipe_is_refused(tmp_path, text, message):
    (tmp_path / "mine.toml").write_text(text)
    error = refused(recipe.load, "mine", tmp_path)
    assert error.startswith("mine.toml") and message in error


def test_recipe_is_utf_8_with_or_without_a_byte_order_mark(tmp_path):
    text = "# Köln\nsource = 'digits'\nimage_size = 8\n"
    (tmp_path / "mine.toml").write_text(text, encoding="utf-8-sig")
    assert recipe.load("mine", tmp_path).summary == "Köln"
    (tmp_path / "mine.toml").write_text(text, encoding="latin-1")
    message = "mine.toml, line 1, is not in UTF-8; save the file as UTF-8"
    assert refused(recipe.load, "mine", tmp_path) == message
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(InputError, match=r"folder\.toml can't be read: not a regular file$"):
        recipe.load("folder", tmp_path)


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("source = digits", "put texts into quotes; write true, false"),
        ("source = 'digits", "close the text with a quote"),
        ("epochs = 4", "the name is given twice"),
        (r'data_dir = "C:\Users\me"', "write each backslash twice"),
        ("label = {column = 'a',}", "write { } on one line, without a comma"),
        ("min_accuracy = 0,9", "write one value a line, texts in quotes, numbers as 1000 and 0.9"),
        ("batch_size: 32", "write NAME = VALUE"),
        ("columns = [1 2]", "separate values by commas, and close the list with ]"),
        ("label = {column = 'a' above = 1}", "separate entries by commas"),
        ("notify = 'a\x07'", "remove the control character"),
    ],
)
def test_line_that_is_not_toml_is_named_with_its_remedy(tmp_path, line, remedy):
    (tmp_path / "mine.toml").write_text(f"# Mine\nepochs = 3\n{line}\n")
    error = refused(recipe.load, "mine", tmp_path)
    assert error.startswith(f"mine.toml, line 3: {line!r} can't be read; {remedy}")


def test_own_recipe_has_another_name_than_ours(own_recipe):
    # The line that names the schema is no summary.
    own_recipe('#:schema ./schema.json\n# Mine\nsource = "digits"\nimage_size = 8\n')
    assert {"digits", "mine"} <= set(recipe.list_names())
    assert recipe.load("mine").summary == "Mine"
    assert recipe.load("mine").parameters.records.image_size == 8
    own_recipe('source = "digits" # no summary\nimage_size = 8\n')
    assert recipe.load("mine").summary == ""
    own_recipe('# Mine, too\nsource = "digits"\n', "digits")
    assert recipe.list_names().count("digits") == 1
    with pytest.raises(InputError, match=r"^recipes/digits.toml has the name of a built-in recipe"):
        recipe.load("digits")
