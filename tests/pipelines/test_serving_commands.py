"""python -m pipelines serve and predict, on the command line."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from pipelines.emulator.model_service import FOLDER_NAME
from tests import tables
from tests.emulator import OpenEmulator
from tests.model_service import ModelService, candidate, registry_at
from tests.trainer.serving.servers import ROOT

pytestmark = pytest.mark.usefixtures("elsewhere")


def register(folder, model, uri):
    with ModelService(folder / "runs" / FOLDER_NAME, project_number="") as server:
        registry = registry_at(server.environment, "local", "local")
        registry.register(model, candidate(uri), "champion", "")


@pytest.fixture
def registered(tmp_path, untrained_model):
    register(tmp_path, "digits", untrained_model)


@pytest.fixture
def champion(registered, untrained_model):
    return tf.saved_model.load(untrained_model)


@pytest.fixture
def scans(tmp_path):
    """Three files of digits, and their pixels."""
    from sklearn.datasets import load_digits

    pixels = np.round(load_digits().images[:3] * 255 / 16).astype(np.uint8)
    for number, one in enumerate(pixels):
        Image.fromarray(one).save(tmp_path / f"scan{number}.png")
    return pixels[..., None]


def test_predict_prints_a_table_and_all_probabilities_as_json(command, champion, scans):
    files = ["scan0.png", "scan1.png", "scan2.png"]
    expected = champion.signatures["serving_default"](image=scans)
    probabilities, labels = expected["probabilities"].numpy(), expected["label"].numpy()
    code, shown, errors = command("predict", "digits", *files)
    assert (code, errors) == (0, "")
    assert [line.split() for line in shown.splitlines()] == [
        ["Instance", "Label", "Probability"],
        *(
            [file, label.decode(), f"{row.max():.4f}"]
            for file, label, row in zip(files, labels, probabilities, strict=True)
        ),
    ]
    instances = [{"image": one.tolist(), "key": f"k{n}"} for n, one in enumerate(scans)]
    Path("scans.jsonl").write_text("\n".join(map(json.dumps, instances)))
    code, shown, errors = command("predict", "digits", "scans.jsonl", "--json")
    assert (code, errors) == (0, "")
    found = [json.loads(line) for line in shown.splitlines()]
    assert [one["instance"] for one in found] == [f"scans.jsonl:{n}" for n in (1, 2, 3)]
    assert [one["key"] for one in found] == ["k0", "k1", "k2"]
    assert {one["model_version"] for one in found} == {"digits@1"}
    given = np.array([one["probabilities"] for one in found])
    assert np.abs(given - probabilities).max() < 1e-5


@contextlib.contextmanager
def served(recipe, *arguments):
    """The process of `serve`, and its URL."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pipelines", "serve", recipe, "--port", "0", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline() == f"loading {recipe}@1; Ctrl-C ends the server\n"
        yield process, process.stdout.readline().split()[-1]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def test_serve_answers_as_predict_does_and_ends_on_ctrl_c(command, registered, scans, tmp_path):
    with served("digits") as (process, url):
        assert url.startswith("http://127.0.0.1:")
        files = ["scan0.png", "scan1.png", "scan2.png"]
        asked = command("predict", "digits", *files, "--json", "--endpoint", url)
        assert asked[0] == 0
        bare = url.removesuffix("/predict")
        assert command("predict", "digits", *files, "--json", "--endpoint", bare) == asked
        loaded = command("predict", "digits", *files, "--json")
        for one, other in zip(asked[1].splitlines(), loaded[1].splitlines(), strict=True):
            one, other = json.loads(one), json.loads(other)
            assert (
                np.abs(np.subtract(one.pop("probabilities"), other.pop("probabilities"))).max()
                < 1e-5
            )
            assert one == other
        (tmp_path / "damaged.png").write_bytes((tmp_path / "scan0.png").read_bytes()[:-30])
        files = "scan0.png", "damaged.png"
        code, shown, errors = command("predict", "digits", *files, "--endpoint", url)
        assert (code, shown) == (2, "")
        assert errors.startswith("error: damaged.png can't be read by the model: Invalid PNG data")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert process.stderr.read() == ""
        code, _, errors = command("predict", "digits", "scan0.png", "--endpoint", url)
        assert code == 2
        assert errors.endswith("start one with `python -m pipelines serve`\n")


@pytest.fixture
def trips(tmp_path, row_model, trips_recipe):
    """The recipe `trips`, whose champion is `row_model`."""
    register(tmp_path, "trips", row_model)
    trips_recipe("csv:trips.csv")


def test_rows_of_a_csv_file_are_asked_by_the_columns_of_the_recipe(
    command, refused, tmp_path, trips, row_model
):
    tables.write_csv(tmp_path / "trips.csv", tables.lines(150))
    code, shown, errors = command("predict", "trips", "trips.csv", "--json")
    assert (code, errors) == (0, "")
    found = [json.loads(line) for line in shown.splitlines()]
    assert len(found) == 150 and found[-1]["instance"] == "trips.csv:151"
    header = tables.HEADER.split(",")
    row = dict(zip(header, tables.lines(150)[-1].split(","), strict=True))
    expected = tf.saved_model.load(row_model).signatures["serving_default"](
        miles=tf.constant([float(row["miles"] or "nan")]),
        hour=tf.constant([int(row["hour"])], tf.int64),
        payment=tf.constant([row["payment"]]),
        company=tf.constant([row["company"]]),
        Zone_Id=tf.constant([row["Zone Id"]]),
    )
    given = np.array(found[-1]["probabilities"])
    assert np.abs(given - expected["probabilities"].numpy()[0]).max() < 1e-5
    (tmp_path / "other.csv").write_text("miles,hours,payment,company,Zone Id\n1,2,3,4,5\n")
    (tmp_path / "ragged.csv").write_text("miles,hour,payment,company,Zone Id\n1,2,3,4,5\n1,2\n")
    (tmp_path / "text.csv").write_text("miles,hour,payment,company,Zone Id\nfar,2,3,4,5\n")
    for file, words in (
        ("other.csv", "other.csv has no column 'hour'; did you mean 'hours'?"),
        ("ragged.csv", "ragged.csv:3 does not have as many fields as the header"),
        ("text.csv", "text.csv:2 miles is not a number: 'far'"),
        ("photo.png", "the model of trips takes files that end in .csv, .jsonl"),
    ):
        assert words in refused("predict", "trips", file)


