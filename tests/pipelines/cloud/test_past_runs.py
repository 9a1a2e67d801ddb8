"""Runs on Vertex AI beside those of this machine: found, compared, resumed."""

import pytest
from google.protobuf import json_format

from pipelines.cloud.experiments import experiment_of
from tests.pipelines.cloud.emulator import Outcome
from tests.pipelines.test_runs_command import leave

FIGURES = {"accuracy": 0.95, "accuracy_low": 0.93, "accuracy_high": 0.97}
DECISION = {"verdict": "accepted", "reason": "accuracy 0.9500"}


def sent(vertex):
    """The PipelineJobs that were created, as JSON."""
    return [
        json_format.MessageToDict(request.pipeline_job._pb)
        for request in vertex.sent("CreatePipelineJob")
    ]


def test_runs_here_and_there_are_one_list(vertex, command):
    leave("digits-1", 1)
    vertex.outcomes = [Outcome(metrics=FIGURES, decision=DECISION)]
    assert command("run", "digits", "--name", "there", "--set", "epochs=7")[0] == 0
    code, out, err = command("runs")
    assert (code, err) == (0, "")
    first, details, second = out.splitlines()[:3]
    assert first.split()[:5] == ["there", "SUCCEEDED", "accuracy", "0.9500", "accepted"]
    assert details.startswith("    digits on Vertex AI, 20")
    assert "epochs=7 (was 12)" in details
    assert second.startswith("digits-1")
    out = command("runs", "digits-1", "there")[1]
    assert "accuracy  1 (0.95 to 1.05)  0.95 (0.93 to 0.97)" in out
    assert "No test of the difference: there kept no predictions of the test records." in out


def test_a_run_is_put_into_its_recipes_experiment(vertex, command):
    out = command("run", "chicago_taxi", "--name", "one", "--set", "source=csv:gs://b/t.csv")[1]
    page = "/vertex-ai/experiments/locations/us-central1/experiments/chicago-taxi/runs?project="
    assert page in out
    assert vertex.experiments == {"chicago-taxi": ["one"]}
    (request,) = vertex.sent("CreateContext")
    assert request.context.schema_title == "system.Experiment"
    taxi = ["run", "chicago_taxi", "--detach", "--set", "source=csv:gs://b/t.csv"]
    assert command(*taxi, "--name", "two")[0] == 0
    assert vertex.experiments == {"chicago-taxi": ["one", "two"]}


def test_an_experiments_name_is_long_enough_for_a_context():
    assert [experiment_of(recipe) for recipe in ("mnist", "abc")] == ["mnist", "abc-runs"]


def test_a_run_of_the_experiments_name_does_not_take_its_place(vertex, command):
    out = command("run", "digits", "--name", "digits")[1]
    assert "no experiment: 'digits' is already the name of a system.PipelineRun" in out
    assert vertex.experiments == {}


def test_an_experiment_that_is_refused_does_not_end_the_run(vertex, command):
    vertex.fail("CreateContext", 403, "PERMISSION_DENIED", "no")
    code, out, _ = command("run", "digits", "--name", "one")
    assert code == 0
    assert "warning   the run is in no experiment: adding 'one' to the experiment 'digits':" in out


def test_a_cloud_that_is_out_of_reach_is_one_line_beside_the_list(command, monkeypatch):
    leave("digits-1", 1)
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "my-project")
    monkeypatch.setenv("VERTEX_AI_ENDPOINT", "http://127.0.0.1:1")
    code, out, err = command("runs")
    assert (code, err) == (0, "")
    assert out.startswith("digits-1  SUCCEEDED")
    assert out.splitlines()[2].startswith("runs on Vertex AI are not listed: no answer from")
    assert len(out.splitlines()) == 3


@pytest.mark.parametrize("state", ["FAILED", "CANCELLED"])
def test_a_resumed_run_is_the_same_with_the_checkpoints_directory(vertex, command, state):
    vertex.outcomes = [Outcome(state), Outcome()]
    command("run", "digits", "--name", "one", "--set", "epochs=7")
    code, out, err = command("run", "digits", "--resume", "--name", "again")
    assert (code, err) == (0, "")
    assert out.startswith("run       again\n")
    first, second = sent(vertex)
    assert second["pipelineSpec"] == first["pipelineSpec"]
    values = second["runtimeConfig"]["parameterValues"]
    assert values.pop("resume_from") == "gs://bucket/runs/123456/one/plan-training_8/training"
    assert values["labels"].pop("run") == "again"
    old = first["runtimeConfig"]["parameterValues"]
    assert old["labels"].pop("run") == "one"
    assert values == old
    assert second["runtimeConfig"]["gcsOutputDirectory"] == "gs://bucket/runs"
    assert vertex.experiments == {"digits": ["one", "again"]}


def test_a_run_with_no_training_job_yet_is_resumed_from_the_start(vertex, command):
    vertex.outcomes = [Outcome("FAILED", launched=False), Outcome()]
    command("run", "digits", "--name", "one")
    assert command("run", "digits", "one", "--resume", "--name", "again")[0] == 0
    assert "resume_from" not in sent(vertex)[1]["runtimeConfig"]["parameterValues"]


def test_a_run_that_is_being_cancelled_is_resumed_at_its_end(vertex, command):
    vertex.outcomes, vertex.polls_of_a_cancellation = [Outcome(polls=99), Outcome()], 3
    command("run", "digits", "--name", "one", "--detach")
    command("cancel", "one")
    code, out, _ = command("run", "digits", "one", "--resume", "--name", "again")
    assert code == 0 and "CANCELLING" in out
    assert "resume_from" in sent(vertex)[1]["runtimeConfig"]["parameterValues"]


def test_only_a_run_that_has_ended_badly_is_resumed(vertex, command, refused):
    vertex.outcomes = [Outcome(), Outcome(polls=99)]
    command("run", "digits", "--name", "one")
    command("run", "digits", "--name", "two", "--detach")
    wrong = {
        "the run 'one' has succeeded; there is nothing to resume": ["digits", "one"],
        "the run 'two' is RUNNING; wait for its end, or cancel it first": ["digits"],
        "'one' is a run of 'digits', not of 'mnist'": ["mnist", "one"],
        "no run 'flowers' in my-project": ["flowers"],
    }
    for message, arguments in wrong.items():
        assert message in refused("run", *arguments, "--resume")
    assert len(sent(vertex)) == 2


def test_stored_values_do_not_control_the_terminal(vertex, command, declared):
    assert command("run", "digits", "--name", "there")[0] == 0
    assert command("schedule", "apply", "digits")[0] == 0
    job = vertex.pipeline_jobs["there"]
    job.display_name = job.labels["recipe"] = "a\x1b[2J"
    job.job_detail.task_details[0].task_name = "a\x1b[2J"
    (schedule,) = vertex.schedules.values()
    schedule.cron = "a\x1b[2J"
    for words in (
        ["runs"],
        ["status", "there"],
        ["schedule", "list"],
        ["clean", "--older-than", "0h", "--dry-run"],
    ):
        _, out, err = command(*words)
        assert "\x1b" not in out + err
        assert r"a\x1b[2J" in out, words
