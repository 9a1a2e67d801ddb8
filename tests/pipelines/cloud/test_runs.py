"""Runs on Vertex AI: what is sent and what is shown."""

import shlex

import pytest
import yaml
from google.protobuf import json_format

from tests.pipelines.cloud.conftest import GPU_IMAGE, IMAGE
from tests.pipelines.cloud.emulator import Outcome

KEY = "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"
TENSORBOARDS = "projects/1/locations/us-central1/tensorboards"


def created(vertex):
    (request,) = vertex.sent("CreatePipelineJob")
    return request, json_format.MessageToDict(request.pipeline_job._pb)


def test_a_run_is_sent_as_compiled_with_its_name_values_labels_and_root(
    vertex, command, tmp_path, monkeypatch
):
    monkeypatch.setenv("VERTEX_SERVICE_ACCOUNT", "trainer@my-project.iam.gserviceaccount.com")
    monkeypatch.setenv("VERTEX_LABELS", "team=vision")
    monkeypatch.setenv("VERTEX_NETWORK", "projects/1/global/networks/n")
    monkeypatch.setenv("VERTEX_ENCRYPTION_KEY", KEY)
    code, out, err = command("run", "digits", "--name", "first", "--detach", "--set", "epochs=3")
    assert (code, err) == (0, "")
    request, job = created(vertex)
    assert request.parent == "projects/my-project/locations/us-central1"
    assert request.pipeline_job_id == "first"
    compiled = yaml.safe_load((tmp_path / "build" / "digits.yaml").read_text())
    assert job["pipelineSpec"] == compiled
    assert job["runtimeConfig"]["gcsOutputDirectory"] == "gs://bucket/runs"
    values = job["runtimeConfig"]["parameterValues"]
    labels = values.pop("labels")
    assert values == {
        "epochs": 3,
        "service_account": "trainer@my-project.iam.gserviceaccount.com",
        "network": "projects/1/global/networks/n",
        "encryption_spec_key_name": KEY,
    }
    assert job["serviceAccount"] == "trainer@my-project.iam.gserviceaccount.com"
    assert job["network"] == "projects/1/global/networks/n"
    assert job["encryptionSpec"] == {"kmsKeyName": KEY}
    assert labels.pop("run") == "first"
    assert job["labels"].pop("request")
    assert labels == job["labels"]
    assert labels.items() >= {
        "made-by": "vertex-tensorflow-training", "recipe": "digits", "team": "vision"
    }.items()  # fmt: skip
    image = compiled["deploymentSpec"]["executors"]["exec-plan-training"]["container"]["image"]
    assert image == IMAGE
    assert "vertex-ai/pipelines/locations/us-central1/runs/first?project=my-project" in out
    assert vertex.names() == [
        "CreatePipelineJob", "GetPipelineJob", "CreateContext", "AddContextChildren"
    ]  # fmt: skip


T4 = ["--set", "accelerator_type=NVIDIA_TESLA_T4", "--set", "accelerator_count=1"]


def test_replicas_with_accelerators_get_the_image_for_gpus_of_the_settings(vertex, command):
    assert command("run", "digits", "--detach", *T4)[0] == 0
    _, job = created(vertex)
    assert job["runtimeConfig"]["parameterValues"]["gpu_image_uri"] == GPU_IMAGE


SERVING = "us-central1-docker.pkg.dev/my-project/images/serving@sha256:" + "1" * 64
PREBUILT = "us-docker.pkg.dev/vertex-ai/prediction/tf2-cpu.2-15:latest"


@pytest.mark.parametrize(
    ("setting", "parameter", "sent"),
    [(SERVING, None, SERVING), (SERVING, PREBUILT, PREBUILT), ("", None, None)],
)
def test_models_are_served_by_the_image_of_the_settings_unless_the_run_names_one(
    vertex, command, monkeypatch, setting, parameter, sent
):
    monkeypatch.setenv("VERTEX_SERVING_IMAGE", setting)
    given = ["--set", f"serving_image={parameter}"] if parameter else []
    assert command("run", "digits", "--detach", *given)[0] == 0
    _, job = created(vertex)
    assert job["runtimeConfig"]["parameterValues"].get("serving_image") == sent


def test_a_serving_image_of_another_region_is_refused_before_anything_is_sent(
    vertex, command, monkeypatch
):
    monkeypatch.setenv("VERTEX_SERVING_IMAGE", SERVING.replace("us-central1", "us"))
    code, out, err = command("run", "digits", "--detach")
    assert (code, out, vertex.names()) == (2, "", [])
    assert "is not in the Artifact Registry of us-central1, the region of its models; push" in err


@pytest.mark.parametrize("name", ["run", "doctor"])
def test_accelerators_without_an_image_for_gpus_are_refused_before_anything_is_sent(
    vertex, command, monkeypatch, name
):
    monkeypatch.delenv("VERTEX_GPU_IMAGE")
    code, out, err = command(name, "digits", *T4)
    assert (code, out, vertex.names()) == (2, "", [])
    assert err.startswith("error: accelerator_type='NVIDIA_TESLA_T4' needs an image for GPUs, whic")
    assert err.endswith("set VERTEX_GPU_IMAGE, or write gpu_image = ... into vertex.toml\n")