def test_a_line_of_json_ends_at_a_newline_alone(command, tmp_path, trips):
    lines = '{"payment": "a\u2028b\x85c"}\r\n\n{"hour": 1}\n'
    (tmp_path / "rows.jsonl").write_text(lines, encoding="utf-8", newline="")
    code, shown, errors = command("predict", "trips", "rows.jsonl", "--json")
    assert (code, errors) == (0, "")
    names = [json.loads(line)["instance"] for line in shown.splitlines()]
    assert names == ["rows.jsonl:1", "rows.jsonl:3"]


def test_what_a_server_is_asked_is_compared_with_training(command, refused, tmp_path, trips):
    lines = tables.lines(600, seed=5)
    tables.write_csv(tmp_path / "like.csv", lines)
    tables.write_csv(tmp_path / "other.csv", [one.replace("voucher", "card") for one in lines])
    with served("trips", "--log", "asked.jsonl") as (_, url):
        assert command("predict", "trips", "like.csv", "--endpoint", url)[0] == 0
        code, shown, errors = command("monitor", "trips", "asked.jsonl")
        assert (code, errors) == (0, "")
        *rows, line = shown.splitlines()
        assert {row.split()[0] for row in rows[1:]} == {"miles", "hour", "payment", "company"}
        assert line == (
            "600 rows since the training of trips@1 have not drifted by more than chance"
        )
        for _ in range(3):
            assert command("predict", "trips", "other.csv", "--endpoint", url)[0] == 0
    code, shown, errors = command("monitor", "trips", "asked.jsonl")
    assert (code, errors) == (1, "")
    line = shown.splitlines()[-1]
    assert line.startswith("2,400 rows since the training of trips@1 have drifted: payment 0.")
    for arguments, words in (
        (["monitor", "trips", "none.jsonl"], "'none.jsonl' can't be read (No such file or direc"),
        (["monitor", "digits", "asked.jsonl"], "monitor is for models of tables, but digits is"),
        (["serve", "digits", "--log", "a"], "--log is for models of tables, but digits is a"),
    ):
        assert words in refused(*arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["serve", "digits"],
            "no champion in runs/.registry yet; train one: python -m pipelines r",
        ),
        (["predict", "digits", "a.png"], "no champion in runs/.registry yet; train one: python -m"),
        (["serve", "digits", "--port", "70000"], "'--port': Input should be less than or"),
        (["serve", "dgits"], "did you mean 'digits'?"),
        (["predict", "digits"], "Missing argument 'FILE...'"),
        (["predict", "digits", "a.png", "--endpoint", "a b"], "neither a URL, such as"),
        (["predict", "digits", "a.png", "--endpoint", ""], "--endpoint '' is empty"),
        (["predict", "digits", "a.png", "--endpoint", "7"], "no project: give --project, set GOOG"),
        (
            ["predict", "digits", "a.png", "--endpoint", "7", "--model-name", "m"],
            "leave out --model-name",
        ),
    ],
)
def test_a_mistake_is_one_line_with_the_remedy(refused, arguments, words):
    assert words in refused(*arguments)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("none.png", None, "'none.png' can't be read (No such file or directory); give the name"),
        ("text.png", b"text", "text.png is neither a JPEG, PNG, BMP or GIF image nor a serialized"),
        ("empty.png", b"", "empty.png is empty"),
        ("notes.txt", b"text", "takes files that end in .jpg, .jpeg, .png, .bmp, .gif, .jsonl"),
        ("a.jsonl", b"\n{", "a.jsonl:2 is not JSON ("),
        ("b.jsonl", b"[[1]]\n", "b.jsonl:1 has pixels of shape [1, 1]; the model takes [8, 8, 1]"),
        ("c.jsonl", b"\xff", "'c.jsonl' is not UTF-8"),
        ("d.jsonl", b"\n", "d.jsonl: no instances found; give"),
    ],
)
def test_a_file_that_can_not_be_used_is_named(refused, registered, tmp_path, name, content, words):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert words in refused("predict", "digits", name)


class Endpoint(OpenEmulator):
    """Vertex AI's projects.locations.endpoints.predict, asked by the official message."""

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
        one = {"label": "3", "probabilities": [0.25, 0.75], "model_version": "run-1"}
        return {"predictions": [one] * len(request.instances), "deployedModelId": "4"}


@pytest.mark.parametrize("given", ["77", "projects/p1/locations/us-central1/endpoints/77"])
def test_an_endpoint_of_vertex_ai_is_asked_by_its_id(command, scans, monkeypatch, given):
    with Endpoint() as server:
        monkeypatch.setenv("VERTEX_AI_ENDPOINT", server.url)
        monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "my-project")
        code, shown, errors = command("predict", "digits", "scan0.png", "--endpoint", given)
        assert (code, errors) == (0, "")
        assert shown.splitlines()[1].split() == ["scan0.png", "3", "0.7500"]
        project = "p1" if "/" in given else "my-project"
        assert server.asked.endpoint == f"projects/{project}/locations/us-central1/endpoints/77"
        assert len(server.asked.instances[0]["b64"]) > 50
