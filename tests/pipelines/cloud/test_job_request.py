"""Requests that start runs: what is sent, and what is refused before."""

from pathlib import Path

import pytest
import yaml

from tests.pipelines.cloud.conftest import GPU_IMAGE, IMAGE, SERVING_IMAGE

KEY = "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"
NETWORK = "projects/1/global/networks/n"
ACCOUNT = "trainer@my-project.iam.gserviceaccount.com"
TENSORBOARDS = "projects/1/locations/us-central1/tensorboards"
FAR_TENSORBOARD = "projects/1/locations/europe-west4/tensorboards/3"
PREBUILT = "us-docker.pkg.dev/vertex-ai/prediction/tf2-cpu.2-15:latest"
OPTIMIZED = "europe-docker.pkg.dev/vertex-ai-restricted/prediction/tf_opt-cpu.nightly:latest"
T4 = "--set accelerator_type=NVIDIA_TESLA_T4 --set accelerator_count=1"


def in_region(region):
    """Return a serving image in the Artifact Registry of a region."""
    return f"{region}-docker.pkg.dev/my-project/images/serving@sha256:{64 * '1'}"


SERVING = in_region("us-central1")


def only_job(vertex):
    (request,) = vertex.sent_json("CreatePipelineJob")
    return request["pipelineJob"]


def test_run_is_sent_as_compiled_with_its_settings(vertex, succeed, tmp_path, monkeypatch):
    monkeypatch.setenv("VERTEX_SERVICE_ACCOUNT", ACCOUNT)
    monkeypatch.setenv("VERTEX_LABELS", "team=vision")
    monkeypatch.setenv("VERTEX_NETWORK", NETWORK)
    monkeypatch.setenv("VERTEX_ENCRYPTION_KEY", KEY)
    out = succeed("run digits --name first --detach --set epochs=3")
    (request,) = vertex.sent_json("CreatePipelineJob")
    assert request["parent"] == "projects/my-project/locations/us-central1"
    assert request["pipelineJobId"] == "first"
    job = request["pipelineJob"]
    compiled = yaml.safe_load((tmp_path / "build" / "digits.yaml").read_text())
    assert job["pipelineSpec"] == compiled
    assert job["runtimeConfig"]["gcsOutputDirectory"] == "gs://bucket/runs"
    values = job["runtimeConfig"]["parameterValues"]
    labels = values.pop("labels")
    assert values == {
        "epochs": 3,
        "service_account": ACCOUNT,
        "network": NETWORK,
        "encryption_spec_key_name": KEY,
        "serving_image": SERVING_IMAGE,
    }
    assert (job["serviceAccount"], job["network"]) == (ACCOUNT, NETWORK)
    assert job["encryptionSpec"] == {"kmsKeyName": KEY}
    assert labels.pop("run") == "first"
    assert job["labels"].pop("request")
    assert labels == job["labels"]
    common = {"made-by": "vertex-tensorflow-training", "recipe": "digits", "team": "vision"}
    assert labels.items() >= common.items()
    image = compiled["deploymentSpec"]["executors"]["exec-plan-training"]["container"]["image"]
    assert image == IMAGE
    assert "vertex-ai/pipelines/locations/us-central1/runs/first?project=my-project" in out
    requests = ["CreatePipelineJob", "GetPipelineJob", "CreateContext", "AddContextChildren"]
    assert vertex.names() == requests


@pytest.mark.parametrize(
    ("serving_image", "flags", "parameter", "sent"),
    [
        (SERVING, T4, "gpu_image_uri", GPU_IMAGE),
        ("", "--set register=false", "serving_image", None),
        (SERVING, "", "serving_image", SERVING),
        (SERVING, f"--set serving_image={PREBUILT}", "serving_image", PREBUILT),
        (SERVING, f"--set serving_image={OPTIMIZED}", "serving_image", OPTIMIZED),
    ],
)
def test_images_come_from_settings_or_the_run(
    vertex, succeed, monkeypatch, serving_image, flags, parameter, sent
):
    monkeypatch.setenv("VERTEX_SERVING_IMAGE", serving_image)
    succeed(f"run digits --detach {flags}")
    values = only_job(vertex)["runtimeConfig"]["parameterValues"]
    assert values.get(parameter) == sent


def test_registered_model_needs_a_serving_image(vertex, refused, own_recipe, monkeypatch):
    monkeypatch.delenv("VERTEX_SERVING_IMAGE")
    own_recipe('source = "digits"\n[retraining]\ncron = "0 3 * * 1"')
    for line in ("run digits", "schedule apply mine"):
        assert "serving_image is empty; build this project's (docs/vertex.md" in refused(line)
    assert vertex.names() == []


def test_model_without_a_name_is_not_served(vertex, succeed, monkeypatch):
    monkeypatch.delenv("VERTEX_SERVING_IMAGE")
    succeed("run digits --detach --set model_name=")


