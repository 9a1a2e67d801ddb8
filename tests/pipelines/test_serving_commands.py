"""The commands serve, predict and monitor."""

import contextlib
import dataclasses
import json
import os
import re
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from pipelines.commands.serving_commands import TITLES
from pipelines.printing import show_table
from tests import tables
from tests.faulty_emulator import OpenEmulator
from tests.pipelines.conftest import started
from tests.registry_service import ModelService, exported, registry_at
from vertex.emulator.model_service import FOLDER_NAME

pytestmark = pytest.mark.usefixtures("elsewhere")
SCANS = ["scan0.png", "scan1.png", "scan2.png"]


def register(folder, model, uri, role="champion", recipe="", **options):
    with ModelService(folder / "runs" / FOLDER_NAME, project_number="") as server:
        registry = registry_at(server.environment, "local", "local")
        version = exported(uri, recipe=recipe)
        registry.register(model, dataclasses.replace(version, **options), role, "")


@pytest.fixture
def registered(tmp_path, untrained_model):
    register(tmp_path, "digits", untrained_model)


@pytest.fixture
def scans(tmp_path):
    """The pixels of three files of digits, SCANS."""
    from sklearn.datasets import load_digits

    pixels = np.round(load_digits().images[:3] * 255 / 16).astype(np.uint8)
    for name, scan in zip(SCANS, pixels, strict=True):
        Image.fromarray(scan).save(tmp_path / name)
    return pixels[..., None]


@pytest.fixture
def predicted(succeed):
    """Run `predict --json`; return its predictions."""

    def run(*arguments):
        lines = succeed("predict --json", *arguments).splitlines()
        return [json.loads(line) for line in lines]

    return run


def assert_close(probabilities, expected):
    assert np.abs(np.subtract(probabilities, expected)).max() < 1e-5


def test_predict_prints_a_table_or_json(succeed, predicted, registered, untrained_model, scans):
    champion = tf.saved_model.load(untrained_model)
    expected = champion.signatures["serving_default"](image=scans)
    probabilities, labels = expected["probabilities"].numpy(), expected["label"].numpy()
    lines = succeed("predict digits", *SCANS).splitlines()
    assert [line.split() for line in lines] == [
        ["Instance", "Label", "Probability"],
        *(
            [file, label.decode(), f"{row.max():.4f}"]
            for file, label, row in zip(SCANS, labels, probabilities, strict=True)
        ),
    ]
    instances = [{"image": scan.tolist(), "key": f"k{n}"} for n, scan in enumerate(scans)]
    Path("scans.jsonl").write_text("\n".join(map(json.dumps, instances)))
    answers = predicted("digits", "scans.jsonl")
    assert [answer["instance"] for answer in answers] == [f"scans.jsonl:{n}" for n in (1, 2, 3)]
    assert [answer["key"] for answer in answers] == ["k0", "k1", "k2"]
    assert {answer["model_version"] for answer in answers} == {"digits@1"}
    assert_close([answer["probabilities"] for answer in answers], probabilities)


def test_champion_moves_with_the_folder_of_runs(
    succeed, scans, tmp_path, untrained_model, monkeypatch
):
    model = shutil.copytree(untrained_model, tmp_path / "runs" / "one" / "artifacts" / "model")
    register(tmp_path, "digits", str(model))
    (file,) = (tmp_path / "runs" / FOLDER_NAME).glob("models/digits.json")
    assert str(tmp_path) not in file.read_text()
    (tmp_path / "moved").mkdir()
    (tmp_path / "runs").rename(tmp_path / "moved" / "runs")
    monkeypatch.chdir(tmp_path / "moved")
    assert succeed("promote digits --local --version 1") == "digits@1 is the champion of digits\n"
    assert "scan0.png" in succeed("predict digits ../scan0.png")


def test_rejected_version_is_named_and_promoted_by_the_command_shown(
    refused, succeed, scans, tmp_path, untrained_model
):
    why = "digits-1: accuracy 0.1000 is below min_accuracy 0.9000"
    register(tmp_path, "digits", untrained_model, "candidate", description=why)
    command = "promote digits --local --version 1"
    for asked in ("predict digits scan0.png", "serve digits"):
        assert refused(asked) == (
            "error: model 'digits' has no champion in runs/.registry yet; version 1 is registered, "
            f"but not as champion ({why}); `python -m pipelines {command}` makes it the champion\n"
        )
    assert succeed(command) == "digits@1 is the champion of digits\n"
    assert "scan0.png" in succeed("predict digits scan0.png")


