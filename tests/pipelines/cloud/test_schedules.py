"""python -m pipelines schedule applies, pauses, resumes and deletes a recipe's schedule."""

import io

import pytest
from google.cloud.aiplatform_v1 import types

from pipelines import version
from tests.pipelines.cloud.conftest import RETRAINING

KEY = "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"


def changes(vertex):
    """Return the names of the requests that change something."""
    return [name for name in vertex.names() if not name.startswith(("List", "Get"))]


def created(vertex):
    (request,) = vertex.sent_json("CreateSchedule")
    return request["schedule"]


def test_applying_twice_creates_one_schedule(vertex, succeed, declared, monkeypatch):
    monkeypatch.setattr(version, "git_commit", lambda: "abc")
    out = succeed("schedule apply digits")
    assert "pinned to sha256:" in out
    assert out.startswith("created: projects/123456/locations/us-central1/schedules/")
    (request,) = vertex.sent("CreateSchedule")
    assert request.parent == "projects/my-project/locations/us-central1"
    sent = created(vertex)
    assert sent["cron"] == "TZ=Europe/Berlin 0 3 * * 1"
    assert sent["startTime"] == "2031-01-01T00:00:00Z"
    assert sent["endTime"] == "2031-12-31T23:00:00Z"
    # The first limits runs that start at once, the second those that go on.
    assert (sent["maxConcurrentRunCount"], sent["maxConcurrentActiveRunCount"]) == ("2", "2")
    job = sent["createPipelineJobRequest"]["pipelineJob"]
    values = job["runtimeConfig"]["parameterValues"]
    assert (values["epochs"], values["max_cost"]) == (20, 5)
    assert values["skip_if_unchanged"] is True
    assert "run" not in values["labels"]
    assert job["runtimeConfig"]["gcsOutputDirectory"] == "gs://bucket/runs"
    assert job["labels"]["recipe"] == "digits"
    # A new commit with the same template is no change.
    monkeypatch.setattr(version, "git_commit", lambda: "def")
    assert succeed("schedule apply digits").startswith("unchanged:")
    assert changes(vertex) == ["CreateSchedule"]


def test_schedule_is_paused_resumed_and_deleted(vertex, succeed, refused, declared, monkeypatch):
    succeed("schedule apply digits")
    succeed("schedule pause digits")
    succeed("schedule pause digits")
    (paused,) = succeed("schedule list").splitlines()[1:]
    assert paused.split()[:2] == ["digits", "PAUSED"]
    assert " UTC" not in paused
    succeed("schedule resume digits")
    assert "2031-01-06 02:00 UTC" in succeed("schedule list")
    succeed("schedule resume digits")
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert succeed("schedule delete digits").endswith("nothing was deleted\n")
    assert len(vertex.schedules) == 1
    succeed("schedule delete digits --yes")
    assert vertex.schedules == {}
    actions = ("Create", "Pause", "Resume", "Delete")
    assert changes(vertex) == [f"{action}Schedule" for action in actions]
    err = refused("schedule delete digits --yes")
    assert err.startswith("error: recipe 'digits' has no schedule in projects/my-project")


def test_search_has_a_schedule_of_its_own(vertex, succeed, refused, declared):
    search = """[search]
parameters.batch_size = [32, 64]
schedule = { cron = "0 3 1 * *", parameters = { epochs = 5 } }
[retraining]"""
    declared("[retraining]", search)
    succeed("schedule apply digits")
    succeed("schedule apply digits-search")
    weekly, monthly = vertex.schedules.values()
    assert (weekly.cron, monthly.cron) == ("TZ=Europe/Berlin 0 3 * * 1", "TZ=UTC 0 3 1 * *")
    job = monthly.create_pipeline_job_request.pipeline_job
    assert "comp-plan-search" in job.pipeline_spec["components"]
    assert "digits-search" in succeed("schedule list")
    declared("epochs = 5", "epochs = 0")
    assert "[search.schedule] parameters: epochs=0 is out" in refused("schedule apply digits")


def test_schedule_of_another_tool_is_left_alone(vertex, succeed, refused, declared):
    succeed("schedule apply digits")
    (schedule,) = vertex.schedules.values()
    del schedule.create_pipeline_job_request.pipeline_job.labels["made-by"]
    refused("schedule delete digits --yes")
    assert len(succeed("schedule list").splitlines()) == 1
    assert list(vertex.schedules.values()) == [schedule]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"0 3 * * 1"', '"0 3 * *"', "cron='0 3 * *' is not five fields"),
        ("Europe/Berlin", "Europe/Berln", "did you mean 'Europe/Berlin'?"),
        ("2032-01-01", "2030-01-01", "is not after start="),
        ("epochs = 20", "epochs = 0", "it must be at least 1"),
        ("max_concurrent_runs = 2", "max_concurrent_runs = 0", "it must be at least 1"),
        ("cron", "crom", "did you mean 'cron'?"),
    ],
)
def test_wrong_declaration_sends_nothing(vertex, refused, declared, old, new, message):
    declared(old, new)
    assert message in refused("schedule apply digits")
    assert vertex.requests == []


