"""python -m pipelines: what it shows, and that no mistake of a user's goes further than a line."""

import dataclasses
import shlex

import pytest

from pipelines import recipe
from pipelines.commands.command_line import app, run
from pipelines.parameters import PARAMETERS, ParameterSet

METRICS = "aiplatform.googleapis.com/custom_model_training"


pytestmark = pytest.mark.usefixtures("elsewhere")


def test_recipes_are_listed_with_what_they_make(capsys):
    assert run(app, ["recipes"]) == 0
    shown = capsys.readouterr().out
    for name in recipe.names():
        assert name in shown
        assert recipe.load(name).summary in shown


def test_parameters_are_described_below_their_topic_each_once(capsys):
    assert run(app, ["parameters"]) == 0
    shown = capsys.readouterr().out
    assert "Peak learning rate of the optimizer. Above 0." in shown
    assert "One of sgd, adam, adamw." in shown
    lines = shown.splitlines()
    names = [line.split()[0] for line in lines if line and not line.startswith(" ")]
    topics = [field.name for field in dataclasses.fields(ParameterSet)]
    assert [name for name in names if name in topics] == topics
    assert sorted(set(names) - set(topics)) == sorted(PARAMETERS)
    assert len(names) == len(PARAMETERS) + len(topics)
    assert names.index("machines") < names.index("worker_count") < names.index("pipeline")


@pytest.mark.parametrize(
    ("word", "listed", "left_out"),
    [
        ("gate", "min_accuracy", "scheduling_strategy"),
        ("Learning_Rate", "fine_tune_learning_rate", "seed"),
        ("us dollars", "price_per_hour", "timeout"),
        ("adamw", "optimizer", "epochs"),
    ],
)  # fmt: skip
def test_parameters_can_be_asked_for_by_topic_name_or_description(capsys, word, listed, left_out):
    assert run(app, ["parameters", word]) == 0
    names = [line.partition(" ")[0] for line in capsys.readouterr().out.splitlines()]
    assert listed in names
    assert left_out not in names


def test_the_options_of_each_model_are_listed(capsys):
    assert run(app, ["parameters", "model_options"]) == 0
    shown = capsys.readouterr().out
    assert "with model=transfer" in shown
    assert "backbone  str, default DenseNet121" in shown
    assert "backbone_options of MobileNetV3Large, MobileNetV3Small" in shown
    assert "NASNetMobile" in shown


def test_the_options_of_each_type_of_column_are_listed(capsys):
    assert run(app, ["parameters", "columns"]) == 0
    *_, hashed, crosses = capsys.readouterr().out.split("\n\n")
    assert hashed.startswith("type hashed: text, or numbers used as names")
    names = [line.split()[0] for line in hashed.splitlines() if ", default " in line]
    assert names == ["buckets", "embedding"]
    assert "columns  list, default []" in crosses


def test_a_plan_shows_each_pool_that_would_be_asked_for(capsys):
    settings = "worker_count=3", "accelerator_type=NVIDIA_TESLA_T4", "accelerator_count=2"
    settings = *settings, "gpu_image_uri=image:gpu"
    flags = [word for setting in settings for word in ("--set", setting)]
    assert run(app, ["plan", "digits", *flags]) == 0
    rows = [line.split("  ") for line in capsys.readouterr().out.splitlines()[1:3]]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert cells == [
        ["chief", "1", "n1-standard-4", "2 x NVIDIA_TESLA_T4", "100 GB pd-ssd", "1.05", "0.69"],
        ["worker", "3", "n1-standard-4", "2 x NVIDIA_TESLA_T4", "100 GB pd-ssd", "3.15", "2.08"],
    ]


