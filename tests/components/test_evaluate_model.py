"""A model's figures reach the console; so does what the gate makes of them and the champion."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
from google.protobuf import json_format, struct_pb2
from kfp import dsl

from components.evaluate_model import evaluate_model
from components.register_model import register_model
from components.vertex_client import vertex_client
from tests.components.artifacts import artifact
from tests.model_service import candidate, registry_at
from tests.trainer.report.document import HISTORY, TRAINING
from tests.trainer.report_samples import write_model, write_records
from trainer.data import schema
from trainer.data.schema import EXTRA_ASSETS
from trainer.evaluation import answer_file
from trainer.evaluation.gate_options import GateOptions
from trainer.files import write_csv, write_json

CLASSES = ["rose", "tulip"]
PLACE = {"project": "my-project", "location": "us-central1"}
KEY = "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"
LABELS = {"recipe": "flowers", "commit": "0123456789ab", "made-by": "vertex-tensorflow-training"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A training job's folder, its model, and records of which the model misses the last."""
    folder = tmp_path_factory.mktemp("evaluated")
    labels = np.array([0, 0, 1, 1, 1] * 4)
    pixels = np.array([[9, 1], [8, 2], [1, 9], [3, 7], [6, 4]] * 4, np.uint8)
    trained(folder, CLASSES, labels, pixels)
    # Answers the other class throughout.
    write_model(folder / "worse", CLASSES[::-1])
    return folder


def trained(folder, classes, labels=(0, 1), pixels=None):
    """Writes records, a model of them, and what a job of 12 minutes leaves of its training."""
    pixels = np.eye(2, len(classes), dtype=np.uint8) if pixels is None else pixels
    write_records(folder / "records", classes, np.array(labels), pixels)
    write_model(folder / "model", classes)
    training = folder / "training"
    write_json(str(training / "metrics.json"), {**TRAINING, "seconds": 720})
    write_csv(str(training / "history.csv"), HISTORY)


def evaluate(folder, out, model_name="", price=None, project="my-project", **options):
    parameters = {"optimizer": "adamw", **({"price": price} if price else {})}
    given = {
        "model": dsl.Model(uri=str(folder / "model")),
        "records": dsl.Dataset(uri=str(folder / "records")),
        "training": dsl.Artifact(uri=str(folder / "training"), metadata=parameters),
    }
    kinds = dict.fromkeys(("evaluation", "decision", "predictions"), dsl.Artifact)
    kinds |= {"metrics": dsl.Metrics, "report": dsl.HTML}
    kinds["classification"] = dsl.ClassificationMetrics
    artifacts = given | {name: artifact(kind, out / name) for name, kind in kinds.items()}
    told = {"title": "flowers-1", "model_name": model_name}
    told |= {**PLACE, "project": project, **dataclasses.asdict(GateOptions()), **options}
    return evaluate_model.python_func(**told, **artifacts), artifacts


def register(artifacts, outputs, out):
    _, _, role, champion, reason = outputs
    version = artifact(dsl.Artifact, out / "version")
    name, role, why = register_model.python_func(
        model=artifacts["model"],
        records=artifacts["records"],
        evaluation=artifacts["evaluation"],
        version=version,
        model_name="flowers",
        serving_image="image:1",
        labels=LABELS,
        role=role,
        champion=champion,
        reason=reason,
        configuration="0123456789abcdef",
        run="Flowers/1",
        encryption_spec_key_name=KEY,
        **PLACE,
    )
    return name, version, role, why


def put_champion(service, artifact_uri):
    """Registers a champion of the model `flowers`."""
    registry = registry_at(service.environment)
    return registry.register("flowers", candidate(artifact_uri), "champion", "")


def test_the_report_tells_what_the_training_cost_where_it_cost_that(folder, tmp_path):
    price = {"machines": "2 x n1-standard-8", "per_hour": 1.5, "basis": "at the list prices of X"}

    def report(name, **options):
        (tmp_path / name).mkdir()
        evaluate(folder, tmp_path / name, **options)
        return (tmp_path / name / "report.html").read_text()

    # 12 minutes: a fifth of 1.50.
    there = report("there", price=price)
    assert "2 x n1-standard-8 cost 1.50 USD an hour at the list prices of X." in there
    assert "The training took 12 min 0 s, which is 0.30 USD" in there
    here = report("here", price=price, project="local")
    assert "On Vertex AI, 2 x n1-standard-8 would cost 1.50 USD an hour at the list pric" in here
    assert "0.30 USD" not in here
    assert "USD" not in report("unknown")
    # It is none of the parameters that the report lists.
    assert "per_hour" not in there + here


