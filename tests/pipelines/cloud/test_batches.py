"""Batch prediction on Vertex AI: what is compiled, sent and scheduled, and what is refused."""

import hashlib
import time

import pytest
import yaml

from tests.json_server import JsonServer
from vertex.client import vertex_client
from vertex.facts import regions

KEY = "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"
ACCOUNT = "trainer@my-project.iam.gserviceaccount.com"
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
    """Register the champion of digits, served by an image, and write a file for it to predict."""
    bucket["in/a.jsonl"] = b"[]"

    def put(image="us-central1-docker.pkg.dev/my-project/images/serving:1"):
        vertex.put_version(1, ["champion", "default"], container_spec={"image_uri": image})

    put()
    return put


@pytest.fixture
def batch_recipe(declared):
    """The digits recipe with [batch]; the function changes its text."""
    declared("[retraining]", f"{BATCH}\n[retraining]")
    return declared


def test_labels_of_long_names_are_cut_or_refused(vertex, succeed, refused, champion, own_recipe):
    for length in (57, 58):
        own_recipe('source = "digits"\nmodel_name = "digits"\n', length * "a")
    line = "run {} --detach --batch gs://bucket/in/*.jsonl"
    succeed(line.format(57 * "a"))
    (request,) = vertex.sent_json("CreatePipelineJob")
    labels = request["pipelineJob"]["runtimeConfig"]["parameterValues"]["labels"]
    assert labels["run"] == request["pipelineJobId"][:63]
    assert "-batch' is not a label: up to 63" in refused(line.format(58 * "a"))


def test_batch_prediction_is_sent_as_compiled(vertex, succeed, champion, tmp_path, monkeypatch):
    monkeypatch.setenv("VERTEX_SERVICE_ACCOUNT", ACCOUNT)
    monkeypatch.setenv("VERTEX_LABELS", "team=vision")
    out = succeed(
        "run digits --batch gs://bucket/in/*.jsonl --name first --set replica_count=3 "
        "--set output=bq://my-project.answers"
    )
    (request,) = vertex.sent_json("CreatePipelineJob")
    assert request["pipelineJobId"] == "first"
    compiled = yaml.safe_load((tmp_path / "build" / "digits-batch.yaml").read_text())
    assert request["pipelineJob"]["pipelineSpec"] == compiled
    assert request["pipelineJob"]["serviceAccount"] == ACCOUNT
    assert compiled["pipelineInfo"]["name"] == "prediction-digits"
    values = request["pipelineJob"]["runtimeConfig"]["parameterValues"]
    labels = values.pop("labels")
    assert labels.items() >= {"run": "first", "recipe": "digits-batch", "team": "vision"}.items()
    assert values == {
        "model_name": "digits",
        "input": "gs://bucket/in/*.jsonl",
        "output": "bq://my-project.answers",
        "machine_type": "n1-standard-4",
        "replica_count": 3,
        "batch_size": 64,
        "service_account": "",
        "encryption_spec_key_name": "",
    }
    assert "CreateContext" not in vertex.names()
    assert "runs/first?project=my-project" in out
    assert "SUCCEEDED" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("rows.jsonl", "input: 'rows.jsonl' is on this machine; give gs://"),
        ("gs://bucket/out/*.jsonl", "there is no such file; give a file or a pattern"),
        ("gs://other/in/a.jsonl", "there is no such file; give a file or a pattern"),
        ("gs://bucket/in/a.json", "has no format of batch prediction"),
        ("gs://bucket/in/*.jsonl --set output=answers", "output: 'answers' is on this mac"),
        ("gs://bucket/in/*.jsonl --set model_name=other", "'other' has no champion in pro"),
        (f"bq://p.d.t --set encryption_spec_key_name={KEY}", "accepts no encryption key"),
        ("gs://bucket/in/*.jsonl --region me-west1", "'n1-standard-4' needs an accelerator in me-"),
        ("bq://p.d.t", "is in BigQuery, so Vertex AI writes the predictions there, too"),
    ],
)
def test_wrong_batch_request_sends_nothing(vertex, refused, champion, arguments, words):
    assert words in refused(f"run digits --batch {arguments}")
    assert vertex.sent("CreatePipelineJob") == []


@pytest.mark.parametrize(
    ("region", "fits"), [("europe-west4", True), ("europe-west2", False), ("europe-west6", False)]
)
def test_eu_multi_region_is_without_london_and_zurich(region, fits):
    assert regions.is_within(region, "eu") == fits


@pytest.mark.parametrize(
    ("location", "region", "fits"),
    [
        ("US-CENTRAL1", "us-central1", True),
        ("US", "us-central1", True),
        ("NAM4", "us-central1", True),  # two regions, of which us-central1 is one
        ("EUROPE-WEST4", "us-central1", False),
        ("EU", "us-central1", False),
        ("EU", "europe-west4", True),
    ],
)
def test_files_are_in_the_region_of_the_model(storage, command, champion, location, region, fits):
    storage.service.location = location
    line = f"run digits --detach --region {region} --batch gs://bucket/in/*.jsonl"
    _, _, err = command(line)
    words = f"input='gs://bucket/in/*.jsonl' is in {location.lower()}, but the model is in {region}"
    assert (words not in err) == fits, err


