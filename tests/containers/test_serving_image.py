"""Test the serving image, run as Vertex AI runs it, with the tests of its server.

https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/predictions/custom-container-requirements
"""

import contextlib
import http.client
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.containers.conftest import NAME, build, run
from tests.gcs.bucket import BucketServer
from tests.gcs.proxy import FaultyProxy
from tests.trainer.serving.conftest import image_model  # noqa: F401
from tests.trainer.serving.serving_processes import Server
from tests.trainer.serving.test_answers import (  # noqa: F401
    test_16_clients_get_their_own_answers,
    test_64_photos_are_one_request,
    test_images_are_answered_as_evaluated,
    test_mixed_forms_are_answered_with_their_keys,
    test_rows_are_answered_as_evaluated,
    test_undecodable_file_fails_only_its_request,
)
from tests.trainer.serving.test_malformed import (  # noqa: F401
    test_500_malformed_requests_cost_no_error_and_no_memory,
)
from vertex.emulator.processes import reserve_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
ROUTE = "/v1/endpoints/1/deployedModels/2"
ENVIRONMENT = {
    "AIP_DEPLOYED_MODEL_ID": "2",
    "AIP_ENDPOINT_ID": "1",
    "AIP_FRAMEWORK": "CUSTOM_CONTAINER",
    "AIP_HEALTH_ROUTE": ROUTE,
    "AIP_HTTP_PORT": "9000",
    "AIP_MODE": "PREDICTION",
    "AIP_PREDICT_ROUTE": f"{ROUTE}:predict",
    "MODEL_VERSION": "model@7",
}
LARGEST = 1.7e9
"""Bytes of the image."""


@pytest.fixture(scope="module")
def image(engine, checkout):
    _, failure = build(engine, checkout, "serving", "serving")
    assert not failure, failure[-3000:]
    yield f"{NAME}:serving"
    run([engine, "rmi", "--force", f"{NAME}:serving"])


@contextlib.contextmanager
def container(engine, image, *options, **environment):
    """Run a container that has no rights and can't write to its file system; yield its ID."""
    variables = {**ENVIRONMENT, **environment}.items()
    options += tuple(f"--env={name}={value}" for name, value in variables)
    options += ("--read-only", "--cap-drop=all", "--security-opt=no-new-privileges")
    started = run([engine, "run", "--detach", *options, image])
    assert not started.returncode, started.stderr
    try:
        yield started.stdout.strip()
    finally:
        run([engine, "rm", "--force", started.stdout.strip()])


def with_model(engine, image, model):
    options = ["--publish=127.0.0.1::9000", f"--volume={model}:/model:ro"]
    return container(engine, image, *options, AIP_STORAGE_URI="/model")


def state(engine, name, field):
    return run([engine, "inspect", "--format", f"{{{{.State.{field}}}}}", name]).stdout.strip()


def ready(engine, name, address=""):
    """Wait for a container's model; return its server."""
    start = time.monotonic()
    address = address or run([engine, "port", name, "9000"]).stdout.strip()
    process = psutil.Process(int(state(engine, name, "Pid")))
    server = Server(process, f"http://{address}{ROUTE}:predict")
    while state(engine, name, "Running") == "true":
        with contextlib.suppress(OSError, http.client.HTTPException):
            if server.send("GET", ROUTE) == (200, {"model_version": "model@7"}):
                print(f"ready after {time.monotonic() - start:.1f} s")
                return server
    pytest.fail(run([engine, "logs", name]).stderr)


@pytest.fixture(scope="module")
def image_server(engine, image, image_model):  # noqa: F811
    with with_model(engine, image, image_model) as name:
        yield ready(engine, name)


@pytest.fixture(scope="module")
def row_server(engine, image, row_model, tmp_path_factory):
    """Yield the server of a model in a bucket, where Vertex AI puts it."""
    folder, port = tmp_path_factory.mktemp("bucket"), str(reserve_port())
    bucket, authority = BucketServer("bucket", folder / "log"), "/authority.pem"
    with bucket, FaultyProxy(bucket.port, folder) as proxy:
        for path in Path(row_model).rglob("*"):
            if path.is_file():
                bucket.put(f"model/{path.relative_to(row_model)}", path.read_bytes())
        environment = {**proxy.environment, "CURL_CA_BUNDLE": authority, "AIP_HTTP_PORT": port}
        environment["AIP_STORAGE_URI"] = "gs://bucket/model"
        options = ["--network=host", f"--volume={proxy.authority}:{authority}:ro"]
        with container(engine, image, *options, **environment) as name:
            yield ready(engine, name, f"127.0.0.1:{port}")


def test_restarted_container_answers_as_before(engine, image, image_model):  # noqa: F811
    blank = np.zeros((8, 8)).tolist()
    with with_model(engine, image, image_model) as name:
        server = ready(engine, name)
        assert server.process.uids().real == 1000
        expected = server.ask([blank])
        assert expected[0] == 200
        for command, code in ((["kill", "--signal=KILL"], "137"), (["stop", "--time=15"], "0")):
            run([engine, *command, name])
            assert not run([engine, "wait", name]).returncode
            assert state(engine, name, "ExitCode") == code
            run([engine, "start", name])
            assert ready(engine, name).ask([blank]) == expected


def test_serving_image_is_small_without_cache_or_components(engine, image):
    size = run([engine, "image", "inspect", "--format", "{{.Size}}", image]).stdout
    assert int(size) < LARGEST
    unwanted = ["-path", "*/.cache/*", "-o", "-path", "/tmp/*", "-o", "-path", "/app/components"]
    command = ["find", "/", "-xdev", *unwanted]
    result = run([engine, "run", "--rm", "--network=none", "--user=0", image, *command])
    assert (result.returncode, result.stdout) == (0, "")