@pytest.mark.parametrize("given", [True, False])
def test_an_evaluation_on_an_accelerator_needs_the_image_for_gpus(
    vertex, command, compile_py, monkeypatch, own_recipe, given
):
    text = '[step_machines]\nevaluation = {accelerator_type = "NVIDIA_L4"}\n'
    own_recipe(f'source = "digits"\n{text}')
    if given:
        assert command("run", "mine", "--detach")[0] == 0
        _, job = created(vertex)
        executors = job["pipelineSpec"]["deploymentSpec"]["executors"]
        assert executors["exec-evaluate-model"]["container"]["image"] == GPU_IMAGE
        return
    monkeypatch.delenv("VERTEX_GPU_IMAGE")
    monkeypatch.setenv("VERTEX_TEMPLATE_REPOSITORY", "gs://bucket/templates")
    # The image is compiled into the pipeline: a run's parameter can't set it.
    own = "mine", "--set", "gpu_image_uri=image:gpu"
    commands = [command(name, *own) for name in ("run", "doctor", "plan")]
    commands += [command(name, "mine") for name in ("run", "doctor", "plan")]
    for code, _, err in [*commands, compile_py("mine", "--upload")]:
        assert (code, vertex.names()) == (2, [])
        assert "accelerator_type='NVIDIA_L4' needs an image for GPUs, which `make push TAR" in err


@pytest.mark.parametrize(("flag", "cached"), [("--cache", True), ("--no-cache", False)])
def test_a_run_is_cached_as_told_for_every_task(vertex, command, flag, cached):
    assert command("run", "digits", "--detach", flag)[0] == 0
    spec = created(vertex)[1]["pipelineSpec"]
    tasks = [
        task
        for component in [spec["root"], *spec["components"].values()]
        for task in component.get("dag", {}).get("tasks", {}).values()
    ]
    assert {task["cachingOptions"].get("enableCache", False) for task in tasks} == {cached}


def test_a_run_is_waited_for_and_its_cost_told(vertex, command):
    vertex.outcomes = [Outcome(hours=2.0)]
    code, out, err = command("run", "digits", "--name", "one")
    assert (code, err) == (0, "")
    assert "Create TFRecords SUCCEEDED" in out
    assert "Train SUCCEEDED" in out and "custom-training-job" not in out
    # Two hours of (0.21849885 + 100 * 0.000267808).
    assert "SUCCEEDED  training cost about 0.49 USD" in out
    assert command("status", "one")[1].count("0.49 USD") == 1
    assert "cost about 2.05 USD" in command("status", "one", "--rate", "n1-standard-4=1")[1]


def test_the_verdict_is_told_at_the_end_and_later(vertex, command):
    decision = {"verdict": "skipped", "reason": "nothing changed since digits@3"}
    vertex.outcomes = [Outcome(decision=decision)]
    code, out, _ = command("run", "digits", "--name", "one", "--set", "skip_if_unchanged=true")
    assert code == 0
    assert "verdict   skipped: nothing changed since digits@3\n" in out
    assert "verdict   skipped: nothing changed since digits@3\n" in command("status", "one")[1]
    assert created(vertex)[1]["runtimeConfig"]["parameterValues"]["skip_if_unchanged"] is True


def test_a_table_of_bigquery_is_within_reach_of_the_cloud(vertex, command):
    source = "source=bigquery:my-project.taxi.trips"
    assert command("run", "chicago_taxi", "--name", "one", "--set", source)[::2] == (0, "")