def test_schedule_that_has_ended_is_not_created(vertex, refused, declared):
    declared("start = 2031-01-01T00:00:00Z", "")
    declared("2032-01-01T00:00:00+01:00", "2026-01-01T00:00:00Z")
    assert "has passed, so no run would start" in refused("schedule apply digits")
    assert vertex.requests == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("plain", "declares no schedule; add [retraining]"),
        ("digits-batch", "declares no [batch.schedule] with cron"),
        ("digits --region us-centrall1", "is not a region of Vertex AI (locations, 2026-08); did"),
    ],
)
def test_unschedulable_recipe_uploads_nothing(
    vertex, refused, declared, registry, arguments, message
):
    assert message in refused(f"schedule apply {arguments}")
    assert vertex.requests == []
    assert not registry.packages


START, END = "start = 2031-01-01T00:00:00Z\n", "end = 2032-01-01T00:00:00+01:00\n"


@pytest.fixture
def apply(vertex, succeed, declared):
    """Apply the digits recipe; return what was shown and the only schedule."""

    def run():
        out = succeed("schedule apply digits")
        (schedule,) = vertex.schedules.values()
        return out, schedule

    return run


def job_of(schedule):
    return schedule.create_pipeline_job_request.pipeline_job


@pytest.mark.parametrize(
    ("old", "new", "fields"),
    [
        ("0 3 * * 1", "0 4 * * 1", "cron"),
        pytest.param("Europe/Berlin", "UTC", "cron", marks=pytest.mark.slow),
        ("_runs = 2", "_runs = 1", "max_concurrent_run_count, max_concurrent_active_run_count"),
        pytest.param(
            "epochs = 20", "epochs = 30", "create_pipeline_job_request", marks=pytest.mark.slow
        ),
        ("learning_rate = ", "learning_rate = 1", "create_pipeline_job_request"),
    ],
)
def test_change_updates_only_its_fields(vertex, apply, declared, old, new, fields):
    apply()
    declared(old, new)
    assert apply()[0].startswith(f"updated ({fields})")
    (request,) = vertex.sent("UpdateSchedule")
    assert ", ".join(request.update_mask.paths) == fields
    assert apply()[0].startswith("unchanged")
    assert vertex.names().count("CreateSchedule") == 1


@pytest.mark.parametrize(
    ("line", "later", "field"),
    [
        pytest.param(START, "", "start_time", marks=pytest.mark.slow),
        (START, START.replace("2031-01", "2031-02"), "start_time"),
        (END, "", "end_time"),
        pytest.param("max_runs = 7\n", "", "max_run_count", marks=pytest.mark.slow),
    ],
)
def test_other_change_recreates_the_schedule(vertex, succeed, apply, declared, line, later, field):
    if line not in RETRAINING:
        declared("[retraining]\n", "[retraining]\n" + line)
    before = apply()[1].name
    succeed("schedule pause digits")
    declared(line, later)
    out, schedule = apply()
    assert out.startswith(f"recreated ({field}): {schedule.name}\n")
    assert "a new one, which counts runs from 0, replaces it" in out
    assert (schedule.name != before, schedule.state.name) == (True, "PAUSED")
    assert vertex.sent("UpdateSchedule") == []
    assert field == "start_time" or not getattr(schedule, field)
    assert not later or schedule.start_time.month == 2
    assert apply()[0].startswith("unchanged")


def test_refused_update_recreates_the_schedule(vertex, apply, declared):
    vertex.fail("UpdateSchedule", 400, "INVALID_ARGUMENT", "it can't be updated")
    before = apply()[1].name
    declared("epochs = 20", "epochs = 30")
    out, schedule = apply()
    assert out.startswith("recreated (create_pipeline_job_request)")
    assert (schedule.name != before, schedule.state.name) == (True, "ACTIVE")
    assert job_of(schedule).runtime_config.parameter_values["epochs"] == 30


@pytest.mark.parametrize(
    "edit",
    [
        lambda job: job.runtime_config.parameter_values.update(epochs=99),
        lambda job: setattr(job, "service_account", "other@my-project.iam.gserviceaccount.com"),
        lambda job: setattr(job.runtime_config, "gcs_output_directory", "gs://other"),
        lambda job: job.labels.update(team="other"),
    ],
    ids=["parameter", "service account", "folder", "label"],
)
def test_edit_in_the_console_is_undone(apply, edit, monkeypatch):
    monkeypatch.setenv("VERTEX_SERVICE_ACCOUNT", "ours@my-project.iam.gserviceaccount.com")
    monkeypatch.setenv("VERTEX_LABELS", "team=ours")
    edit(job_of(apply()[1]))
    assert apply()[0].startswith("updated (create_pipeline_job_request)")
    assert apply()[0].startswith("unchanged")


