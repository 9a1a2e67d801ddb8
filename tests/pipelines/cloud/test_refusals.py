"""A run that Vertex AI refuses, and a connection that breaks on the way there."""

import pytest
from google.cloud.aiplatform_v1 import types

from components import vertex_client
from tests.pipelines.cloud.conftest import QUOTA_EXCEEDED
from tests.pipelines.cloud.emulator import LOCATION, Outcome


def test_a_request_whose_answer_was_lost_starts_one_run(vertex, command):
    vertex.drop("CreatePipelineJob", after=True)
    assert command("run", "digits", "--name", "one", "--detach")[0] == 0
    assert vertex.names()[:3] == ["CreatePipelineJob", "CreatePipelineJob", "GetPipelineJob"]
    assert list(vertex.pipeline_jobs) == ["one"]


def test_a_run_of_that_name_from_yesterday_is_not_taken_for_this_one(vertex, command):
    assert command("run", "digits", "--name", "old", "--detach")[0] == 0
    for fault in ((), ("CreatePipelineJob", 503, "UNAVAILABLE")):
        if fault:
            vertex.fail(*fault)
        code, _, err = command("run", "digits", "--name", "old", "--detach")
        assert (code, err) == (2, "error: a run 'old' already exists; give another --name\n")


def test_an_aborted_request_is_sent_again(vertex, command):
    vertex.fail("CreatePipelineJob", 409, "ABORTED", "The operation was aborted.")
    assert command("run", "digits", "--name", "one", "--detach")[0] == 0
    assert list(vertex.pipeline_jobs) == ["one"]


def test_a_run_that_is_deleted_while_it_is_waited_for_was_started(vertex, command):
    vertex.fail("GetPipelineJob", 404, "NOT_FOUND", "no such run", times=9)
    code, _, err = command("run", "digits", "--name", "one")
    assert (code, err.count("\n")) == (1, 1)
    assert err.startswith("error: the run 'one' was started, but somebody has deleted it since")


@pytest.mark.parametrize(("status", "name"), [(404, "NOT_FOUND"), (403, "PERMISSION_DENIED")])
def test_a_training_job_that_can_not_be_read_spoils_no_good_run(vertex, command, status, name):
    decision = {"verdict": "champion", "reason": "better"}
    vertex.outcomes = [Outcome(decision=decision)]
    vertex.fail("GetCustomJob", status, name, "no such job", times=9)
    code, out, _ = command("run", "digits", "--name", "one")
    assert code == 0
    assert "verdict   champion: better" in out
    code, out, _ = command("status", "one")
    assert (code, "Create TFRecords" in out) == (0, True)
    assert command("logs", "one")[0] == 0


def test_a_cancellation_whose_answer_was_lost_is_a_success(vertex, command):
    vertex.outcomes = [Outcome(polls=99)]
    assert command("run", "digits", "--name", "one", "--detach")[0] == 0
    vertex.drop("CancelPipelineJob", after=True)
    assert command("cancel", "one")[:2] == (0, "one is being cancelled\n")


def test_servers_faults_and_broken_connections_are_waited_out(vertex, command):
    vertex.outcomes = [Outcome(polls=3)]
    vertex.fail("CreatePipelineJob", 503, "UNAVAILABLE", times=2)
    vertex.fail("GetPipelineJob", 500, "INTERNAL", times=2)
    message = "Resource has been exhausted (e.g. check quota)."
    vertex.fail("GetPipelineJob", 429, "RESOURCE_EXHAUSTED", message, times=3)
    vertex.drop("GetPipelineJob", times=2)
    code, out, err = command("run", "digits", "--name", "one")
    assert (code, err) == (0, "")
    assert f"no answer: 429 {message}; trying again" in out
    assert len(vertex.sent("CreatePipelineJob")) == 3


@pytest.mark.parametrize(
    ("status", "name", "message", "code", "shown"),
    [
        (401, "UNAUTHENTICATED", "Request had invalid credentials", 1, "gcloud auth"),
        (403, "PERMISSION_DENIED", "Permission 'x' denied", 1, "pipelines doctor"),
        (404, "NOT_FOUND", "Project not found", 1, "404 Project not found"),
        (400, "INVALID_ARGUMENT", "Bad pipeline", 2, "Bad pipeline"),
        (412, "FAILED_PRECONDITION", "Not now", 1, "412 Not now"),
        (429, "RESOURCE_EXHAUSTED", QUOTA_EXCEEDED, 1, "nvidia_t4_gpus"),
    ],
)
def test_a_refusal_is_one_line_and_is_not_repeated(
    vertex, refused, status, name, message, code, shown
):
    vertex.fail("CreatePipelineJob", status, name, message, times=9)
    err = refused("run", "digits", "--name", "one", code=code)
    assert err.startswith("error: starting the run 'one': ")
    assert shown in err
    assert len(vertex.requests) == 1


def test_a_run_whose_start_is_never_answered_may_have_started(vertex, command, monkeypatch):
    monkeypatch.setattr(vertex_client, "_RETRY_SECONDS", 0.2)
    vertex.drop("CreatePipelineJob", times=99)
    code, _, err = command("run", "digits", "--name", "one")
    assert (code, err.count("\n")) == (1, 1)
    assert err.startswith("error: starting the run 'one': no connection (")
    assert err.endswith("; it may have started: python -m pipelines status one\n")


def test_a_promotion_without_the_list_of_versions_takes_nobodys_alias(vertex, command):
    for number, aliases in (("1", ["champion", "default", "champion-1"]), ("2", [])):
        version = types.Model(
            name=f"{LOCATION}/models/digits", version_id=number, version_aliases=aliases,
            display_name="digits",
        )  # fmt: skip
        vertex.put_version("digits", version)
    vertex.before(
        "MergeVersionAliases",
        lambda: vertex.fail("ListModelVersions", 404, "NOT_FOUND", "no model", times=3),
    )
    code, _, err = command("promote", "digits", "--version", "2")
    assert (code, err.count("\n")) == (2, 1)
    assert "digits@2 is no longer listed in " in err
    shown = command("promote", "digits")[1].splitlines()
    assert shown[1].split()[:4] == ["1", "champion,", "champion-1,", "default"]
    assert command("promote", "digits", "--version", "2")[0] == 0
    assert "champion-2" in command("promote", "digits")[1]
