"""Test the outputs of evaluate_model, and the gate and registration that follow it."""

import contextlib
import dataclasses
import io
import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from google.protobuf import json_format, struct_pb2
from kfp import dsl

from components.evaluate_model import evaluate_model
from components.register_model import register_model
from tests.components.artifacts import artifact, write_training_counts
from tests.registry_service import exported, registry_at
from tests.trainer.report.report_page import HISTORY, TRAINING
from tests.trainer.report_samples import write_model, write_records
from trainer.data.storage import write_csv, write_json
from trainer.evaluation import champion_scores, prediction_file, scoring
from trainer.evaluation.gate_options import GateOptions
from trainer.exported import model_files
from vertex import checked_json
from vertex.client.vertex_client import connect_vertex

pytestmark = pytest.mark.usefixtures("equal_plots_drawn_once")

CLASSES = ["rose", "tulip"]
PLACE = {"project": "my-project", "location": "us-central1"}
KEY = "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"
LABELS = {"recipe": "flowers", "commit": "0123456789ab", "made-by": "vertex-tensorflow-training"}
FLOWERS = {"model_name": "flowers"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A training job's folder, its model, and records of which the model misses the last."""
    folder = tmp_path_factory.mktemp("evaluated")
    labels = np.array([0, 0, 1, 1, 1] * 4)
    pixels = np.array([[9, 1], [8, 2], [1, 9], [3, 7], [6, 4]] * 4, np.uint8)
    dataset = write_training(folder, CLASSES, labels, pixels)
    options = {"source": "images:photos", "image_size": 64, "channels": 3}
    made = dataclasses.replace(dataset, creation={"options": options})
    (folder / "records/dataset.json").write_text(made.to_json())
    # Answers the other class throughout.
    write_model(folder / "worse", CLASSES[::-1])
    return folder


def write_training(folder, classes, labels=(0, 1), pixels=None):
    """Write records, a model of them, and the output of a training of 12 minutes."""
    pixels = np.eye(2, len(classes), dtype=np.uint8) if pixels is None else pixels
    dataset = write_records(folder / "records", classes, np.array(labels), pixels)
    write_model(folder / "model", classes)
    training = folder / "training"
    metrics = checked_json.with_checksum({**TRAINING, "seconds": 720})
    write_json(str(training / "metrics.json"), metrics)
    write_csv(str(training / "history.csv"), HISTORY)
    return dataset


def evaluate(folder, out, price=None, **options):
    parameters = {"optimizer": "adamw", **({"price": price} if price else {})}
    inputs = {
        "model": dsl.Model(uri=str(folder / "model")),
        "records": dsl.Dataset(uri=str(folder / "records")),
        "training": dsl.Artifact(uri=str(folder / "training"), metadata=parameters),
    }
    kinds = dict.fromkeys(("evaluation", "decision", "predictions"), dsl.Artifact)
    kinds |= {"metrics": dsl.Metrics, "report": dsl.HTML}
    kinds["classification"] = dsl.ClassificationMetrics
    artifacts = inputs | {name: artifact(kind, out / name) for name, kind in kinds.items()}
    values = {"title": "flowers-1", "model_name": "", **PLACE, **dataclasses.asdict(GateOptions())}
    return evaluate_model.python_func(**{**values, **options}, **artifacts), artifacts


@pytest.fixture(scope="module")
def evaluated(folder, tmp_path_factory):
    """One evaluation: its folder, outputs, artifacts and standard output."""
    out = tmp_path_factory.mktemp("out")
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        outputs, artifacts = evaluate(folder, out, min_accuracy=0.25)
    return SimpleNamespace(out=out, outputs=outputs, artifacts=artifacts, shown=shown.getvalue())


def register(artifacts, outputs, out):
    version = artifact(dsl.Artifact, out / "version")
    name, role, why = register_model.python_func(
        **{name: artifacts[name] for name in ("model", "records", "evaluation")},
        **dict(zip(("role", "champion", "reason"), outputs[2:], strict=True)),
        version=version,
        serving_image="us-central1-docker.pkg.dev/p/images/serving:1",
        labels=LABELS,
        configuration="0123456789abcdef",
        run="Flowers/1",
        encryption_spec_key_name=KEY,
        **FLOWERS,
        **PLACE,
    )
    return name, version, role, why


def put_champion(service, artifact_uri):
    """Register a champion of the model `flowers`."""
    registry = registry_at(service.environment)
    return registry.register("flowers", exported(artifact_uri), "champion", "")


def test_report_prices_training_on_vertex_ai(folder, tmp_path):
    price = {"machines": "2 x n1-standard-8", "per_hour": 1.5, "basis": "at the list prices of X"}

    def report(name, **options):
        evaluate(folder, tmp_path / name, **options)
        return (tmp_path / name / "report.html").read_text()

    # 12 minutes: a fifth of 1.50.
    vertex = report("vertex", price=price)
    assert "2 x n1-standard-8 cost 1.50 USD an hour at the list prices of X." in vertex
    assert "The training took 12 min, which is 0.30 USD" in vertex
    local = report("local", price=price, project="local")
    assert "On Vertex AI, 2 x n1-standard-8 would cost 1.50 USD an hour at the list pric" in local
    assert "0.30 USD" not in local
    assert "USD" not in report("unknown")
    # The report does not list it as a parameter.
    assert "per_hour" not in vertex + local


def test_outputs_hold_metrics_matrix_curve_and_report(evaluated):
    accuracy, verdict, role, champion, _ = evaluated.outputs
    assert accuracy == pytest.approx(0.8)
    assert (verdict, role, champion) == ("accepted", "", "")
    claim = "log loss 0.3414 better than that of the class frequencies (0.6730)"
    assert f"accepted: accuracy 0.8000 (minimum 0.2500), {claim}\n" in evaluated.shown
    artifacts = evaluated.artifacts
    assert artifacts["metrics"].metadata["accuracy"] == pytest.approx(0.8)
    assert artifacts["metrics"].metadata["examples"] == 20
    matrix = artifacts["classification"].metadata["confusionMatrix"]
    assert [spec["displayName"] for spec in matrix["annotationSpecs"]] == CLASSES
    assert [row["row"] for row in matrix["rows"]] == [[8, 0], [4, 8]]
    assert artifacts["classification"].metadata["confidenceMetrics"][-1]["recall"] == 1
    assert artifacts["report"].uri == str(evaluated.out / "report.html")
    json.dumps([artifact.metadata for artifact in artifacts.values()], allow_nan=False)


def test_report_lists_settings_of_data_training_and_gate(evaluated):
    text = (evaluated.out / "report.html").read_text()
    assert "flowers-1" in text
    recipe = text.split('<section id="recipe">')[1].split("<details>")[0]
    values = {"source": "images:photos", "image_<wbr>size": "64", "optimizer": "adamw"}
    for name, value in {**values, "min_<wbr>accuracy": "0.25"}.items():
        assert f"<dt>{name}</dt><dd>{value}" in recipe
    assert "<dt>channels" not in recipe and "confidence" not in recipe


def test_answers_to_the_test_split_are_kept(evaluated):
    predictions = evaluated.out / "predictions.csv"
    assert evaluated.artifacts["predictions"].uri == str(predictions)
    content = predictions.read_bytes()
    assert content.splitlines()[0].endswith(b",log_loss,probability_rose,probability_tulip")
    assert content.splitlines()[1].endswith(b",0.9,0.1")
    examples, _, scores = prediction_file.parse(content)
    assert examples["label"].to_pylist() == ["rose", "rose", "tulip", "tulip", "tulip"] * 4
    assert scores.correct.mean() == evaluated.outputs[0]
    metrics = evaluated.artifacts["metrics"].metadata
    assert scores.losses.mean() == pytest.approx(metrics["log_loss"])


def test_evaluation_follows_the_registrys_schema(evaluated):
    metrics = json.loads((evaluated.out / "evaluation").read_text())
    assert json_format.MessageToDict(json_format.ParseDict(metrics, struct_pb2.Value())) == metrics
    specs = [{"id": "0", "displayName": "rose"}, {"id": "1", "displayName": "tulip"}]
    assert metrics["confusionMatrix"] == {"annotationSpecs": specs, "rows": [[8, 0], [4, 8]]}
    assert metrics["confidenceMetrics"][0]["recall"] == 1
    assert 0 < metrics["auRoc"] <= 1
    assert metrics["logLoss"] > 0


@pytest.mark.parametrize("count", [100, 220, 1000])
def test_outputs_of_many_classes_keep_vertex_ais_limit(tmp_path, capsys, count):
    classes = [f"class-{number:04}" for number in range(count)]
    write_training(tmp_path, classes)
    floors = dict.fromkeys(classes, 0.9)
    outputs, artifacts = evaluate(tmp_path, tmp_path, class_floors=floors)
    left_out = f"the confusion matrix of {count:,} classes; see the report\n"
    matrix = artifacts["classification"].metadata.get("confusionMatrix", {"rows": []})
    if count == 100:
        assert left_out not in capsys.readouterr().out and len(matrix["rows"]) == count
    else:
        assert left_out in capsys.readouterr().out and not matrix["rows"]
    names = evaluate_model.component_spec.outputs
    payload = [
        [artifact.name, artifact.uri, artifact.metadata]
        for n, artifact in artifacts.items()
        if n in names
    ]
    assert len(payload) == 6
    assert len(json.dumps([payload, outputs])) < 131_072
    assert artifacts["metrics"].metadata["examples"] == 2
    # Two classes have examples, and reach their floors; five of the others are named.
    assert outputs[-1].endswith(f"; and {count - 2 - 5} more")


def test_better_model_is_compared_registered_and_promoted(folder, service, tmp_path, capsys):
    put_champion(service, str(folder / "worse"))
    outputs, artifacts = evaluate(folder, tmp_path, **FLOWERS)
    assert outputs[1:4] == ("accepted", "champion", "flowers@1")
    decision = json.loads((tmp_path / "decision").read_text())
    assert decision == artifacts["decision"].metadata
    assert (decision["candidate_only"], decision["champion_only"]) == (16, 4)
    assert decision["p_value"] == pytest.approx(0.00591, abs=1e-5)
    report = (tmp_path / "report.html").read_text()
    assert "Champion and challenger" in report
    assert "better than the champion flowers@1" in report

    name, version, role, _ = register(artifacts, outputs, tmp_path)
    assert (name, role) == ("flowers@2", "champion")
    model = service.sent("UploadModel")[-1].model
    assert model.artifact_uri == str(folder / "model")
    assert model.container_spec.image_uri == "us-central1-docker.pkg.dev/p/images/serving:1"
    assert model.encryption_spec.kms_key_name == KEY
    place = "projects/my-project/locations/us-central1"
    assert model.pipeline_job == f"{place}/pipelineJobs/Flowers/1"
    assert model.version_description.startswith("Flowers/1: better than the champion")
    digest = model.labels["dataset"]
    labels = {"run": "flowers-1", "dataset": digest, "configuration": "0123456789abcdef"}
    labels["files"] = model_files.identify(str(folder / "model"))
    assert model.labels == {**LABELS, **labels}
    assert version.metadata["dataset"].startswith(digest)
    metrics = service.sent("ImportModelEvaluation")[-1].model_evaluation.metrics
    assert metrics["confusionMatrix"]["rows"][0][0] == 8
    resource = version.metadata["resourceName"]
    assert resource.endswith("/models/flowers@2")
    assert version.uri == f"https://us-central1-aiplatform.googleapis.com/v1/{resource}"
    assert {"champion", "commit-0123456789ab"} <= set(version.metadata["aliases"])

    uploads = len(service.sent("UploadModel"))
    assert register(artifacts, outputs, tmp_path)[0] == "flowers@2"
    assert len(service.sent("UploadModel")) == uploads
    assert "flowers@2 is registered" in capsys.readouterr().out


def test_equal_model_is_rejected_and_drift_printed(folder, service, tmp_path, capsys):
    champion = tmp_path / "champion"
    shutil.copytree(folder / "model", champion)
    put_champion(service, write_training_counts(champion, folder / "records", [100, 900]))
    outputs, _ = evaluate(folder, tmp_path, **FLOWERS)
    assert outputs[1:4] == ("rejected", "", "flowers@1")
    shown = capsys.readouterr().out
    assert "rejected: not better than the champion flowers@1" in shown
    assert "\nThe training data have drifted since flowers@1: label " in f"\n{shown}"
    assert shown.count("drifted") == 1
    assert "; not compared: image (pixels have no statistics)\n" in shown


@pytest.mark.parametrize("challengers", [False, True])
def test_model_is_judged_again_when_the_champion_changed(folder, service, tmp_path, challengers):
    outputs, artifacts = evaluate(folder, tmp_path, **FLOWERS, register_challengers=challengers)
    assert outputs[1:4] == ("accepted", "champion", "")
    shutil.copytree(folder / "model", tmp_path / "equal")
    put_champion(service, str(tmp_path / "equal"))
    name, _, role, why = register(artifacts, outputs, tmp_path)
    assert (name, role) == (("flowers@2", "challenger") if challengers else ("", ""))
    assert why.startswith("not better than the champion flowers@1")
    client = connect_vertex("model", "us-central1", service.environment)
    parent = "projects/my-project/locations/us-central1/models/flowers"
    versions = {version.version_id: version for version in client.list_model_versions(name=parent)}
    assert sorted(versions) == (["1", "2"] if challengers else ["1"])
    assert "champion" in versions["1"].version_aliases


def test_first_model_that_fails_is_registered_without_an_alias(folder, service, tmp_path):
    outputs, artifacts = evaluate(folder, tmp_path, **FLOWERS, min_accuracy=0.9)
    assert outputs[1:4] == ("rejected", "candidate", "")
    assert "It is registered, but not as champion." in (tmp_path / "report.html").read_text()
    for _ in range(2):  # A retry completes the same version.
        name, version, role, why = register(artifacts, outputs, tmp_path)
        assert (name, role) == ("flowers@1", "candidate")
    assert why == "accuracy 0.8000 is below min_accuracy 0.9000"
    # The registry itself makes the first version of a model its default.
    assert version.metadata["aliases"] == ["default"]


@pytest.mark.parametrize(("champion", "word"), [("worse", "accepted"), ("model", "rejected")])
def test_run_that_does_not_register_is_compared_all_the_same(
    folder, service, tmp_path, champion, word
):
    put_champion(service, str(shutil.copytree(folder / champion, tmp_path / "champion")))
    values = {"register": False, "register_challengers": True}
    outputs, _ = evaluate(folder, tmp_path, **FLOWERS, **values)
    assert outputs[1:4] == (word, "", "flowers@1")
    assert "It is not registered" in (tmp_path / "report.html").read_text()


def test_registry_error_ends_the_step_with_one_line(folder, service, tmp_path, refused):
    service.fail("ListModelVersions", 403, "PERMISSION_DENIED", "no access")
    error = refused(evaluate, folder, tmp_path, **FLOWERS)
    assert error.startswith("looking for the champion of 'flowers': 403")
    assert "no access" in error and "roles/aiplatform.user" in error


def test_damaged_champion_is_named_and_keeps_its_place(folder, service, tmp_path):
    champion = shutil.copytree(folder / "worse", tmp_path / "champion")
    put_champion(service, str(champion))
    (champion / "saved_model.pb").write_bytes(b"damaged")
    outputs, _ = evaluate(folder, tmp_path, **FLOWERS)
    assert outputs[1:4] == ("rejected", "", "flowers@1")
    file = champion / "saved_model.pb"
    assert f"not comparable with the champion flowers@1: flowers@1: {file} is dama" in outputs[4]


def test_champion_that_contradicts_its_recorded_score_keeps_its_place(folder, service, tmp_path):
    outputs, artifacts = evaluate(folder, tmp_path, **FLOWERS)
    registered, *_ = register(artifacts, outputs, tmp_path)
    assert registered == "flowers@1"
    registry = registry_at(service.environment)
    (version,) = registry.list_versions("flowers")
    # Other files take the place of the champion's.
    other = dataclasses.replace(version, artifact_uri=str(folder / "worse"), labels={})
    recorded = registry.find_metrics(version)
    matrix = np.array(recorded["confusionMatrix"]["rows"])
    assert matrix.trace() / matrix.sum() == pytest.approx(outputs[0])
    evaluated = scoring.evaluate(str(folder / "model"), str(folder / "records"))
    scored = champion_scores.score(other.name, other.artifact_uri, evaluated, recorded)
    assert f"was {outputs[0]:.4f} when it was registered, and now is " in scored.problem