def test_nothing_is_sent_when_the_request_is_wrong(vertex, command, refused, monkeypatch):
    far = TENSORBOARDS.replace("us-central1", "europe-west4")
    balanced = "--set boot_disk_type=hyperdisk-balanced"
    h200 = "--set chief_machine_type=a3-ultragpu-8g --set accelerator_count=8 --set"
    wrong = {
        "it must be at least 1": "--set epochs=0",
        "did you mean 'epochs'": "--set epoch=3",
        "is on this machine, where Vertex AI can't read it": "--set source=images:photos",
        "records_store: 'store' is on this machine": "--set records_store=store",
        "warm_start: 'runs/old' is on this machine": "--set warm_start=runs/old",
        "is not a valid name of a run": "--name 'Not A Name'",
        "is not a folder in Cloud Storage": "--pipeline-root bucket/runs",
        "is not a region": "--region moon",
        "it must be at least 0": "--set max_cost=-1",
        # Integers that would change on their way.
        f"seed={2**53 + 1} is out of range": f"--set seed={2**53 + 1}",
        f"seed={-(2**60)} is out of range": f"--set seed={-(2**60)}",
        "max_cost=0.0001 pays for 0 s": "--set max_cost=0.0001",
        "no price is known for hyperdisk-balanced; give it as": (
            f"--set max_cost=1 --set chief_machine_type=n4-standard-8 {balanced}"
        ),
        "--set: network='default' is not projects/NUMBER/gl": "--set network=default",
        "line: network='projects/my-project/global/networks/n' is not projects/NUMBER/": (
            "--network projects/my-project/global/networks/n"
        ),
        "can't be peered with machines that have NVIDIA_H200_141GB": (
            "--network projects/1/global/networks/n "
            f"{h200} accelerator_type=NVIDIA_H200_141GB {balanced}"
        ),
        "encryption_key='k' is not projects/PROJECT/locations/REGION": "--encryption-key k",
        f"encryption_spec_key_name='{KEY}' is in us-central1, but the run is in us-east1": (
            f"--encryption-key {KEY} --region us-east1"
        ),
        "service_account='me@example.com' is not NAME@": "--service-account me@example.com",
        "tensorboard='1' is not projects/PROJECT/locations": "--tensorboard 1",
        "--set: tensorboard='1' is not projects/PROJECT/": "--set tensorboard=1",
        "tensorboards/2' needs a service_account": f"--tensorboard {TENSORBOARDS}/2",
        "tensorboards/3' is in europe-west4, but the run is in us-central1": (
            f"--tensorboard {far}/3 --service-account 1-compute@developer.gserviceaccount.com"
        ),
        "endpoint='http://a b' is not a server's address": "--endpoint 'http://a b'",
        "image='My Image' is not an image's name": "--image 'My Image'",
        "--runs-directory 'here' is for runs on this machine": "--runs-directory here",
        "--name '' is empty": "--name ''",
        "--region '' is empty": "--region ''",
        "source='tfds:mnist' needs a data_dir that Vertex AI can read": "--set source=tfds:mnist",
    }
    for message, arguments in wrong.items():
        assert message in refused("run", "digits", *shlex.split(arguments))
    monkeypatch.delenv("VERTEX_IMAGE")
    assert "no image: give --image" in command("run", "flowers")[2]
    assert vertex.requests == []


def test_a_failed_run_shows_the_failing_replicas_lines(vertex, command):
    def entry(replica, message):
        labels = {"job_id": "1001", "task_name": replica}
        return {"resource": {"type": "ml_job", "labels": labels},
                "jsonPayload": {"message": message}}  # fmt: skip

    vertex.log_entries = [
        entry("workerpool0-0", "the chief waits"),
        entry("workerpool1-0", "ValueError: bad shard"),
    ]
    vertex.outcomes = [
        Outcome("FAILED", "The replica workerpool1-0 exited with a non-zero status of 1.")
    ]
    code, out, err = command("run", "digits", "--name", "one")
    assert code == 1
    assert err == "error: The replica workerpool1-0 exited with a non-zero status of 1.\n"
    assert "  ValueError: bad shard" in out
    assert "the chief waits" not in out
    assert command("logs", "one")[1] == "ValueError: bad shard\n"
    everything = command("logs", "one", "--replica", "all", "--lines", "2")[1]
    assert everything.splitlines() == [
        "workerpool0-0: the chief waits",
        "workerpool1-0: ValueError: bad shard",
    ]
    sent = vertex.sent("ListLogEntries")[0]
    assert sent["resourceNames"] == ["projects/my-project"]


def test_a_run_whose_training_job_has_expired_is_at_its_end(vertex, command):
    def expire():
        (job,) = vertex.custom_jobs.values()
        job.state = "JOB_STATE_EXPIRED"

    vertex.outcomes = [Outcome("RUNNING")]
    vertex.before("GetCustomJob", expire)
    remedy = (
        "the training job has expired, but the step Train still waits for it; cancel the run: "
        "python -m pipelines cancel one"
    )
    code, _, err = command("run", "digits", "--name", "one")
    assert code == 1
    assert err == f"error: {remedy}\n"
    assert remedy in command("status", "one")[1]
    assert command("runs")[1].startswith("one  EXPIRED")
    assert command("cancel", "one")[0] == 0
    assert remedy not in command("status", "one")[1]


def test_runs_are_listed_shown_and_cancelled(vertex, command):
    vertex.outcomes = [Outcome(polls=99)] * 4
    for name in ("one", "two", "three"):
        assert command("run", "digits", "--name", name, "--detach")[0] == 0
    *listing, experiments, _ = command("status")[1].splitlines()
    assert [line.split()[:2] for line in listing[::2]] == [
        ["three", "RUNNING"],
        ["two", "RUNNING"],
        ["one", "RUNNING"],
    ]
    assert all("digits on Vertex AI, 20" in line for line in listing[1::2])
    assert "/vertex-ai/experiments/locations/us-central1/" in experiments
    assert command("cancel", "two")[0] == 0
    assert command("status", "two")[1].startswith("two  CANCELLED")
    code, _, err = command("cancel", "two")
    assert (code, err) == (2, "error: the run 'two' has already ended: CANCELLED\n")
    code, _, err = command("cancel", "four")
    assert code == 2
    assert err.startswith("error: no run 'four' in my-project, us-central1;")
