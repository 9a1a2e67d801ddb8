"""Applying a schedule ends with one as declared, whatever was there and whoever else applies."""

import pytest
from google.cloud.aiplatform_v1 import types

from tests.pipelines.cloud.conftest import RETRAINING


@pytest.fixture
def apply(vertex, command):
    """Applies the digits recipe; returns what was shown and the one schedule that there is."""

    def run():
        code, out, err = command("schedule", "apply", "digits")
        assert (code, err) == (0, "")
        (schedule,) = vertex.schedules.values()
        return out, schedule

    return run


def job_of(schedule):
    return schedule.create_pipeline_job_request.pipeline_job


@pytest.mark.parametrize(
    ("old", "new", "mask"),
    [
        ("0 3 * * 1", "0 4 * * 1", ["cron"]),
        ("Europe/Berlin", "UTC", ["cron"]),
        (
            "max_concurrent_runs = 2",
            "max_concurrent_runs = 1",
            ["max_concurrent_run_count", "max_concurrent_active_run_count"],
        ),
        ("epochs = 20", "epochs = 30", ["create_pipeline_job_request"]),
        ("learning_rate = ", "learning_rate = 1", ["create_pipeline_job_request"]),
    ],
)  # fmt: skip
def test_a_change_is_one_update_of_that_alone(vertex, apply, declared, old, new, mask):
    apply()
    declared(old, new)
    out, _ = apply()
    assert out.startswith(f"updated ({', '.join(mask)})")
    (request,) = vertex.sent("UpdateSchedule")
    assert list(request.update_mask.paths) == mask
    assert apply()[0].startswith("unchanged")
    assert vertex.names().count("CreateSchedule") == 1


@pytest.mark.parametrize(
    ("line", "later", "field"),
    [
        ("start = 2031-01-01T00:00:00Z\n", "", "start_time"),
        ("start = 2031-01-01T00:00:00Z\n", "start = 2031-02-01T00:00:00Z\n", "start_time"),
        ("end = 2032-01-01T00:00:00+01:00\n", "", "end_time"),
        ("max_runs = 7\n", "", "max_run_count"),
    ],
)
def test_what_no_update_changes_goes_with_a_new_schedule(
    vertex, apply, declared, line, later, field
):
    if line not in RETRAINING:
        declared("[retraining]\n", "[retraining]\n" + line)
    before = apply()[1].name
    declared(line, later)
    out, schedule = apply()
    assert out.startswith(f"recreated ({field}): {schedule.name}\n")
    assert "a new one, which counts runs from 0, replaces it" in out
    assert schedule.name != before
    assert vertex.sent("UpdateSchedule") == []
    assert field == "start_time" or not getattr(schedule, field)
    assert not later or schedule.start_time.month == 2
    assert apply()[0].startswith("unchanged")


def test_a_paused_schedule_stays_paused_when_it_is_recreated(vertex, command, apply, declared):
    apply()
    assert command("schedule", "pause", "digits")[0] == 0
    declared("end = 2032-01-01T00:00:00+01:00\n", "")
    assert apply()[1].state.name == "PAUSED"


def test_where_a_request_can_not_be_updated_the_schedule_is_recreated(vertex, apply, declared):
    vertex.fail("UpdateSchedule", 400, "INVALID_ARGUMENT", "it can't be updated")
    before = apply()[1].name
    declared("epochs = 20", "epochs = 30")
    out, schedule = apply()
    assert out.startswith("recreated (create_pipeline_job_request)")
    assert schedule.name != before
    assert job_of(schedule).runtime_config.parameter_values["epochs"] == 30


@pytest.mark.parametrize(
    "edit",
    [
        lambda job: job.runtime_config.parameter_values.update(epochs=99),
        lambda job: setattr(job, "service_account", "other@my-project.iam.gserviceaccount.com"),
        lambda job: setattr(job.runtime_config, "gcs_output_directory", "gs://other"),
        lambda job: job.labels.update(team="other"),
    ],
)
def test_what_was_edited_elsewhere_is_brought_back(vertex, apply, declared, edit):
    schedule = apply()[1]
    edit(job_of(schedule))
    out, _ = apply()
    assert out.startswith("updated (create_pipeline_job_request)")
    assert apply()[0].startswith("unchanged")


def test_what_the_service_fills_in_by_itself_is_no_difference(vertex, apply, declared):
    declared("start = 2031-01-01T00:00:00Z\n", "")
    job = job_of(apply()[1])
    job.service_account = "123456-compute@developer.gserviceaccount.com"
    job.labels["vertex-ai-pipelines-run-billing-id"] = "1"
    job.runtime_config.failure_policy = types.PipelineFailurePolicy(1)
    assert apply()[0].startswith("unchanged")


def test_of_two_who_apply_at_once_one_schedule_is_left(vertex, command, apply, declared):
    other = []
    vertex.before("CreateSchedule", lambda: other.append(command("schedule", "apply", "digits")))
    out, schedule = apply()
    assert other[0][0] == 0
    assert f": {schedule.name}\n" in other[0][1] and f": {schedule.name}\n" in out
    assert vertex.names().count("CreateSchedule") == 2
    assert apply()[0].startswith("unchanged")


def test_each_command_handles_all_schedules_of_a_recipe(vertex, command, apply, declared):
    def double():
        twin = types.Schedule(apply()[1])
        twin.name += "9"
        vertex.schedules[twin.name.rpartition("/")[2]] = twin

    double()
    assert apply()[0].startswith("unchanged")
    double()
    for action, state in (("pause", "PAUSED"), ("resume", "ACTIVE")):
        assert command("schedule", action, "digits")[0] == 0
        assert {one.state.name for one in vertex.schedules.values()} == {state}
    assert command("schedule", "delete", "digits", "--yes")[0] == 0
    assert vertex.schedules == {}


@pytest.mark.parametrize("action", ["pause", "resume", "delete"])
def test_a_deed_whose_answer_was_lost_is_a_success(vertex, command, apply, declared, action):
    apply()
    if action == "resume":
        assert command("schedule", "pause", "digits")[0] == 0
    vertex.drop(f"{action.title()}Schedule", after=True)
    confirmed = ["--yes"] if action == "delete" else []
    code, _, err = command("schedule", action, "digits", *confirmed)
    assert (code, "error" in err) == (0, False), err
    assert "no answer: " in err
    states = [one.state.name for one in vertex.schedules.values()]
    assert states == {"pause": ["PAUSED"], "resume": ["ACTIVE"], "delete": []}[action]
