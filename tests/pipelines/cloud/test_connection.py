"""The way to the cloud: transports, and how long it is tried."""

import socket
import socketserver
import threading

import pytest
from google.api_core import exceptions

from components import vertex_client
from components.cloud_errors import CloudError, is_capacity
from components.vertex_client import TOKEN_VARIABLE, is_loopback, make_retry
from pipelines.cloud.connection import Connection, check_server
from pipelines.cloud.settings import Settings
from tests.pipelines.cloud.conftest import IMAGE
from tests.pipelines.cloud.servers import expired_sign_in
from tests.pipelines.cloud.stores import RegistryServer

PER_MINUTE = (
    "Quota exceeded for quota metric 'Resource management (CRUD) requests' and limit 'Resource "
    "management (CRUD) requests per minute per region' of service 'aiplatform.googleapis.com'"
)


def test_an_endpoint_of_this_machine_takes_grpc_with_its_token(vertex, command, monkeypatch):
    monkeypatch.setenv("VERTEX_AI_TRANSPORT", "grpc")
    code, out, err = command("run", "digits", "--name", "first")
    assert (code, err) == (0, "")
    assert "SUCCEEDED" in out
    # A long-running operation, and another service.
    for deed in (["apply", "digits"], ["delete", "digits", "--yes"]):
        code, _, err = command("schedule", *deed)
        assert (code, err) == (0, "")
    assert vertex.schedules == {}
    monkeypatch.setenv(TOKEN_VARIABLE, "guessed")
    code, _, err = command("status")
    assert (code, err.count("\n")) == (1, 1)
    assert "401" in err and TOKEN_VARIABLE in err


def test_an_api_without_an_endpoint_of_its_own_is_asked_at_the_server_of_this_machine(vertex):
    connection = Connection(Settings(project="my-project", endpoint=vertex.url))
    body = {"resourceNames": [], "filter": "", "pageSize": 1}
    assert connection.rest("logging", "POST", "v2/entries:list", body) == {"entries": []}
    with pytest.raises(exceptions.NotFound):
        connection.storage.get_bucket("bucket")


@pytest.mark.parametrize("endpoint", ["127.0.0.1:80", "http://localhost:1", "https://[::1]:2/"])
def test_this_machine_is_known_by_its_names(endpoint):
    assert is_loopback(endpoint)
    assert not is_loopback("https://us-central1-aiplatform.googleapis.com")
    assert not is_loopback("localhost.example.com")