@pytest.mark.parametrize(
    ("recipe", "name", "value"),
    [
        ("digits", "encryption_key", KEY),
        ("digits-batch", "encryption_key", KEY),
        ("digits", "network", "projects/1/global/networks/n"),
        ("digits", "labels", "team=vision"),
        ("digits", "service_account", "runner@my-project.iam.gserviceaccount.com"),
    ],
)
def test_settings_are_removed_only_with_a_flag(
    vertex, succeed, refused, declared, recipe, name, value
):
    batch = '[batch]\ninput = "gs://bucket/a.jsonl"\nschedule = { cron = "0 3 * * 1" }\n'
    declared("[retraining]", f"{batch}[retraining]")
    succeed(f"schedule apply {recipe} --{name.replace('_', '-')} {value}")
    message = f"have {name}={value}, which is not set now; set it, or give --remove {name} to app"
    assert message in refused(f"schedule apply {recipe}")
    assert message in refused(f"schedule apply {recipe} --remove tensorboard")
    assert changes(vertex) == ["CreateSchedule"]
    applied = succeed(f"schedule apply {recipe} --remove {name}")
    assert applied.startswith("updated (create_pipeline")
    (schedule,) = vertex.schedules.values()
    assert value not in str(job_of(schedule))
    assert succeed(f"schedule apply {recipe}").startswith("unchanged")


def test_only_settings_can_be_removed(vertex, refused, declared):
    message = "--remove 'netwrok' is not a setting; did you mean 'network'?"
    assert message in refused("schedule apply digits --remove netwrok")


def test_fields_set_by_vertex_ai_are_no_change(apply, declared):
    declared(START, "")
    job = job_of(apply()[1])
    job.service_account = "123456-compute@developer.gserviceaccount.com"
    job.labels["vertex-ai-pipelines-run-billing-id"] = "1"
    job.runtime_config.failure_policy = types.PipelineFailurePolicy(1)
    assert apply()[0].startswith("unchanged")


def test_concurrent_applies_leave_one_schedule(vertex, command, apply):
    applied = []
    vertex.before("CreateSchedule", lambda: applied.append(command("schedule apply digits")))
    out, schedule = apply()
    assert applied[0][0] == 0
    assert f": {schedule.name}\n" in applied[0][1] and f": {schedule.name}\n" in out
    assert vertex.names().count("CreateSchedule") == 2
    assert apply()[0].startswith("unchanged")


def test_concurrent_replacements_leave_one_schedule(vertex, command, apply, declared):
    apply()
    declared(END, "")
    applied = []
    vertex.before("CreateSchedule", lambda: applied.append(command("schedule apply digits")))
    out, schedule = apply()
    (others,) = applied
    assert others[0] == 0
    assert out.startswith(f"recreated (end_time): {schedule.name}\n")
    assert f"recreated (end_time): {schedule.name}\n" in others[1]
    assert not schedule.end_time


def test_commands_handle_all_schedules_of_a_recipe(vertex, succeed, apply):
    def double():
        twin = types.Schedule(apply()[1])
        twin.name += "9"
        vertex.schedules[twin.name.rpartition("/")[2]] = twin

    double()
    assert apply()[0].startswith("unchanged")
    double()
    for action, state in (("pause", "PAUSED"), ("resume", "ACTIVE")):
        succeed(f"schedule {action} digits")
        assert {schedule.state.name for schedule in vertex.schedules.values()} == {state}
    succeed("schedule delete digits --yes")
    assert vertex.schedules == {}


@pytest.mark.parametrize(
    ("before", "action", "name", "states"),
    [
        ([], "apply digits", "CreateSchedule", ["ACTIVE"]),
        (["apply"], "pause digits", "PauseSchedule", ["PAUSED"]),
        (["apply", "pause"], "resume digits", "ResumeSchedule", ["ACTIVE"]),
        (["apply"], "delete digits --yes", "DeleteSchedule", []),
    ],
)
def test_lost_answer_is_a_success(vertex, command, succeed, declared, before, action, name, states):
    for schedule in before:
        succeed(f"schedule {schedule} digits")
    vertex.drop(name, after=True)
    code, out, err = command(f"schedule {action}")
    assert (code, "error" in err) == (0, False), err
    assert "no answer: " in err
    assert not action.startswith("apply") or out.startswith("unchanged:")
    assert [schedule.state.name for schedule in vertex.schedules.values()] == states


@pytest.mark.parametrize(
    ("code", "status"), [(400, "FAILED_PRECONDITION"), (403, "PERMISSION_DENIED")]
)
def test_schedule_that_was_created_is_not_kept_quiet(
    vertex, command, succeed, declared, code, status
):
    def refuse():
        vertex.fail("ListSchedules", code, status, "no")

    vertex.before("CreateSchedule", refuse)
    ended, _, err = command("schedule apply digits")
    repeat = "it may have taken effect: repeat the command, which creates no second one\n"
    assert (ended, err.endswith(repeat)) == (1, True), err
    assert "unchanged" in succeed("schedule apply digits")
    assert len(vertex.schedules) == 1