def test_tables_are_in_the_region_of_the_model(vertex, succeed, refused, champion, monkeypatch):
    places = {"near": "us-central1", "wide": "US", "far": "EU"}

    def reply(method, path, headers, body):
        dataset, _, table = path.partition("/datasets/")[2].partition("/tables/")
        return 200, {"type": "VIEW" if table == "v" else "TABLE", "location": places[dataset]}

    with JsonServer(reply) as server:
        url = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_BIGQUERY", url)
        line = "run digits --detach --batch bq://p.{} --set output=bq://p.{}"
        for table in ("near.t", "near.v", "wide.t"):
            succeed(f"{line.format(table, 'wide')} --name {table.replace('.', '-')}")
        assert "output='bq://p.far' is in eu, but the m" in refused(line.format("near.t", "far"))
        assert "input='bq://p.far.t' is in eu, but the" in refused(line.format("far.t", "near"))
        assert "'bq://p.wide.v' is a view in us, but the" in refused(line.format("wide.v", "near"))
    assert len(vertex.sent("CreatePipelineJob")) == 3


def test_late_listing_of_the_input_is_announced(vertex, storage, command, champion, monkeypatch):
    monkeypatch.setattr(vertex_client, "_SILENT_SECONDS", 0.2)
    storage.before("ListObjects", lambda: time.sleep(1))
    _, out, _ = command("run digits --batch gs://bucket/in/*.jsonl --detach")
    assert "no answer for 0.2 s; still waiting" in out


def test_prebuilt_image_limits_the_input_formats(vertex, succeed, refused, bucket, champion):
    champion("us-docker.pkg.dev/vertex-ai/prediction/tf2-cpu.2-15:latest")
    bucket["in/images.txt"] = b"gs://bucket/a.png"
    err = refused("run digits --batch gs://bucket/in/images.txt")
    assert "accepts only jsonl and bigquery, not file-list; register a version with" in err
    assert vertex.sent("CreatePipelineJob") == []
    succeed("run digits --batch gs://bucket/in/*.jsonl --detach")


def test_batch_schedule_runs_the_uploaded_bytes(vertex, succeed, batch_recipe, registry, tmp_path):
    names = [line.split()[0] for line in succeed("compile digits plain").splitlines()]
    assert names == ["build/digits.yaml", "build/digits-batch.yaml", "build/plain.yaml"]
    out = succeed("compile digits --upload")
    for package, file in (("training", "digits"), ("prediction", "digits-batch")):
        content = (tmp_path / "build" / f"{file}.yaml").read_bytes()
        version = f"sha256:{hashlib.sha256(content).hexdigest()}"
        assert registry.packages[f"{package}-digits"]["versions"] == {version: content.decode()}
        assert registry.packages[f"{package}-digits"]["tags"]["latest"] == version
        assert f"uploaded  {registry.repository}/{package}-digits/{version}" in out
        assert succeed(f"schedule apply {file}").startswith("created: ")
    assert registry.names().count("Upload") == 2
    compiled = yaml.safe_load(content)
    inputs = compiled["root"]["inputDefinitions"]["parameters"]
    assert inputs["machine_type"]["defaultValue"] == "n1-standard-8"
    tasks = compiled["root"]["dag"]["tasks"].values()
    assert {task["taskInfo"]["name"] for task in tasks} == {"Find the champion", "Predict"}
    schedule = vertex.sent_json("CreateSchedule")[1]["schedule"]
    assert schedule["cron"] == "TZ=UTC 0 5 * * *"
    job = schedule["createPipelineJobRequest"]["pipelineJob"]
    assert job["pipelineSpec"] == compiled
    values = job["runtimeConfig"]["parameterValues"]
    assert (values["input"], values["replica_count"]) == ("gs://bucket/in/*.jsonl", 4)
    assert succeed("schedule apply digits-batch").startswith("unchanged: ")
    succeed("schedule pause digits-batch")
    states = {schedule.display_name: schedule.state.name for schedule in vertex.schedules.values()}
    assert states == {"digits": "ACTIVE", "digits-batch": "PAUSED"}


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"gs://bucket/in/*.jsonl"', '"in.jsonl"', "input: 'in.jsonl' is on this machine"),
        ("\nmachine_type", "\nmachine_tpye", "[batch]: unknown parameter 'machine_tpye'; did you"),
        ('"n1-standard-8"', "8", "[batch]: machine_type=8 is not text"),
        ('"n1-standard-8"', '"n4-standard-8"', "is not a machine type for prediction; did you"),
        ("replica_count = 4", "replica_count = 0", "replica_count=0"),
        ("0 5 * * *", "0 5", "[batch.schedule]: cron='0 5' is not five fields"),
    ],
)
def test_wrong_batch_table_is_refused(vertex, refused, batch_recipe, old, new, words):
    batch_recipe(old, new)
    assert words in refused("schedule apply digits-batch")
    assert vertex.sent("CreateSchedule") == []
