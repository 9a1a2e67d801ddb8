"""Servers that stand in for Google Cloud, and settings that lead to them."""

import dataclasses
import functools
import pickle

import pytest

from pipelines import compilation, package
from pipelines.runs import experiments, launch
from tests.pipelines.cloud.cloud_servers import RegistryServer, StorageServer
from tests.pipelines.cloud.scripted_vertex import VertexEmulator
from vertex.client import vertex_client
from vertex.facts.emulation import TOKEN_VARIABLE
from vertex.registry import endpoint_changes

IMAGE = "us-central1-docker.pkg.dev/my-project/images/training@sha256:" + 64 * "1"
GPU_IMAGE = "us-central1-docker.pkg.dev/my-project/images/training-gpu@sha256:" + 64 * "2"
SERVING_IMAGE = "us-central1-docker.pkg.dev/my-project/images/serving@sha256:" + 64 * "3"
QUOTA_EXCEEDED = (
    "The following quota metrics exceed quota limits: "
    "aiplatform.googleapis.com/custom_model_training_nvidia_t4_gpus"
)
RETRAINING = """
[retraining]
cron = "0 3 * * 1"
time_zone = "Europe/Berlin"
start = 2031-01-01T00:00:00Z
end = 2032-01-01T00:00:00+01:00
max_concurrent_runs = 2
parameters = {epochs = 20, max_cost = 5, skip_if_unchanged = true}
"""


@pytest.fixture(autouse=True)
def elsewhere(elsewhere, monkeypatch):
    """Unset what configures Google Cloud; retry and poll within milliseconds."""
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.setattr(vertex_client, "_FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(vertex_client, "_RETRY_SECONDS", 2.0)
    monkeypatch.setattr(vertex_client, "_FIRST_POLL_SECONDS", 0.01)
    monkeypatch.setattr(vertex_client, "_LONGEST_POLL_SECONDS", 0.02)
    monkeypatch.setattr(endpoint_changes, "_APPEAR_SECONDS", 0.4)
    monkeypatch.setattr(experiments, "_POLLING_SECONDS", 0.01)
    monkeypatch.setattr(launch, "POLLING_SECONDS", 0.01)


@pytest.fixture(autouse=True, scope="session")
def compiled_once():
    """Compile each recipe with each image once, which takes half a second, and read it once."""
    known = {}
    original = compilation.compile_yaml
    read = package.parse_documents

    @functools.cache
    def documents(text):
        return pickle.dumps(read(text))

    def compiled(recipe, image, gpu_image=""):
        # The times at which runs start are not compiled in.
        run_options = dataclasses.replace(recipe.run_options, retraining=None)
        key = f"{dataclasses.replace(recipe, run_options=run_options)} {image} {gpu_image}"
        if key not in known:
            known[key] = original(recipe, image, gpu_image)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compilation, "compile_yaml", compiled)
        patch.setattr(package, "parse_documents", lambda text: pickle.loads(documents(text)))
        yield


@pytest.fixture
def settings(monkeypatch):
    """Set a project, a bucket and images by the environment."""
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "my-project")
    monkeypatch.setenv("VERTEX_PIPELINE_ROOT", "gs://bucket/runs")
    monkeypatch.setenv("VERTEX_IMAGE", IMAGE)
    monkeypatch.setenv("VERTEX_GPU_IMAGE", GPU_IMAGE)
    monkeypatch.setenv("VERTEX_SERVING_IMAGE", SERVING_IMAGE)


@pytest.fixture
def vertex(settings, monkeypatch, tmp_path):
    """A Vertex AI on this machine, to which the environment leads."""
    with VertexEmulator(tmp_path / "models") as server:
        monkeypatch.setenv("VERTEX_AI_ENDPOINT", server.url)
        monkeypatch.setenv(TOKEN_VARIABLE, server.secret)
        monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_LOGGING", server.url)
        yield server


@pytest.fixture
def storage(monkeypatch):
    """Cloud Storage with an empty bucket, to which the environment leads."""
    with StorageServer() as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
        yield server


@pytest.fixture
def bucket(vertex, storage):
    return storage.buckets["bucket"]


@pytest.fixture
def declared(tmp_path, monkeypatch):
    """The digits recipe with [retraining]; the function changes its text."""
    from pipelines import recipe

    text, _, _ = (recipe.DIRECTORY / "digits.toml").read_text().partition("[retraining]")
    folder = tmp_path / "packaged"
    folder.mkdir()
    (folder / "digits.toml").write_text(text + RETRAINING)
    (folder / "plain.toml").write_text(text)
    monkeypatch.setattr(recipe, "DIRECTORY", folder)

    def change(old, new):
        path = folder / "digits.toml"
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))

    return change


@pytest.fixture
def registry(vertex, monkeypatch):
    """A repository of compiled pipelines, to which the environment leads."""
    with RegistryServer() as server:
        monkeypatch.setenv("VERTEX_TEMPLATE_REPOSITORY", server.repository)
        yield server
