"""Runs on Vertex AI: listed beside local ones, put into experiments, resumed."""

import pytest

from pipelines import api
from pipelines.runs.experiments import experiment_of
from tests.pipelines.cloud.scripted_vertex import Outcome
from tests.pipelines.test_runs_command import leave
from vertex.facts import regions

FIGURES = {"accuracy": 0.95, "accuracy_low": 0.93, "accuracy_high": 0.97}
DECISION = {"verdict": "accepted", "reason": "accuracy 0.9500"}


def sent_jobs(vertex):
    return [request["pipelineJob"] for request in vertex.sent_json("CreatePipelineJob")]


def test_local_and_cloud_runs_are_listed_and_compared(vertex, succeed):
    leave("digits-1", 1)
    training = {"validation_accuracy": 0.9, "validation_loss": 0.4, "kept_epoch": 3}
    vertex.outcomes = [Outcome(metrics=FIGURES, training=training, decision=DECISION)]
    succeed("run digits --name there --set epochs=7")
    first, details, second, _, link = succeed("runs").splitlines()
    assert "/vertex-ai/pipelines/runs?project=" in link
    assert "/experiments/digits/runs?project=" in succeed("runs --recipe digits")
    figures = "validation accuracy 0.9000, test 0.9500"
    assert first.startswith(f"there     SUCCEEDED  {figures}  accepted")
    assert details.startswith("    digits on Vertex AI, 20")
    assert "epochs=7 (was 12)" in details
    assert second.startswith("digits-1")
    out = succeed("runs digits-1 there")
    assert "accuracy             1 (0.95 to 1.05)  0.95 (0.93 to 0.97)" in out
    assert "validation accuracy  -                 0.9 " in out
    assert api.results("there").validation == {"accuracy": 0.9, "loss": 0.4, "epoch": 3}
    assert "The difference can't be tested: there kept no predictions of the test records." in out


def test_changed_parameters_are_sorted(vertex, succeed):
    succeed("run digits --name one --detach")
    succeed("run digits --detach --set seed=1 --set batch_size=8 --set max_cost=3 --set epochs=2")
    assert "; batch_size=8 (was 64), epochs=2 (was 12), max_cost=3 (was 0), 1 more" in succeed(
        "runs"
    )


def test_run_deleted_while_runs_are_listed_is_left_out(vertex, succeed, refused):
    for name in ("one", "two"):
        succeed(f"run digits --name {name} --detach")
    vertex.fail("GetPipelineJob", 404, "NOT_FOUND", "no such run")
    assert succeed("runs").count(" on Vertex AI, ") == 1
    # Another refusal leaves no run out.
    vertex.fail("GetPipelineJob", 400, "FAILED_PRECONDITION", "no answer today")
    assert "no answer today" in refused("runs")


def test_local_runs_are_listed_without_the_cloud(succeed, monkeypatch):
    leave("digits-1", 1)
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "my-project")
    monkeypatch.setenv("VERTEX_AI_ENDPOINT", "http://127.0.0.1:1")
    first, _, last = succeed("runs").splitlines()
    assert first.startswith("digits-1  SUCCEEDED")
    assert last.startswith("runs on Vertex AI are not listed: no answer from")


@pytest.mark.parametrize(
    ("status", "name"), [(401, "UNAUTHENTICATED"), (403, "PERMISSION_DENIED"), (404, "NOT_FOUND")]
)
def test_refusal_to_list_runs_is_an_error_after_the_local_runs(vertex, command, status, name):
    leave("digits-1", 1)
    for line in ("runs", "status"):
        vertex.fail("ListPipelineJobs", status, name, "no")
        code, out, err = command(line)
        assert (code, out.startswith("digits-1  SUCCEEDED"), err.count("\n")) == (1, True, 1)
        assert err.startswith(
            f"error: runs on Vertex AI are not listed: listing the runs: {status}"
        )


def test_run_whose_display_name_was_edited_is_one_of_its_recipe(vertex, command, succeed):
    vertex.outcomes = [Outcome("FAILED"), Outcome()]
    command("run digits --name one")
    vertex.pipeline_jobs["one"].display_name = "the good one"
    assert "\n    digits on Vertex AI" in succeed("runs")
    assert "/experiments/digits/runs" in succeed("run digits one --resume --name again")