@pytest.fixture
def nobody():
    """An address of this machine at which no server listens, while the test runs."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@pytest.mark.parametrize(
    "arguments",
    [["status"], ["status", "one"], ["doctor"], ["promote", "digits"], ["schedule", "list"],
     ["clean", "--older-than", "1d"], ["run", "digits"], ["logs", "one"], ["cancel", "one"]],
)  # fmt: skip
def test_an_address_at_which_nobody_answers_is_named_at_once(
    nobody, refused, monkeypatch, arguments
):
    monkeypatch.setattr(vertex_client, "_FIRST_PAUSE_SECONDS", 1000)
    monkeypatch.setenv("VERTEX_PIPELINE_ROOT", "gs://bucket/runs")
    monkeypatch.setenv("VERTEX_IMAGE", IMAGE)
    flags = ("--project", "my-project", "--endpoint", f"http://{nobody}")
    err = refused(*arguments, *flags, code=1)
    assert err.startswith(f"error: no answer from {nobody} (Connection refused); ")
    assert f"the setting endpoint is http://{nobody}: check it, and that its server is" in err


def test_a_bucket_or_repository_at_which_nobody_answers_is_named(vertex, nobody, monkeypatch):
    connection = Connection(Settings(project="my-project", endpoint=vertex.url))
    with pytest.raises(CloudError, match=f"no answer from {nobody} .*template_repository"):
        connection.check_answers(f"http://{nobody}/p/r", "check the setting template_repository")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://{nobody}")
    with pytest.raises(CloudError, match=f"no answer from {nobody} .*STORAGE_EMULATOR_HOST is"):
        _ = connection.storage


def test_a_server_behind_a_proxy_is_left_to_the_proxy(nobody, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://proxy.example.com:3128")
    check_server("http://server.invalid", advice="")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(CloudError, match="no answer from"):
        check_server(f"http://{nobody}", advice="")


def test_a_region_that_there_is_not_is_the_users_mistake(vertex, refused, declared, monkeypatch):
    with RegistryServer() as registry:
        monkeypatch.setenv("VERTEX_TEMPLATE_REPOSITORY", registry.repository)
        err = refused("schedule", "apply", "digits", "--region", "us-centrall1")
        assert not registry.packages
    assert "region='us-centrall1' is unknown to google-cloud-aiplatform; did you mean" in err
    assert vertex.requests == []


def test_credentials_that_are_no_file_are_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path))
    with pytest.raises(CloudError, match=r"^signing in: .*Is a directory"):
        _ = Connection(Settings(project="my-project")).credentials


@pytest.mark.parametrize("words", [["schedule", "list"], ["cancel", "one"], ["promote", "digits"]])
def test_an_expired_sign_in_is_one_line_at_once(refused, monkeypatch, tmp_path, words):
    # No request for a token is left to gRPC, which takes the refusal for an outage.
    with expired_sign_in(tmp_path) as key:
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", key)
        error = refused(*words, "--project", "my-project", code=1)
    assert "Token has been expired or revoked." in error
    assert "sign in: gcloud auth application-default login" in error


@pytest.mark.parametrize(
    ("answer", "scheme", "message"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "http", "no connection (ConnectionError: "),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "https", "no connection (SSLError: "),
        (b"HTTP/1.0 200 OK\r\n\r\n<html>", "http", "the answer is not from Google's API ("),
    ],
)
def test_a_server_of_something_else_is_told_at_once(refused, monkeypatch, answer, scheme, message):
    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            if self.request.recv(9999):
                self.request.sendall(answer)

    monkeypatch.setattr(vertex_client, "_FIRST_PAUSE_SECONDS", 1000)
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        endpoint = f"{scheme}://127.0.0.1:{server.server_address[1]}"
        err = refused("status", "--project", "my-project", "--endpoint", endpoint, code=1)
        server.shutdown()
    assert err.startswith(f"error: listing the runs: {message}")
    assert "check the" in err and "setting endpoint" in err


@pytest.mark.parametrize(
    "message",
    [
        "The following quota metrics exceed quota limits: aiplatform.googleapis.com/x",
        "Resources are insufficient in region: us-central1. Please try a different region",
        "The zone does not have enough resources available to fulfill the request",
        "ZONE_RESOURCE_POOL_EXHAUSTED",
        "Stockout in us-central1-a",
        # As public issues have them.
        'Training failed with: code: 8 message: "The following quota metrics exceed quota limits: '
        'aiplatform.googleapis.com/custom_model_training_nvidia_k80_gpus"',
        "code=RESOURCE_EXHAUSTED, message=The following quota metrics exceed quota limits: "
        "aiplatform.googleapis.com/custom_model_training_cpus, cause=null",
        "UNAVAILABLE, errorSource: COMPUTE_ENGINE, Error Message: The zone 'projects/p/zones/z' "
        "does not have enough resources available to fulfill the request.  'NULL:0/NULL:0/NULL:0 "
        "(state:STOCKOUT, sub-state:STOCKOUT, resource type:compute)'.",
        "503 Machine type temporarily unavailable, please deploy with a different machine type or "
        "retry.",
        "Quota 'GPUS_ALL_REGIONS' exceeded.  Limit: 0.0 globally.",
        "code: 8, RESOURCE_EXHAUSTED",
    ],
)
def test_a_lack_of_machines_is_told_from_other_failures(message):
    assert is_capacity(message)
    assert not is_capacity("The replica workerpool0-0 exited with a non-zero status of 1.")
    assert not is_capacity("ResourceExhaustedError: OOM when allocating tensor")
    assert not is_capacity("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8 bytes")
    assert not is_capacity(f"code: 8, RESOURCE_EXHAUSTED, {PER_MINUTE}")


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (exceptions.ResourceExhausted(PER_MINUTE), True),
        (exceptions.ResourceExhausted("Resource has been exhausted (e.g. check quota)."), True),
        (exceptions.ResourceExhausted("The following quota metrics exceed quota limits: x"), False),
        (exceptions.ServiceUnavailable("The service is currently unavailable"), True),
        (exceptions.InternalServerError("Internal error encountered."), True),
        (exceptions.GatewayTimeout("Deadline exceeded"), True),
        (exceptions.Aborted("The operation was aborted, try again"), True),
        (exceptions.AlreadyExists("it exists"), False),
        (exceptions.FailedPrecondition("it must be in the same regional location"), False),
        (exceptions.Forbidden("Permission 'aiplatform.pipelineJobs.create' denied"), False),
        (exceptions.NotFound("no such job"), False),
        (ConnectionResetError(104, "Connection reset by peer"), True),
    ],
)
def test_what_may_pass_by_itself_is_tried_again_and_what_must_be_mended_is_not(error, again):
    calls, said = [], []

    def call():
        calls.append(1)
        if len(calls) == 1:
            raise error
        return "answer"

    if again:
        assert make_retry(said.append)(call)() == "answer"
        assert said[0].startswith("no answer: ") and said[0].endswith("; trying again")
    else:
        with pytest.raises(type(error)):
            make_retry(said.append)(call)()
    assert (len(calls), len(said)) == ((2, 1) if again else (1, 0))