def test_model_of_another_name_with_a_champion_is_named(
    refused, succeed, scans, tmp_path, untrained_model
):
    register(tmp_path, "mnist", untrained_model, recipe="mnist")
    assert "no champion in runs/.registry yet; train one: python" in refused("serve digits")
    ours = {"recipe": "digits"}
    register(tmp_path, "photos", untrained_model, "candidate", **ours)
    promote = "python -m pipelines promote digits --local --model-name"
    hint = f"; photos has versions, but no champion; `{promote} photos` lists them\n"
    assert refused("predict digits scan0.png").endswith(hint)
    register(tmp_path, "scans", untrained_model, **ours)
    hint = " in runs/.registry yet; scans has one: --model-name scans\n"
    assert refused("predict digits scan0.png").endswith(hint)
    assert "scan0.png" in succeed("predict digits scan0.png --model-name scans")
    register(tmp_path, "better", untrained_model, "candidate", description="why")
    error = refused("predict digits scan0.png --model-name better")
    assert f"(why); `{promote} better --version 1` makes it the champion; scans has one" in error
    (tmp_path / "scans.jsonl").write_text("{}")
    hint = "; scans has one: --set model_name=scans\n"
    assert refused("run digits --local --batch scans.jsonl").endswith(hint)


@contextlib.contextmanager
def served(recipe, *arguments):
    """Run `serve`; yield its process and its URL."""
    with started("serve", recipe, "--port", "0", *arguments) as process:
        assert process.stdout.readline() == f"loading {recipe}@1; Ctrl-C ends the server\n"
        yield process, process.stdout.readline().split()[-1]


def test_served_model_predicts_until_ctrl_c(predicted, refused, registered, scans, tmp_path):
    with served("digits") as (process, url):
        assert url.startswith("http://127.0.0.1:")
        asked = predicted("digits", *SCANS, "--endpoint", url)
        bare = url.removesuffix("/predict")
        assert predicted("digits", *SCANS, "--endpoint", bare) == asked
        for remote, local in zip(asked, predicted("digits", *SCANS), strict=True):
            assert_close(remote.pop("probabilities"), local.pop("probabilities"))
            assert remote == local
        (tmp_path / "damaged.png").write_bytes((tmp_path / "scan0.png").read_bytes()[:-30])
        error = refused("predict", "digits", "scan0.png", "damaged.png", "--endpoint", url)
        assert error.startswith("error: damaged.png can't be read: damaged image: ")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert process.stderr.read() == ""
        error = refused("predict", "digits", "scan0.png", "--endpoint", url)
        assert error.endswith("start one with `python -m pipelines serve`\n")


@pytest.fixture
def trips(tmp_path, row_model, trips_recipe):
    """The recipe `trips`, whose champion is `row_model`."""
    register(tmp_path, "trips", row_model)
    trips_recipe("csv:trips.csv")


def test_csv_rows_are_predicted_by_column(command, refused, tmp_path, trips, row_model):
    spaced = tables.HEADER.replace(",", ", ")
    tables.write_csv(tmp_path / "trips.csv", tables.lines(150), spaced)
    code, shown, errors = command("predict --json trips trips.csv")
    assert (code, errors) == (0, "trips.csv: columns that the model does not use: tips, fare\n")
    rows = [json.loads(line) for line in shown.splitlines()]
    assert len(rows) == 150 and rows[-1]["instance"] == "trips.csv:151"
    header = tables.HEADER.split(",")
    row = dict(zip(header, tables.lines(150)[-1].split(","), strict=True))
    expected = tf.saved_model.load(row_model).signatures["serving_default"](
        miles=tf.constant([float(row["miles"] or "nan")]),
        hour=tf.constant([int(row["hour"])], tf.int64),
        payment=tf.constant([row["payment"]]),
        company=tf.constant([row["company"]]),
        Zone_Id=tf.constant([row["Zone Id"]]),
    )
    assert_close(rows[-1]["probabilities"], expected["probabilities"].numpy()[0])
    header = "miles,hour,payment,company,Zone Id\n"
    typo = header.replace("hour", "hours")
    for file, content, words in (
        ("empty.csv", "", " is empty: it has no header; use a table with a header"),
        ("blank.csv", "\n", " is empty: it has no header; use a table with a header"),
        ("other.csv", typo, " has no column 'hour'; did you mean 'hours'?"),
        ("semicolons.csv", header.replace(",", ";"), ": fields are separated by ';', not ','; add"),
        ("long.csv", f"{'x' * 200_000}\n", " has no column 'miles'"),
        ("ragged.csv", f"{header}1,2,3,4,5\n1,2\n", ":3: row is ragged: 2 fields, the header"),
        ("text.csv", f"{header}far,2,3,4,5\n", ":2 miles is not a number: 'far'"),
    ):
        (tmp_path / file).write_text(content)
        assert file + words in refused("predict", "trips", file)
    os.mkfifo("pipe.csv")
    assert "'pipe.csv' can't be read (not a regular file)" in refused("predict trips pipe.csv")
    error = refused("predict", "trips", "photo.png")
    assert "trips takes files that end in .csv, .jsonl; save the table as CSV in UTF-8" in error


