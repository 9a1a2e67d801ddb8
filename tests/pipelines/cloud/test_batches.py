"""Batch prediction on Vertex AI: what is compiled, sent and scheduled, and what is refused."""

import hashlib

import pytest
import yaml
from google.cloud.aiplatform_v1 import types
from google.protobuf import json_format

from tests.emulator import NUMBER

KEY = "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"
BATCH = """
[batch]
input = "gs://bucket/in/*.jsonl"
machine_type = "n1-standard-8"

[batch.schedule]
cron = "0 5 * * *"
parameters = {replica_count = 4}
"""


@pytest.fixture
def champion(vertex, bucket):
    """Registers the champion of digits, served by an image; there is a file for it to predict."""
    bucket["in/a.jsonl"] = b"[]"

    def put(image="us-central1-docker.pkg.dev/my-project/images/serving:1"):
        version = types.Model(
            name=f"projects/{NUMBER}/locations/us-central1/models/digits",
            version_id="1",
            display_name="digits",
            version_aliases=["champion", "default"],
            container_spec={"image_uri": image},
        )
        vertex.put_version("digits", version)

    put()
    return put


@pytest.fixture
def with_batch(declared):
    """The digits recipe with [batch]."""
    declared("[retraining]", f"{BATCH}\n[retraining]")


def test_a_batch_prediction_is_sent_as_compiled(vertex, command, champion, tmp_path, monkeypatch):
    monkeypatch.setenv("VERTEX_SERVICE_ACCOUNT", "trainer@my-project.iam.gserviceaccount.com")
    monkeypatch.setenv("VERTEX_LABELS", "team=vision")
    code, out, err = command(
        "run", "digits", "--batch", "gs://bucket/in/*.jsonl", "--name", "first",
        "--set", "replica_count=3", "--set", "output=bq://my-project.answers",
    )  # fmt: skip
    assert (code, err) == (0, "")
    (request,) = vertex.sent("CreatePipelineJob")
    job = json_format.MessageToDict(request.pipeline_job._pb)
    assert request.pipeline_job_id == "first"
    compiled = yaml.safe_load((tmp_path / "build" / "digits-batch.yaml").read_text())
    assert job["pipelineSpec"] == compiled
    assert compiled["pipelineInfo"]["name"] == "prediction-digits"
    values = job["runtimeConfig"]["parameterValues"]
    labels = values.pop("labels")
    assert labels.items() >= {"run": "first", "recipe": "digits-batch", "team": "vision"}.items()
    assert values == {
        "model_name": "digits",
        "input": "gs://bucket/in/*.jsonl",
        "output": "bq://my-project.answers",
        "machine_type": "n1-standard-4",
        "replica_count": 3,
        "batch_size": 64,
        "service_account": "trainer@my-project.iam.gserviceaccount.com",
        "encryption_spec_key_name": "",
    }
    assert "CreateContext" not in vertex.names()
    assert "runs/first?project=my-project" in out
    assert "SUCCEEDED" in out


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["rows.jsonl"], "input: 'rows.jsonl' is on this machine, where Vertex AI can't reach it"),
        (["gs://bucket/out/*.jsonl"], "there is no such file; give a file or a pattern"),
        (["gs://other/in/a.jsonl"], "there is no such file; give a file or a pattern"),
        (["gs://bucket/in/a.json"], "is in no format of batch prediction"),
        (["gs://bucket/in/*.jsonl", "--set", "output=answers"], "output: 'answers' is on this mac"),
        (["gs://bucket/in/*.jsonl", "--set", "model_name=other"], "'other' has no champion in pro"),
        (["bq://p.d.t", "--set", f"encryption_spec_key_name={KEY}"], "takes no encryption key"),
        (["bq://p.d.t"], "is in BigQuery, so Vertex AI writes the predictions there, too"),
    ],
)
def test_nothing_is_sent_when_the_request_is_wrong(vertex, refused, champion, given, words):
    assert words in refused("run", "digits", "--batch", *given)
    assert vertex.sent("CreatePipelineJob") == []


