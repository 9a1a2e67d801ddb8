"""Schedules become what the recipe declares, once, and stay pinned to a template."""

import io

import pytest
from google.protobuf import json_format

from tests.pipelines.cloud.stores import RegistryServer


def changes(vertex):
    """Names of the requests that change something."""
    return [name for name in vertex.names() if not name.startswith(("List", "Get"))]


def test_applying_twice_sends_one_create_and_nothing_more(vertex, command, declared):
    code, out, err = command("schedule", "apply", "digits")
    assert (code, err) == (0, "")
    (request,) = vertex.sent("CreateSchedule")
    sent = json_format.MessageToDict(request.schedule._pb)
    assert request.parent == "projects/my-project/locations/us-central1"
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
    assert "pinned to sha256:" in out
    assert out.startswith("created: projects/123456/locations/us-central1/schedules/")
    code, out, _ = command("schedule", "apply", "digits")
    assert (code, out.partition(":")[0]) == (0, "unchanged")
    assert changes(vertex) == ["CreateSchedule"]


def test_the_schedule_that_comes_along_trains_only_on_what_is_new(vertex, command):
    code, out, err = command("schedule", "apply", "digits")
    assert (code, err) == (0, "")
    assert out.startswith("created: ")
    (request,) = vertex.sent("CreateSchedule")
    assert request.schedule.cron == "TZ=UTC 0 3 * * 1"
    job = json_format.MessageToDict(request.schedule.create_pipeline_job_request.pipeline_job._pb)
    values = job["runtimeConfig"]["parameterValues"]
    assert values["skip_if_unchanged"] is True
    assert values["max_cost"] == 2


def test_a_new_commit_with_the_same_template_changes_nothing(
    vertex, command, declared, monkeypatch
):
    from pipelines import package

    for commit in ("abc", "def"):
        monkeypatch.setattr(package, "git_commit", lambda commit=commit: commit)
        assert command("schedule", "apply", "digits")[0] == 0
    assert changes(vertex) == ["CreateSchedule"]


def test_a_create_whose_answer_was_lost_makes_no_second_schedule(vertex, command, declared):
    vertex.drop("CreateSchedule", after=True)
    code, out, _ = command("schedule", "apply", "digits")
    assert (code, out.partition(":")[0]) == (0, "unchanged")
    assert len(vertex.schedules) == 1


def test_a_schedule_names_the_stored_template_by_its_digest(vertex, command, declared, monkeypatch):
    with RegistryServer() as registry:
        monkeypatch.setenv("VERTEX_TEMPLATE_REPOSITORY", registry.repository)
        code, out, _ = command("schedule", "apply", "digits")
        assert code == 0
        (version,) = registry.packages["training-digits"]["versions"]
    # Only https:// is a template_uri that Vertex AI takes; a registry of this machine is not.
    assert f"pinned to {version}" in out


def test_schedules_are_listed_paused_resumed_and_deleted(vertex, command, declared):
    assert command("schedule", "apply", "digits")[0] == 0
    assert command("schedule", "pause", "digits")[0] == 0
    assert command("schedule", "pause", "digits")[0] == 0
    listing = command("schedule", "list")[1].splitlines()
    assert listing[1].split()[:2] == ["digits", "PAUSED"]
    assert command("schedule", "resume", "digits")[0] == 0
    assert command("schedule", "resume", "digits")[0] == 0
    assert command("schedule", "delete", "digits", "--yes")[0] == 0
    assert vertex.schedules == {}
    assert changes(vertex) == [
        "CreateSchedule", "PauseSchedule", "ResumeSchedule", "DeleteSchedule"
    ]  # fmt: skip
    code, _, err = command("schedule", "delete", "digits", "--yes")
    assert code == 2
    assert err.startswith("error: recipe 'digits' has no schedule in projects/my-project")


def test_a_no_leaves_the_schedule(vertex, command, declared, monkeypatch):
    assert command("schedule", "apply", "digits")[0] == 0
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    code, out, err = command("schedule", "delete", "digits")
    assert (code, err) == (0, "")
    assert out.endswith("nothing was deleted\n")
    assert len(vertex.schedules) == 1


def test_a_schedule_that_somebody_else_made_is_left_alone(vertex, command, declared):
    assert command("schedule", "apply", "digits")[0] == 0
    (schedule,) = vertex.schedules.values()
    del schedule.create_pipeline_job_request.pipeline_job.labels["made-by"]
    assert command("schedule", "delete", "digits", "--yes")[0] == 2
    assert len(command("schedule", "list")[1].splitlines()) == 1
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
def test_a_declaration_that_can_not_be_is_refused_before_anything_is_sent(
    vertex, refused, declared, old, new, message
):
    declared(old, new)
    assert message in refused("schedule", "apply", "digits")
    assert vertex.requests == []


def test_a_recipe_without_a_declaration_has_nothing_to_apply(vertex, refused, declared):
    assert "declares no schedule; add [retraining]" in refused("schedule", "apply", "plain")