def test_column_that_a_file_lacks_is_missing_as_in_a_request(command, trips):
    Path("rows.csv").write_text("payment,price,miles\ncard,2,3\n,2,\ncash,2,\n")
    code, _, errors = command("predict trips rows.csv")
    assert code == 2
    assert errors.endswith("error: rows.csv:3 has no value: each of its columns is missing\n")
    Path("rows.csv").write_text("payment,price,miles\ncard,2,3\ncash,2,\n")
    Path("rows.jsonl").write_text('{"payment": "card", "miles": "3"}\n{"payment": "cash"}\n')
    code, of_csv, told = command("predict --json trips rows.csv")
    assert (code, told.splitlines()) == (
        0,
        [
            "warning: rows.csv lacks the columns hour, company, Zone Id",
            "rows.csv: columns that the model does not use: price",
        ],
    )
    code, of_json, errors = command("predict --json trips rows.jsonl")
    assert (code, errors) == (0, "")
    answers = [
        [json.loads(line)["probabilities"] for line in shown.splitlines()]
        for shown in (of_csv, of_json)
    ]
    assert_close(*answers)


def test_only_a_newline_ends_a_line_of_json(predicted, tmp_path, trips):
    lines = '{"payment": "a\u2028b\x85c"}\r\n\n{"hour": 1}\n'
    (tmp_path / "rows.jsonl").write_text(lines, encoding="utf-8", newline="")
    names = [line["instance"] for line in predicted("trips", "rows.jsonl")]
    assert names == ["rows.jsonl:1", "rows.jsonl:3"]


def test_long_names_of_columns_are_shown_whole(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    show_table(("Column", *TITLES), [("n" * 35, "0.123", "0.123", "0.123", "12.3%", "12.3%")])
    assert "n" * 35 in capsys.readouterr().out


def test_monitor_compares_logged_requests_with_training(command, succeed, refused, trips):
    lines = tables.lines(600, seed=5)
    tables.write_csv(Path("few.csv"), lines[:12])
    tables.write_csv(Path("like.csv"), lines[12:])
    tables.write_csv(Path("other.csv"), [row.replace("voucher", "card") for row in lines])
    with served("trips", "--log", "asked.jsonl") as (_, url):
        assert command(f"predict trips few.csv --endpoint {url}")[0] == 0
        line = succeed("monitor trips asked.jsonl").splitlines()[-1]
        compared = "requests compared with the training data of trips@1, threshold"
        assert line.startswith(f"12 {compared} 0.1: too few rows to tell for ")
        assert all(f"{name} (" in line for name in ("miles", "hour", "payment", "company"))
        assert command(f"predict trips like.csv --endpoint {url}")[0] == 0
        *rows, line = succeed("monitor trips asked.jsonl --threshold 0.25").splitlines()
        names = {row.split()[0] for row in rows[2:]}
        assert names == {"miles", "hour", "payment", "company", "Zone"}
        asked = f"600 {compared}"
        assert line == f"{asked} 0.25: no drift in 5 columns"
        line = succeed("monitor trips asked.jsonl --threshold 0.1").splitlines()[-1]
        assert line.startswith(f"{asked} 0.1: no drift in 2 columns; too few rows to tell for ")
        assert re.search(r"hour \(at least \d,\d{3}\)", line)
        assert "company (too few training rows, too)" in line
        Path("vast.jsonl").write_text('{"miles": 1}\n{"miles": 1e999}\n')
        error = refused(f"predict trips vast.jsonl --endpoint {url}")
        assert "vast.jsonl:2 miles is not a number: inf" in error
        for _ in range(3):
            assert command(f"predict trips other.csv --endpoint {url}")[0] == 0
    code, shown, errors = command("monitor trips asked.jsonl")
    assert (code, errors) == (1, "")
    line = shown.splitlines()[-1]
    assert line.startswith(f"2,400 {compared} 0.1: drift in paym")
    assert "no drift in " in line
    os.mkfifo("pipe")
    for arguments, words in (
        ("monitor trips none.jsonl", "'none.jsonl' can't be read (No such file or direc"),
        ("monitor trips pipe", "'pipe' can't be read (not a regular file); use the"),
        ("monitor digits asked.jsonl", "monitor is for models of tables, but digits is"),
        ("serve digits --log a", "--log is for models of tables, but digits is a"),
    ):
        assert words in refused(arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("serve digits", "no champion in runs/.registry yet; train one: python -m pipelines run"),
        ("predict digits a.png", "no champion in runs/.registry yet; train one: python -m"),
        ("serve digits --port 70000", "'--port': Input should be less than or"),
        ("serve dgits", "did you mean 'digits'?"),
        ("predict digits", "Missing argument 'FILE'"),
        ("predict digits a.png --endpoint 'a b'", "neither a URL, such as"),
        ("predict digits a.jsonl --endpoint http://a:99999", "//a:99999/predict' is not a URL,"),
        ("predict digits a.png --endpoint 7", "no project: give --project, set GOOG"),
        ("predict digits a.png --endpoint 7 --model-name m", "--endpoint excludes --model-name"),
    ],
)
def test_invalid_arguments_are_refused(refused, arguments, words):
    Path("a.jsonl").write_text("[]")
    assert words in refused(arguments)