def test_the_step_puts_out_accuracy_metrics_matrix_curve_and_report(folder, tmp_path, capsys):
    (accuracy, verdict, role, champion, _), artifacts = evaluate(folder, tmp_path)
    assert accuracy == pytest.approx(0.8)
    assert (verdict, role, champion) == ("accepted", "", "")
    assert "accepted: accuracy 0.8000 (at least 0.0000)\n" in capsys.readouterr().out
    assert artifacts["metrics"].metadata["accuracy"] == pytest.approx(0.8)
    assert artifacts["metrics"].metadata["examples"] == 20
    matrix = artifacts["classification"].metadata["confusionMatrix"]
    assert [spec["displayName"] for spec in matrix["annotationSpecs"]] == CLASSES
    assert [row["row"] for row in matrix["rows"]] == [[8, 0], [4, 8]]
    curve = artifacts["classification"].metadata["confidenceMetrics"]
    assert curve[-1]["recall"] == 1
    assert artifacts["report"].uri == str(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "flowers-1" in text
    assert "adamw" in text
    json.dumps([artifact.metadata for artifact in artifacts.values()], allow_nan=False)


def test_the_report_lists_what_was_set_of_data_training_and_gate(tmp_path):
    options = {"source": "images:photos", "image_size": 64, "channels": 3}
    trained(tmp_path, CLASSES)
    made = dataclasses.replace(
        schema.load(str(tmp_path / "records")), creation={"options": options}
    )
    (tmp_path / "records/dataset.json").write_text(made.to_json())
    evaluate(tmp_path, tmp_path, min_accuracy=0.25)
    recipe = (tmp_path / "report.html").read_text().split('<section id="recipe">')[1]
    own = recipe.split("<details>")[0]
    for name, value in (("source", "images:photos"), ("image_<wbr>size", "64"), ("optimizer", "")):
        assert f"<dt>{name}</dt><dd>{value}" in own
    assert "<dt>min_<wbr>accuracy</dt><dd>0.25" in own
    assert "<dt>channels" not in own and "confidence" not in own


def test_the_answers_to_the_test_split_are_kept(folder, tmp_path):
    outputs, artifacts = evaluate(folder, tmp_path)
    assert artifacts["predictions"].uri == str(tmp_path / "predictions.csv")
    content = (tmp_path / "predictions.csv").read_bytes()
    assert content.splitlines()[0] == b"key,label,prediction,log_loss"
    examples, scores = answer_file.read(content)
    assert examples["label"].to_pylist() == ["rose", "rose", "tulip", "tulip", "tulip"] * 4
    assert scores.correct.mean() == outputs[0]
    assert scores.losses.mean() == pytest.approx(artifacts["metrics"].metadata["log_loss"])


@pytest.mark.parametrize("count", [220, 1000])
def test_many_classes_leave_the_outputs_of_the_step_within_vertex_ais_limit(
    tmp_path, capsys, count
):
    classes = [f"class-{number:04}" for number in range(count)]
    trained(tmp_path, classes)
    floors = dict.fromkeys(classes, 0.9)
    outputs, artifacts = evaluate(tmp_path, tmp_path, class_floors=floors)
    assert f"the confusion matrix of {count:,} classes; see the report\n" in capsys.readouterr().out
    put_out = [
        artifacts[name] for name in evaluate_model.component_spec.outputs if name in artifacts
    ]
    assert len(put_out) == 6
    payload = [[one.name, one.uri, one.metadata] for one in put_out]
    assert len(json.dumps([payload, outputs])) < 131_072
    assert artifacts["metrics"].metadata["examples"] == 2
    # Two classes have examples, and reach their floors; five of the others are named.
    assert outputs[-1].endswith(f"; and {count - 2 - 5} more")


def test_a_matrix_that_the_console_can_hold_is_among_the_metadata(tmp_path):
    trained(tmp_path, [f"class-{number:04}" for number in range(100)])
    _, artifacts = evaluate(tmp_path, tmp_path)
    assert len(artifacts["classification"].metadata["confusionMatrix"]["rows"]) == 100


def test_the_evaluation_is_in_the_words_of_the_registrys_schema(folder, tmp_path):
    evaluate(folder, tmp_path)
    metrics = json.loads((tmp_path / "evaluation").read_text())
    assert json_format.MessageToDict(json_format.ParseDict(metrics, struct_pb2.Value())) == metrics
    assert metrics["confusionMatrix"] == {
        "annotationSpecs": [
            {"id": "0", "displayName": "rose"},
            {"id": "1", "displayName": "tulip"},
        ],
        "rows": [[8, 0], [4, 8]],
    }
    assert metrics["confidenceMetrics"][0]["recall"] == 1
    assert 0 < metrics["auRoc"] <= 1
    assert metrics["logLoss"] > 0


def test_a_better_model_is_compared_registered_and_promoted(folder, service, tmp_path, capsys):
    put_champion(service, str(folder / "worse"))
    outputs, artifacts = evaluate(folder, tmp_path, model_name="flowers")
    assert outputs[1:4] == ("accepted", "champion", "flowers@1")
    decision = json.loads((tmp_path / "decision").read_text())
    assert decision == artifacts["decision"].metadata
    assert (decision["candidate_only"], decision["champion_only"]) == (16, 4)
    assert decision["p_value"] == pytest.approx(0.00591, abs=1e-5)
    report = (tmp_path / "report.html").read_text()
    assert "Champion and challenger" in report
    assert "better than the champion flowers@1" in report

    name, version, role, _ = register(artifacts, outputs, tmp_path)
    assert role == "champion"
    assert name == "flowers@2"
    upload = service.sent("UploadModel")[-1]
    assert upload.model.artifact_uri == str(folder / "model")
    assert upload.model.container_spec.image_uri == "image:1"
    assert upload.model.encryption_spec.kms_key_name == KEY
    place = "projects/my-project/locations/us-central1"
    assert upload.model.pipeline_job == f"{place}/pipelineJobs/Flowers/1"
    assert upload.model.version_description.startswith("Flowers/1: better than the champion")
    digest = upload.model.labels["dataset"]
    own = {"run": "flowers-1", "dataset": digest, "configuration": "0123456789abcdef"}
    assert upload.model.labels == {**LABELS, **own}
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


def test_an_equal_model_does_not_displace_the_champion(folder, service, tmp_path, capsys):
    put_champion(service, str(folder / "model"))
    outputs, _ = evaluate(folder, tmp_path, model_name="flowers")
    assert outputs[1:4] == ("rejected", "", "flowers@1")
    assert "rejected: not better than the champion flowers@1" in capsys.readouterr().out


def test_data_that_have_drifted_since_the_champions_are_told(folder, service, tmp_path, capsys):
    champion = tmp_path / "champion"
    shutil.copytree(folder / "worse", champion)
    (champion / EXTRA_ASSETS).mkdir()
    dataset = schema.load(str(folder / "records"))
    train = dataclasses.replace(dataset.splits["train"], class_counts=[100, 900])
    drifted = dataclasses.replace(dataset, splits={**dataset.splits, "train": train})
    (champion / EXTRA_ASSETS / schema.FILE_NAME).write_text(drifted.to_json())
    put_champion(service, str(champion))
    evaluate(folder, tmp_path / "out", model_name="flowers")
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "drifted" in line]
    assert line.startswith("The training data have drifted since flowers@1: label ")