def test_run_is_added_to_its_recipes_experiment(vertex, succeed):
    out = succeed("run chicago_taxi --name one --set source=csv:gs://b/t.csv")
    page = "/vertex-ai/experiments/locations/us-central1/experiments/chicago-taxi/runs?project="
    assert page in out
    assert vertex.experiments == {"chicago-taxi": ["one"]}
    (request,) = vertex.sent("CreateContext")
    assert request.context.schema_title == "system.Experiment"
    succeed("run chicago_taxi --detach --name two --set source=bigquery:my-project.taxi.trips")
    assert vertex.experiments == {"chicago-taxi": ["one", "two"]}


def test_experiment_names_have_four_characters():
    assert [experiment_of(recipe) for recipe in ("mnist", "abc")] == ["mnist", "abc-runs"]


def test_run_succeeds_without_an_experiment(vertex, succeed):
    out = succeed("run digits --name digits")
    assert "to an experiment: 'digits' is already the name of a system.PipelineRun" in out
    assert vertex.experiments == {}
    vertex.fail("CreateContext", 403, "PERMISSION_DENIED", "no")
    out = succeed("run digits --name one")
    assert "the run was not added to an experiment: adding 'one' to the experiment 'digits':" in out


def test_region_without_experiments_gets_none(vertex, succeed, monkeypatch):
    monkeypatch.setitem(regions.CONTENT, "without_experiments", ["us-central1"])
    out = succeed("run digits --name one")
    assert "warning   the run was not added to an experiment: us-central1 has no Experiments" in out
    assert "/experiments/" not in out + succeed("runs --recipe digits")
    assert not vertex.sent("CreateContext")


@pytest.mark.parametrize(
    ("outcome", "checkpoint"),
    [
        (Outcome("FAILED"), "gs://bucket/runs/123456/one/plan-training_8/training"),
        (Outcome("CANCELLED"), "gs://bucket/runs/123456/one/plan-training_8/training"),
        (Outcome("FAILED", launched=False), None),
    ],
)
def test_resumed_run_repeats_the_request(vertex, command, succeed, outcome, checkpoint):
    vertex.outcomes = [outcome, Outcome()]
    command("run digits --name one --set epochs=7")
    assert succeed("run digits --resume --name again").startswith("run       again\n")
    first, second = sent_jobs(vertex)
    assert second["pipelineSpec"] == first["pipelineSpec"]
    values = second["runtimeConfig"]["parameterValues"]
    assert values.pop("resume_from", None) == checkpoint
    assert values["labels"].pop("run") == "again"
    old = first["runtimeConfig"]["parameterValues"]
    assert old["labels"].pop("run") == "one"
    assert values == old
    assert second["runtimeConfig"]["gcsOutputDirectory"] == "gs://bucket/runs"
    assert vertex.experiments == {"digits": ["one", "again"]}


def test_run_being_cancelled_is_resumed_at_its_end(vertex, succeed):
    vertex.outcomes, vertex.polls_of_a_cancellation = [Outcome(polls=99), Outcome()], 3
    succeed("run digits --name one --detach")
    succeed("cancel one")
    assert "CANCELLING" in succeed("run digits one --resume --name again")
    assert "resume_from" in sent_jobs(vertex)[1]["runtimeConfig"]["parameterValues"]


def test_succeeded_and_running_runs_are_not_resumed(vertex, succeed, refused):
    vertex.outcomes = [Outcome(), Outcome(polls=99)]
    succeed("run digits --name one")
    succeed("run digits --name two --detach")
    for arguments, message in {
        "digits one": "the run 'one' has succeeded; there is nothing to resume",
        "digits": "the run 'two' is RUNNING; wait for its end, or cancel it first",
        "mnist one": "'one' is a run of 'digits', not of 'mnist'",
        "flowers": "no run 'flowers' in my-project",
    }.items():
        assert message in refused(f"run {arguments} --resume")
    assert len(sent_jobs(vertex)) == 2


def test_escape_sequences_of_resources_are_not_printed(vertex, command, succeed, declared):
    succeed("run digits --name there")
    succeed("schedule apply digits")
    job = vertex.pipeline_jobs["there"]
    job.display_name = job.labels["recipe"] = "a\x1b[2J"
    job.job_detail.task_details[0].task_name = "a\x1b[2J"
    (schedule,) = vertex.schedules.values()
    schedule.cron = "a\x1b[2J"
    for line in ("runs", "status there", "schedule list", "clean --older-than 0h --dry-run"):
        _, out, err = command(line)
        assert "\x1b" not in out + err
        assert r"a\x1b[2J" in out, line