@pytest.mark.parametrize("line", ["predict digits a.png", "serve digits", "run digits --local"])
def test_champion_that_is_lost_or_damaged_is_refused(tmp_path, refused, line):
    register(tmp_path, "digits", str(tmp_path / "moved"))
    Path("a.jsonl").write_text("[]")
    line += " --batch a.jsonl" * line.startswith("run")
    lost = f"the champion digits@1 is not at {tmp_path}/moved; move it back, or train one: python"
    assert lost in refused(line)
    Path("runs/.registry/models/digits.json").write_text("{")
    assert "runs/.registry/models/digits.json can't be read (" in refused(line)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("none.png", None, "'none.png' can't be read (No such file or directory); give the name"),
        ("empty.png", b"", "empty.png is empty"),
        ("notes.txt", b"text", "takes files that end in .jpg, .jpeg, .jpe, .jfif, .png, .bmp"),
        ("a.jsonl", b"\n{", "a.jsonl:2 is not JSON ("),
        ("b.jsonl", b"[[1]]\n", "b.jsonl:1 has pixels of shape [1, 1]; the model needs [8, 8, 1]"),
        ("c.jsonl", b"\xff", "'c.jsonl' is not UTF-8"),
        ("d.jsonl", b"\n", "d.jsonl: no instances found; give"),
    ],
)
def test_unusable_file_is_refused(refused, registered, tmp_path, name, content, words):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert words in refused("predict", "digits", name)


class Endpoint(OpenEmulator):
    """Vertex AI's projects.locations.endpoints.predict, which takes the official message."""

    routes = (("POST", r"/v1/(?P<endpoint>.*):predict", "PredictBy"),)

    def __init__(self):
        super().__init__(self)

    def predict_by(self, asked):
        from google.cloud.aiplatform_v1 import types
        from google.protobuf import json_format

        request = types.PredictRequest()
        content = {"endpoint": asked.match["endpoint"], **json.loads(asked.body)}
        json_format.ParseDict(content, request._pb)
        self.asked = request
        prediction = {"label": "3", "probabilities": [0.25, 0.75], "model_version": "run-1"}
        return {"predictions": [prediction] * len(request.instances), "deployedModelId": "4"}


@pytest.mark.parametrize("endpoint", ["77", "projects/p1/locations/us-central1/endpoints/77"])
def test_endpoint_on_vertex_ai_is_found_by_id_or_name(succeed, scans, monkeypatch, endpoint):
    with Endpoint() as server:
        monkeypatch.setenv("VERTEX_AI_ENDPOINT", server.url)
        monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "my-project")
        shown = succeed(f"predict digits scan0.png --endpoint {endpoint}")
        assert shown.splitlines()[1].split() == ["scan0.png", "3", "0.7500"]
        project = "p1" if "/" in endpoint else "my-project"
        assert server.asked.endpoint == f"projects/{project}/locations/us-central1/endpoints/77"
        assert len(server.asked.instances[0]["b64"]) > 50