def test_a_champion_that_is_gone_is_said_and_not_stumbled_over(folder, service, tmp_path, capsys):
    put_champion(service, str(tmp_path / "gone"))
    outputs, _ = evaluate(folder, tmp_path, model_name="flowers")
    assert outputs[1:3] == ("rejected", "")
    assert "not comparable with the champion flowers@1: no SavedModel" in capsys.readouterr().out
    assert "Champion and challenger" in (tmp_path / "report.html").read_text()
    asked = {"model_name": "flowers", "register_challengers": True}
    outputs, artifacts = evaluate(folder, tmp_path, **asked)
    _, version, role, _ = register(artifacts, outputs, tmp_path)
    assert role == "challenger"
    assert "challenger" in version.metadata["aliases"]


@pytest.mark.parametrize("asked", [False, True])
def test_a_model_that_comes_second_is_judged_again(folder, service, tmp_path, asked):
    outputs, artifacts = evaluate(
        folder, tmp_path, model_name="flowers", register_challengers=asked
    )
    assert outputs[1:4] == ("accepted", "champion", "")
    shutil.copytree(folder / "model", tmp_path / "equal")
    put_champion(service, str(tmp_path / "equal"))
    name, _, role, why = register(artifacts, outputs, tmp_path)
    assert (name, role) == (("flowers@2", "challenger") if asked else ("", ""))
    assert why.startswith("not better than the champion flowers@1")
    client = vertex_client("model", "us-central1", service.environment)
    parent = "projects/my-project/locations/us-central1/models/flowers"
    versions = {one.version_id: one for one in client.list_model_versions(name=parent)}
    assert sorted(versions) == (["1", "2"] if asked else ["1"])
    assert "champion" in versions["1"].version_aliases


def test_a_registry_that_refuses_ends_the_step_with_one_line(folder, service, tmp_path, refused):
    service.fail("ListModelVersions", 403, "PERMISSION_DENIED", "no access")
    error = refused(evaluate, folder, tmp_path, model_name="flowers")
    assert error.startswith("looking for the champion of 'flowers': 403")
    assert "no access" in error and "roles/aiplatform.user" in error
