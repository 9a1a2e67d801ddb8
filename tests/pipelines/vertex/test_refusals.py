"""A run that Vertex AI refuses, and a connection that breaks on the way there."""

import pytest

from tests.pipelines.vertex.conftest import QUOTA_EXCEEDED
from tests.pipelines.vertex.emulator import Outcome


def test_a_name_that_is_taken_is_the_users_mistake(vertex, command):
    assert command("run", "digits", "--name", "one", "--detach")[0] == 0
    code, _, err = command("run", "digits", "--name", "one", "--detach")
    assert (code, err) == (2, "error: there is a run 'one' already; give another --name\n")


def test_a_request_whose_answer_was_lost_starts_one_run(vertex, command):
    vertex.drop("CreatePipelineJob", after=True)
    assert command("run", "digits", "--name", "one", "--detach")[0] == 0
    assert vertex.names() == ["CreatePipelineJob", "CreatePipelineJob", "GetPipelineJob"]
    assert list(vertex.pipeline_jobs) == ["one"]


def test_servers_faults_and_broken_connections_are_waited_out(vertex, command):
    vertex.outcomes = [Outcome(polls=3)]
    vertex.fail("CreatePipelineJob", 503, "UNAVAILABLE", times=2)
    vertex.fail("GetPipelineJob", 500, "INTERNAL", times=2)
    vertex.fail("GetPipelineJob", 429, "RESOURCE_EXHAUSTED", "Too many requests")
    vertex.drop("GetPipelineJob", times=2)
    code, out, err = command("run", "digits", "--name", "one")
    assert (code, err) == (0, "")
    assert "no answer: " in out
    assert len(vertex.sent("CreatePipelineJob")) == 3


@pytest.mark.parametrize(
    ("status", "name", "message", "code", "shown"),
    [
        (401, "UNAUTHENTICATED", "Request had invalid credentials", 1, "gcloud auth"),
        (403, "PERMISSION_DENIED", "Permission 'x' denied", 1, "pipelines doctor"),
        (404, "NOT_FOUND", "Project not found", 1, "404 Project not found"),
        (400, "INVALID_ARGUMENT", "Bad pipeline", 2, "Bad pipeline"),
        (429, "RESOURCE_EXHAUSTED", QUOTA_EXCEEDED, 1, "nvidia_t4_gpus"),
    ],
)
def test_a_refusal_is_one_line_and_is_not_repeated(
    vertex, command, status, name, message, code, shown
):
    vertex.fail("CreatePipelineJob", status, name, message, times=9)
    result, out, err = command("run", "digits", "--name", "one")
    assert (result, out, err.count("\n")) == (code, "", 1)
    assert err.startswith("error: starting the run 'one': ")
    assert shown in err
    assert len(vertex.requests) == 1


def test_a_server_that_stays_down_is_given_up_on_with_one_line(vertex, command):
    vertex.drop("CreatePipelineJob", times=99)
    code, _, err = command("run", "digits", "--name", "one", "--detach")
    assert code == 1
    assert err.startswith("error: starting the run 'one': no connection (")
    assert err.count("\n") == 1
