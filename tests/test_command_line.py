"""python -m pipelines: what it shows, and mistakes that end in one line."""

import dataclasses
import os

import pytest
import rich.markup
import typer

from pipelines import recipe
from pipelines.commands import command_line
from pipelines.parameters import PARAMETERS, ParameterSet
from tests.pipelines.conftest import RECIPES
from trainer.training.optimizers import OPTIMIZERS

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_recipes_are_listed_with_their_summaries(succeed):
    shown = succeed("recipes")
    for name in RECIPES:
        assert name in shown
        assert recipe.load(name).summary in shown


def test_each_parameter_is_described_once_below_its_topic(succeed):
    shown = succeed("parameters")
    assert "Peak learning rate of the optimizer. Above 0." in shown
    assert f"One of {', '.join(OPTIMIZERS)}." in shown
    names = [line.split()[0] for line in shown.splitlines() if line and not line.startswith(" ")]
    topics = [field.name for field in dataclasses.fields(ParameterSet)]
    assert [name for name in names if name in topics] == topics
    assert sorted(set(names) - set(topics)) == sorted(PARAMETERS)
    assert len(names) == len(PARAMETERS) + len(topics)
    assert names.index("machines") < names.index("worker_count") < names.index("pipeline")


def test_broken_recipe_does_not_hide_the_others(tmp_path, command):
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "broken.toml").write_text("epochs = 0")
    code, shown, error = command("recipes")
    assert (code, error.count("\n")) == (2, 1)
    assert error.startswith("error: broken.toml: epochs=0 is out of range")
    assert all(name in shown for name in RECIPES)


def test_help_groups_the_commands(succeed):
    lines = succeed("--help").splitlines()
    titles = ("Recipes", "Runs", "Models", "Project")
    start = [
        next(number for number, line in enumerate(lines) if f" {one} " in line) for one in titles
    ]
    assert start == sorted(start)
    within = "\n".join(lines[start[2] : start[3]])
    assert all(f" {name} " in within for name in ("promote", "deploy", "serve", "predict"))


def test_hidden_files_of_an_editor_are_no_recipes(tmp_path, succeed):
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / ".#mine.toml").symlink_to("user@host.1")
    assert "mine" not in succeed("recipes")


def test_no_help_has_words_that_are_taken_for_markup():
    def list_texts(command):
        yield command.help or ""
        yield from (getattr(one, "help", "") or "" for one in command.params)
        for inner in getattr(command, "commands", {}).values():
            yield from list_texts(inner)

    texts = list(list_texts(typer.main.get_command(command_line.app)))
    assert len(texts) > 100
    assert [text for text in texts if rich.markup.render(text).plain != text] == []


@pytest.mark.parametrize(
    ("word", "listed", "left_out"),
    [
        ("gate", "min_accuracy", "scheduling_strategy"),
        ("Learning_Rate", "fine_tune_learning_rate", "seed"),
        ("'us dollars'", "price_per_hour", "timeout"),
        ("adamw", "optimizer", "epochs"),
    ],
    ids=["topic", "name", "description", "choice"],
)
def test_parameters_are_searched(succeed, word, listed, left_out):
    names = [line.partition(" ")[0] for line in succeed(f"parameters {word}").splitlines()]
    assert listed in names
    assert left_out not in names


def test_options_of_models_and_columns_are_listed(succeed):
    shown = succeed("parameters model_options")
    assert "with model=transfer" in shown
    assert "backbone  str, default DenseNet121" in shown
    assert "backbone_options of MobileNetV3Large, MobileNetV3Small" in shown
    assert "NASNetMobile" in shown
    *_, hashed, _, crosses, split_by = succeed("parameters columns").split("\n\n")
    assert hashed.startswith("type hashed: text, or numbers used as names")
    names = [line.split()[0] for line in hashed.splitlines() if ", default " in line]
    assert names == ["buckets", "embedding", "missing"]
    assert "columns  list, default []" in crosses
    assert "group  str" in split_by


def test_plan_shows_each_worker_pool(succeed):
    shown = succeed(
        "plan digits --set worker_count=3 --set accelerator_type=NVIDIA_TESLA_T4 "
        "--set accelerator_count=2 --set gpu_image_uri=image:gpu"
    )
    rows = [line.split("  ") for line in shown.splitlines()[1:3]]
    machines = ["n1-standard-4", "2 x NVIDIA_TESLA_T4", "100 GB pd-ssd"]
    assert [[cell.strip() for cell in row if cell.strip()] for row in rows] == [
        ["chief", "1", *machines, "1.05", "0.69"],
        ["worker", "3", *machines, "3.15", "2.08"],
    ]


