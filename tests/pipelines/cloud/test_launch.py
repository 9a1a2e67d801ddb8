"""Starting a run: refusals, lost answers, retries, and the recipe's fallbacks."""

import datetime
from unittest import mock

import pytest
from requests import Session

from pipelines.runs import job_request
from tests.pipelines.cloud.conftest import QUOTA_EXCEEDED
from tests.pipelines.cloud.scripted_vertex import Outcome
from vertex.client import vertex_client
from vertex.facts.emulation import TOKEN_VARIABLE


@pytest.fixture
def fallbacks(own_recipe):
    """The recipe `mine` on a T4, with an L4 and then no accelerator to fall back on."""
    own_recipe("""
        source = "digits"
        accelerator_type = "NVIDIA_TESLA_T4"
        accelerator_count = 1
        [[fallbacks]]
        chief_machine_type = "g2-standard-8"
        accelerator_type = "NVIDIA_L4"
        [[fallbacks]]
        accelerator_type = ""
        accelerator_count = 0
    """)


def test_existing_run_of_the_name_is_not_taken_over(vertex, command, succeed):
    succeed("run digits --name old --detach")
    for faults in (0, 1):
        vertex.fail("CreatePipelineJob", 503, "UNAVAILABLE", times=faults)
        code, _, err = command("run digits --name old --detach")
        assert (code, err) == (2, "error: a run 'old' already exists; give another --name\n")


def test_unnamed_runs_of_one_second_have_different_names(vertex, succeed, monkeypatch):
    times = [datetime.datetime(2031, 1, 2, 3, 4, second) for second in (5, 5, 6)]
    clock = mock.Mock(**{"datetime.now.side_effect": times})
    monkeypatch.setattr(job_request, "datetime", clock)
    for _ in range(2):
        succeed("run digits --detach")
    names = [f"digits-20310102-03040{second}" for second in (5, 6)]
    assert list(vertex.pipeline_jobs) == names


def test_faults_of_servers_and_connections_are_retried(vertex, succeed):
    vertex.outcomes = [Outcome(polls=3)]
    vertex.fail("CreatePipelineJob", 409, "ABORTED", "The operation was aborted.")
    vertex.fail("CreatePipelineJob", 503, "UNAVAILABLE", times=2)
    vertex.drop("CreatePipelineJob", after=True)
    vertex.fail("GetPipelineJob", 500, "INTERNAL", times=2)
    message = "Resource has been exhausted (e.g. check quota)."
    vertex.fail("GetPipelineJob", 429, "RESOURCE_EXHAUSTED", message, times=3)
    vertex.drop("GetPipelineJob", times=2)
    assert f"no answer: 429 {message}; trying again" in succeed("run digits --name one")
    # The fourth request started the run, but its answer was lost.
    assert vertex.names()[:6] == ["CreatePipelineJob"] * 5 + ["GetPipelineJob"]
    assert list(vertex.pipeline_jobs) == ["one"]


@pytest.mark.parametrize(
    ("status", "name", "message", "code", "shown"),
    [
        (401, "UNAUTHENTICATED", "Request had invalid credentials", 1, TOKEN_VARIABLE),
        (403, "PERMISSION_DENIED", "Permission 'x' denied", 1, "pipelines doctor"),
        (404, "NOT_FOUND", "Project not found", 1, "404 Project not found"),
        (400, "INVALID_ARGUMENT", "Bad pipeline", 2, "Bad pipeline"),
        (412, "FAILED_PRECONDITION", "Not now", 1, "412 Not now"),
        (429, "RESOURCE_EXHAUSTED", QUOTA_EXCEEDED, 1, "nvidia_t4_gpus"),
    ],
)
def test_refusal_is_one_line_without_a_retry(vertex, refused, status, name, message, code, shown):
    vertex.fail("CreatePipelineJob", status, name, message, times=9)
    err = refused("run digits --name one", code=code)
    assert err.startswith("error: starting the run 'one': ")
    assert shown in err
    assert len(vertex.requests) == 1


def test_start_without_any_answer_may_have_succeeded(vertex, command, monkeypatch):
    monkeypatch.setattr(vertex_client, "_RETRY_SECONDS", 0.2)
    vertex.drop("CreatePipelineJob", times=99)
    code, _, err = command("run digits --name one")
    assert (code, err.count("\n")) == (1, 1)
    assert err.startswith("error: starting the run 'one': no connection (")
    assert err.endswith("; it may have started: python -m pipelines status one\n")