def test_a_prebuilt_image_gets_no_format_that_it_does_not_take(
    vertex, command, refused, bucket, champion
):
    champion("us-docker.pkg.dev/vertex-ai/prediction/tf2-cpu.2-15:latest")
    bucket["in/images.txt"] = b"gs://bucket/a.png"
    err = refused("run", "digits", "--batch", "gs://bucket/in/images.txt")
    assert "takes only jsonl and bigquery, not file-list; register a version with" in err
    assert vertex.sent("CreatePipelineJob") == []
    assert command("run", "digits", "--batch", "gs://bucket/in/*.jsonl", "--detach")[0] == 0


def test_a_recipe_with_batch_is_compiled_beside_its_training(command, with_batch, tmp_path):
    code, out, _ = command("compile", "digits", "plain")
    assert code == 0
    names = [line.split()[0] for line in out.splitlines()]
    assert names == ["build/digits.yaml", "build/digits-batch.yaml", "build/plain.yaml"]
    compiled = yaml.safe_load((tmp_path / "build" / "digits-batch.yaml").read_text())
    inputs = compiled["root"]["inputDefinitions"]["parameters"]
    assert inputs["machine_type"]["defaultValue"] == "n1-standard-8"
    tasks = compiled["root"]["dag"]["tasks"]
    assert {one["taskInfo"]["name"] for one in tasks.values()} == {"Find the champion", "Predict"}


def test_it_is_uploaded_and_its_schedule_runs_those_bytes(
    vertex, command, with_batch, registry, tmp_path
):
    code, out, err = command("compile", "digits", "--upload")
    assert (code, err) == (0, "")
    for package, file in (("training", "digits"), ("prediction", "digits-batch")):
        content = (tmp_path / "build" / f"{file}.yaml").read_bytes()
        version = f"sha256:{hashlib.sha256(content).hexdigest()}"
        assert registry.packages[f"{package}-digits"]["versions"] == {version: content}
        assert registry.packages[f"{package}-digits"]["tags"]["latest"] == version
        assert f"uploaded  {registry.repository}/{package}-digits/{version}" in out
    assert command("schedule", "apply", "digits-batch")[0] == 0
    assert registry.names().count("Upload") == 2
    (request,) = vertex.sent("CreateSchedule")
    job = json_format.MessageToDict(request.schedule.create_pipeline_job_request.pipeline_job._pb)
    assert job["pipelineSpec"] == yaml.safe_load(content)


def test_its_schedule_is_one_of_its_own(vertex, command, with_batch):
    for name in ("digits", "digits-batch"):
        code, out, err = command("schedule", "apply", name)
        assert (code, err) == (0, "")
        assert out.startswith("created: ")
    _, request = vertex.sent("CreateSchedule")
    sent = json_format.MessageToDict(request.schedule._pb)
    assert sent["cron"] == "TZ=UTC 0 5 * * *"
    job = sent["createPipelineJobRequest"]["pipelineJob"]
    values = job["runtimeConfig"]["parameterValues"]
    assert (values["input"], values["replica_count"]) == ("gs://bucket/in/*.jsonl", 4)
    assert command("schedule", "apply", "digits-batch")[1].startswith("unchanged: ")
    assert command("schedule", "pause", "digits-batch")[0] == 0
    states = {one.display_name: one.state.name for one in vertex.schedules.values()}
    assert states == {"digits": "ACTIVE", "digits-batch": "PAUSED"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('"gs://bucket/in/*.jsonl"', '"in.jsonl"'), "input: 'in.jsonl' is on this machine"),
        (
            ("\nmachine_type", "\nmachine_tpye"),
            "[batch]: unknown parameter 'machine_tpye'; did you",
        ),
        (('"n1-standard-8"', "8"), "[batch]: machine_type=8 is not text"),
        (
            ('"n1-standard-8"', '"n4-standard-8"'),
            "'n4-standard-8' is not a machine type of prediction; did you mean",
        ),
        (("replica_count = 4", "replica_count = 0"), "replica_count=0"),
        (("0 5 * * *", "0 5"), "[batch.schedule]: cron='0 5' is not five fields"),
    ],
)
def test_a_wrong_batch_table_is_told(vertex, refused, declared, with_batch, change, words):
    declared(*change)
    assert words in refused("schedule", "apply", "digits-batch")
    assert vertex.sent("CreateSchedule") == []


def test_a_recipe_without_a_schedule_of_batch_prediction_says_so(vertex, refused, declared):
    err = refused("schedule", "apply", "digits-batch")
    assert "declares no schedule of batch predictions; add [batch.schedule] with cron" in err