def test_plan_names_dataflow_if_it_writes_the_records(succeed):
    flags = "--set records_engine=dataflow --set dataflow_max_workers=40"
    for options, named in ((flags, True), ("", False)):
        lines = succeed(f"plan digits {options}").splitlines()
        (line,) = [line for line in lines if line.startswith("excluded")]
        assert ("Dataflow (up to 40 e2-standard-4" in line) == named


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("runn digits", "No such command 'runn'. Did you mean 'run', 'runs'? --help lists"),
        ("run mine.toml --local", "give the name of a file in recipes/, without .toml"),
        ("run DIGITS --local", "no recipe 'DIGITS'; did you mean 'digits'?"),
        ("run digits", "; or add --local to run here"),
        ("run digits --local --name A_b", "--name 'A_b': names may have up to 63 characters: a-z"),
        (
            "run digits --local --name latest",
            "--name 'latest' is reserved: it selects the last run",
        ),
        ("run digits --local --name mnist", "--name 'mnist' is reserved: it selects"),
        ("run digits --local --detach", "--detach is for runs on Vertex AI; leave it"),
        ("run digits --local --project p", "--project is for runs on Vertex AI"),
        ("run digits --local --set max_cost=0.0001", "pays for 0 s of machines"),
        ("tune digits --local --set max_cost=0.3", "max_cost=0.3 does not cover a trial"),
        ("run digits --local '--runs-directory=~/file/x'", "/file/x can't be written"),
        (f"plan digits --set labels={'[' * 99_999}", "labels is nested too deeply"),
        ("plan digits --set accelerator_type=h100", "mean 'NVIDIA_H100_80GB'?"),
        ("run digits --local --set epochs", "--set 'epochs' is not NAME=VALUE"),
        ("run digits --local --set source=images:\udcff", "is not UTF-8; rename"),
        ("emulator --folder file/x", "--folder 'file/x' can't be created (Not a directory); give"),
        ("run digits --local --set epochs=1 --set epochs=2", "'2'; give one"),
        ('run digits --local --set \'labels={"": "x"}\'', "labels: ='x' is not a label: up to 63"),
        ("run digits --local --set 'source=tfds:no such'", "is malformed; use tfds:NAME"),
        ("run flowers --local --set source=images:s3://b", "'s3://b' is neither gs://BUCKET/FOL"),
        ("run digits --local --set records_store=gs://", "is neither gs://BUCKET/FOLDER nor"),
        ("doctor --set epochs=1 --project p", "name it: doctor RECIPE --set"),
        ("logs x --replica '' --project p", "--replica '' is empty"),
        ("plan digits --minutes inf", "Invalid value 'inf' for '--minutes': "),
        ("runs --limit=5 --limit=x", "Invalid value 'x' for '--limit': "),
        ("plan pipe", "recipes/pipe.toml can't be read: not a regular file"),
        ("compile digits --output-directory file", "can't be written (File exists); use another"),
        ("run digits --local --runs-directory gs://b/x", "'gs://b/x' is not a folder on this mach"),
        ("compile digits --output-directory gs://b/x", "'gs://b/x' is not a folder on this mach"),
        ("emulator --folder gs://b/x", "'gs://b/x' is not a folder on this machine; give a path"),
        ("plan digits --batch a.csv --set input=b.csv", "input is given as 'a.csv' and 'b.csv'"),
        ("run digits --local --batch a.csv --set input=b.csv", "is given as 'a.csv' and 'b.csv'"),
        ("plan digits --rate n1-standard-4=1e99", "is not NAME=PRICE"),
        ("plan digits --rate foo=1", "disk type of this job; known: n1-standard-4, pd-ssd"),
        ("plan digits --rate n1-standard4=1", "did you mean 'n1-standard-4'?"),
        ("status --rate foo=1 --project p", "--rate 'foo' is not a machine type"),
        ("status a/b --project p", "'a/b' is not a run's name"),
        ("clean --older-than 999999d --project p", "is too long; give less"),
        ("run digits --local --runs-directory ''", "--runs-directory '' is empty"),
        ("run digits --loca", "No such option: --loca"),
        ("run", "Missing argument 'RECIPE'"),
        ("plan digits more", "unexpected extra argument"),
        ("parameters lerning_rate", "in its name or description; did you mean 'learning_rate'?"),
        ("parameters xyzzy", "; topics are records, engine, training, machines, pipeline, gate"),
        ("parameters ''", "parameters '' is empty"),
    ],
)
def test_mistake_is_one_line_before_anything_starts(tmp_path, refused, arguments, message):
    (tmp_path / "file").touch()
    (tmp_path / "recipes").mkdir()
    os.mkfifo(tmp_path / "recipes" / "pipe.toml")
    assert message in refused(arguments)
    assert not (tmp_path / "runs").exists()


def test_long_value_is_cut_in_the_message(refused):
    assert len(refused(f"plan digits --set labels={'[' * 400}{']' * 400}")) < 1200
    shown = refused(f"plan digits --set epochs={'9' * 5000}x")
    assert shown.startswith("error: --set: epochs='999")
    assert shown.endswith("x' is not a whole number\n")
    assert len(shown) < 700


def test_deeply_nested_settings_file_is_refused(tmp_path, refused):
    (tmp_path / "vertex.toml").write_text(f"labels = {'[' * 9_999}")
    assert "vertex.toml" in refused("run digits") and "nest fewer" in refused("run digits")