def test_accelerator_needs_a_gpu_image(vertex, succeed, refused, own_recipe, monkeypatch):
    own_recipe('source = "digits"\n[step_machines]\nevaluation = {accelerator_type = "NVIDIA_L4"}')
    succeed("run mine --detach")
    executors = only_job(vertex)["pipelineSpec"]["deploymentSpec"]["executors"]
    assert executors["exec-evaluate-model"]["container"]["image"] == GPU_IMAGE
    vertex.requests.clear()
    monkeypatch.delenv("VERTEX_GPU_IMAGE")
    monkeypatch.setenv("VERTEX_TEMPLATE_REPOSITORY", "gs://bucket/templates")
    needed = "accelerator_type='NVIDIA_L4' needs an image for GPUs, which `make push TARGET=gpu`"
    remedy = "set VERTEX_GPU_IMAGE, or write gpu_image = ... into vertex.toml\n"
    for name in ("run", "doctor"):
        # The evaluation's image is compiled into the pipeline: a run's parameter can't set it.
        for flags in ("", "--set gpu_image_uri=image:gpu"):
            assert needed in refused(f"{name} mine {flags}")
        error = refused(f"{name} digits {T4}")
        assert needed.replace("L4", "TESLA_T4") in error and error.endswith(remedy)
    assert needed in refused("compile mine --upload")
    assert vertex.requests == []


@pytest.mark.parametrize(("flag", "cached"), [("--cache", True), ("--no-cache", False)])
def test_cache_flag_applies_to_every_task(vertex, succeed, flag, cached):
    succeed(f"run digits --detach {flag}")
    spec = only_job(vertex)["pipelineSpec"]
    graphs = [
        component.get("dag", {}) for component in (spec["root"], *spec["components"].values())
    ]
    tasks = [task for graph in graphs for task in graph.get("tasks", {}).values()]
    assert {task["cachingOptions"].get("enableCache", False) for task in tasks} == {cached}


BALANCED = "--set boot_disk_type=hyperdisk-balanced"
H200 = "--set chief_machine_type=a3-ultragpu-8g --set accelerator_type=NVIDIA_H200_141GB"
L4 = "--set chief_machine_type=g2-standard-8 --set accelerator_type=NVIDIA_L4"
DEPLOYS = "--set deploy_champion=true"
WRONG = [
    ("--set source=images:photos", "is on this machine, where Vertex AI can't read it"),
    ("--set source=tfds:mnist", "source='tfds:mnist' needs a data_dir that Vertex AI can read"),
    ("--set records_store=store", "records_store: 'store' is on this machine"),
    ("--set warm_start=runs/old", "warm_start: 'runs/old' is on this machine"),
    ("--name 'Not A Name'", "names may have up to 63 characters: a-z, 0-9, -"),
    (
        f"--set max_cost=1 --set chief_machine_type=n4-standard-8 {BALANCED}",
        "no price for hyperdisk-balanced (all else: 0.87 an hour); give --rate",
    ),
    ("--network projects/p/global/networks/n", "line: network='projects/p/global/networks/n' is"),
    (
        f"--network {NETWORK} {H200} --set accelerator_count=8 {BALANCED}",
        "can't be peered with machines with NVIDIA_H200_141GB",
    ),
    (f"{L4} --set accelerator_count=1 --region europe-west1", "NVIDIA_L4' is not in europe-west1"),
    (
        f"{DEPLOYS} --set serving_image={PREBUILT}",
        f"deploy_champion sends records to the deployed model, but serving_image='{PREBUILT}'",
    ),
    (
        f"{DEPLOYS} --region me-west1 --serving-image {in_region('me-west1')}",
        "machine_type='n1-standard-4' needs an accelerator in me-west1",
    ),
    ("--encryption-key k", "encryption_key='k' is not projects/PROJECT/locations/REGION"),
    (f"--encryption-key {KEY} --region us-east1", "is in us-central1, but the run is in us-east1"),
    ("--service-account me@example.com", "service_account='me@example.com' is not NAME@"),
    ("--tensorboard 1", "tensorboard='1' is not projects/PROJECT/locations"),
    (f"--tensorboard {TENSORBOARDS}/2", "tensorboards/2' needs a service_account"),
    (
        f"--tensorboard {FAR_TENSORBOARD} --service-account {ACCOUNT}",
        "tensorboards/3' is in europe-west4, but the run is in us-central1",
    ),
    ("--endpoint 'http://a b'", "endpoint='http://a b' is not a server's address"),
    (f"--serving-image {in_region('us')}", "is not in the Artifact Registry of us-central1"),
    ("--runs-directory here", "--runs-directory 'here' is for runs on this machine"),
]


def test_wrong_request_sends_nothing(vertex, refused, monkeypatch):
    monkeypatch.delenv("VERTEX_SERVING_IMAGE")
    for arguments, words in WRONG:
        assert words in refused(f"run digits {arguments}")
    monkeypatch.delenv("VERTEX_IMAGE")
    assert "no image: give --image" in refused("run flowers")
    assert not Path("build", "flowers.yaml").exists()
    assert vertex.requests == []


def test_search_that_may_outlive_its_task_sends_nothing(vertex, refused, succeed):
    line = "tune digits --detach --parallel 1 --set timeout={}"
    assert "the trials, in 12 rounds, may take 288 h" in refused(line.format("86400s"))
    assert vertex.requests == []
    succeed(line.format("50400s"))