def test_interrupted_start_names_the_run(vertex, command, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    vertex.before("CreatePipelineJob", lambda: monkeypatch.setattr(Session, "request", interrupt))
    vertex.drop("CreatePipelineJob", after=True)
    code, out, _ = command("run digits --name one")
    assert code == 130
    assert out.endswith("The run may have started: python -m pipelines status one\n")
    assert list(vertex.pipeline_jobs) == ["one"]


def test_lost_sight_of_a_run_says_that_it_may_continue(vertex, command):
    vertex.outcomes = [Outcome(polls=99)]
    lost = "GetPipelineJob", 401, "UNAUTHENTICATED", "expired", 99
    vertex.before("AddContextChildren", lambda: vertex.fail(*lost))
    code, _, err = command("run digits --name one")
    assert code == 1
    assert err.endswith("; the run may continue: python -m pipelines status one\n")


def test_run_deleted_while_waiting_is_one_line(vertex, command):
    vertex.fail("GetPipelineJob", 404, "NOT_FOUND", "no such run", times=9)
    code, _, err = command("run digits --name one")
    assert (code, err.count("\n")) == (1, 1)
    assert err.startswith("error: the run 'one' was started, but has been deleted since")


@pytest.mark.parametrize(("status", "name"), [(404, "NOT_FOUND"), (403, "PERMISSION_DENIED")])
def test_unreadable_training_job_does_not_fail_the_run(vertex, command, status, name):
    vertex.outcomes = [Outcome(decision={"verdict": "champion", "reason": "better"})]
    vertex.fail("GetCustomJob", status, name, "no such job", times=9)
    code, out, _ = command("run digits --name one")
    assert (code, "verdict   champion: better" in out) == (0, True)
    code, out, _ = command("status one")
    assert (code, "Create TFRecords" in out) == (0, True)
    assert command("logs one")[0] == 0


def test_lost_answer_to_a_cancellation_is_a_success(vertex, command, succeed):
    vertex.outcomes = [Outcome(polls=99)]
    succeed("run digits --name one --detach")
    vertex.drop("CancelPipelineJob", after=True)
    assert command("cancel one")[:2] == (0, "one is being cancelled\n")


@pytest.mark.usefixtures("fallbacks")
@pytest.mark.parametrize(
    "quota",
    [
        QUOTA_EXCEEDED,
        "The following quotas are exceeded: CustomModelTrainingT4GPUsPerProjectPerRegion",
    ],
)
def test_lack_of_machines_restarts_the_run_on_fallbacks(vertex, command, quota):
    stock_out = "Resources are insufficient in region: us-central1. Please try a different region."
    vertex.fail("CreatePipelineJob", 429, "RESOURCE_EXHAUSTED", quota)
    vertex.outcomes = [Outcome("FAILED", stock_out), Outcome()]
    code, out, _ = command("run mine --name one --no-cache")
    assert code == 0, out
    # The first was refused before it was read.
    second, third = vertex.sent_json("CreatePipelineJob")[1:]
    assert [second["pipelineJobId"], third["pipelineJobId"]] == ["one-2", "one-3"]
    values = [one["pipelineJob"]["runtimeConfig"]["parameterValues"] for one in (second, third)]
    assert [one["accelerator_type"] for one in values] == ["NVIDIA_L4", ""]
    # The third goes on with the training of the second.
    tasks = vertex.pipeline_jobs["one-2"].job_detail.task_details
    (planned,) = [one for one in tasks if one.task_name == "plan-training"]
    directory = planned.outputs["training"].artifacts[0].uri
    assert [one.get("resume_from", "") for one in values] == ["", directory]
    # --no-cache applies to the fallbacks, too.
    tasks = third["pipelineJob"]["pipelineSpec"]["root"]["dag"]["tasks"]
    assert not tasks["create-tfrecords"]["cachingOptions"].get("enableCache")
    assert "fallbacks" in out


@pytest.mark.usefixtures("fallbacks")
def test_fallbacks_are_tried_only_for_lack_of_machines(vertex, command):
    for launcher, text in (
        ("1002", "Traceback (most recent call last):"),
        ("1002", f"google.api_core.exceptions.ResourceExhausted: 429 {QUOTA_EXCEEDED}"),
        ("1004", "google.api_core.exceptions.InvalidArgument: 400 Unknown image"),
    ):
        resource = {"type": "ml_job", "labels": {"job_id": launcher}}
        vertex.log_entries.append({"resource": resource, "textPayload": text})
    failure = "The replica workerpool0-0 exited with status 1."
    vertex.outcomes = [Outcome("FAILED", task_error=failure, launched=False)] * 2
    vertex.outcomes.append(Outcome("FAILED", failure))
    code, out, _ = command("run mine --name one")
    assert code == 1
    assert list(vertex.pipeline_jobs) == ["one", "one-2"]
    assert out.count("trying the next of the recipe's fallbacks") == 1
    assert "400 Unknown image" in out
    # Another failure, of the training job itself, is not repeated either.
    assert command("run mine --name other")[0] == 1
    assert list(vertex.pipeline_jobs)[2:] == ["other"]