def test_a_plan_names_dataflow_where_it_writes_the_records(capsys):
    settings = "records_engine=dataflow", "dataflow_max_workers=40"
    flags = [word for setting in settings for word in ("--set", setting)]
    for given, named in ((flags, True), ([], False)):
        assert run(app, ["plan", "digits", *given]) == 0
        (line,) = [x for x in capsys.readouterr().out.splitlines() if x.startswith("excluded")]
        assert ("Dataflow (up to 40 e2-standard-4" in line) == named


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("runn digits", "No such command 'runn'. Did you mean 'run', 'runs'? --help shows"),
        ("run digit --local", "no recipe 'digit'; did you mean 'digits'?"),
        (
            "plan digits --set chief_machine_type=n1-standard-2",
            "is not a machine type of training on Vertex AI (configure-compute, 2026-08); did you",
        ),
        (
            "plan cats_vs_dogs",
            "accelerator_type='NVIDIA_TESLA_V100' needs an image for GPUs, which `make push "
            "TARGET=gpu` builds; give --set gpu_image_uri=IMAGE, set VERTEX_GPU_IMAGE, or write",
        ),
        ("run DIGITS --local", "no recipe 'DIGITS'; did you mean 'digits'?"),
        ("run digits", "no project: give --project, set GOOGLE_CLOUD_PROJECT"),
        ("run digits", "; or add --local to run on this machine"),
        ("run digits --local --name x", "--name is for runs on Vertex AI; leave it"),
        ("run digits --local '--runs-directory=~/file/x'", "/file/x can't be written"),
        (["plan", "digits", "--set", f"labels={'[' * 99_999}"], "labels is nested too deeply"),
        ("plan digits --set accelerator_type=T4", "did you mean 'NVIDIA_TESLA_T4'?"),
        ("plan digits --set accelerator_type=h100", "mean 'NVIDIA_H100_80GB'?"),
        ("run digits --local --set epochs", "--set 'epochs' is not NAME=VALUE"),
        ("run digits --local --set =3", "--set '=3' is not NAME=VALUE"),
        (["run", "digits", "--local", "--set", "source=images:\udcff"], "is not UTF-8; rename"),
        ("run digits --local --set epoch=3", "did you mean 'epochs'?"),
        ("run digits --local --set epochs=0", "it must be at least 1"),
        ("run digits --local --set epochs=many", "epochs='many' is not a whole"),
        ("run digits --local --set model=smallcnn", "did you mean 'small_cnn'?"),
        ("run digits --local --set strategy=mirored", "did you mean 'mirrored'?"),
        ("run digits --local --set optimizer=adan", "did you mean 'adam'?"),
        ("run digits --local --set strategy=mirrored", "one_device and mirrored train on one"),
        ("run digits --local --set accelerator_type=NVIDIA_TESLA_T4", "give both, or neither"),
        ("run flowers --local --set source=images:nope", "/nope does not exist"),
        ("run digits --local --set source=csv", "does not fit; use csv:URI"),
        ("run digits --local --set image_size=0", "image_size=0 is out of range"),
        ("run digits --local --set 'model_options={'", "is not a JSON object"),
        ("run digits --local --set 'split_fractions=[1,1,1]'", "that add up to 1"),
        ("run digits --local --runs-directory file/runs", "file"),
        ("emulator --folder file/x", "--folder 'file/x' can't be made (Not a directory); give"),
        ("run digits --local --set epochs=1 --set epochs=2", "'2'; give it once"),
        (
            ["run", "digits", "--local", "--set", f"epochs={10**20}"],
            "it must be at most 90071992547",
        ),
        ('run digits --local --set \'labels={"": "x"}\'', "labels: ='x' is not a label: up to 63"),
        ("run digits --local --set 'source=tfds:no such'", "does not fit; use tfds:NAME"),
        ("run flowers --local --set source=images:s3://b", "'s3://b' is not a place"),
        ("run digits --local --set records_store=gs://", "give gs://BUCKET/FOLDER, or"),
        ("run digits --local --project p", "--project is for runs on Vertex AI"),
        ("run digits --local --image i", "--image is for runs on Vertex AI; leave it out of"),
        ("doctor --set epochs=1 --project p", "name it: doctor RECIPE --set"),
        ("logs x --replica '' --project p", "--replica '' is empty"),
        ("plan digits --minutes inf", "'--minutes'"),
        ("plan digits --rate n1-standard-4=1e99", "is not NAME=PRICE_AN_HOUR"),
        ("plan digits --rate foo=1", "disk type of this job; known: n1-standard-4, pd-ssd"),
        ("plan digits --rate n1-standard4=1", "did you mean 'n1-standard-4'?"),
        ("plan digits --set max_cost=0.0001", "max_cost=0.0001 pays for 0 s of machines"),
        ("status --rate foo=1 --project p", "--rate 'foo' is not a machine type"),
        ("status a/b --project p", "'a/b' is not a run's name"),
        ("clean --older-than 999999d --project p", "is too long; give less"),
        ("clean --older-than 1d --project p --recipe ''", "--recipe '' is empty"),
        ("run digits --runs-directory here", "is for runs on this machine; add --local"),
        ("run digits --local --runs-directory ''", "--runs-directory '' is empty"),
        ("run digits --local --set max_cost=0.0001", "pays for 0 s of machines"),
        ("run digits --loca", "No such option: --loca"),
        ("run", "Missing argument 'RECIPE'"),
        ("plan digits more", "unexpected extra argument"),
        ("parameters lerning_rate", "in its name or description; did you mean 'learning_rate'?"),
        ("parameters xyzzy", "; topics are records, engine, training, machines, pipeline, gate"),
        ("parameters ''", "parameters '' is empty"),
    ],
)
def test_a_mistake_is_one_line_before_anything_starts(tmp_path, capfd, arguments, message):
    (tmp_path / "file").touch()
    words = shlex.split(arguments) if isinstance(arguments, str) else arguments
    assert run(app, words) == 2
    shown = capfd.readouterr()
    assert shown.err.startswith("error: ")
    assert message in shown.err
    assert shown.err.count("\n") == 1
    assert shown.out == ""
    assert not (tmp_path / "runs").exists()


def test_a_message_leaves_out_the_middle_of_a_long_value(capfd):
    assert run(app, ["plan", "digits", "--set", f"labels={'[' * 400}{']' * 400}"]) == 2
    assert len(capfd.readouterr().err) < 1200
    assert run(app, ["plan", "digits", "--set", f"epochs={'9' * 5000}x"]) == 2
    shown = capfd.readouterr().err
    assert shown.startswith("error: --set: epochs='999")
    assert shown.endswith("x' is not a whole number\n")
    assert len(shown) < 700


def test_settings_that_are_nested_too_deeply_are_one_line(tmp_path, capfd):
    (tmp_path / "vertex.toml").write_text(f"labels = {'[' * 9_999}")
    assert run(app, ["run", "digits"]) == 2
    shown = capfd.readouterr().err
    assert shown.startswith("error: vertex.toml can't be read (")
    assert shown.count("\n") == 1
