"""python -m pipelines schedule: a recipe's schedule is applied, paused, resumed and deleted."""

import io

import pytest

from pipelines import package


def changes(vertex):
    """Return the names of the requests that change something."""
    return [name for name in vertex.names() if not name.startswith(("List", "Get"))]


def created(vertex):
    (request,) = vertex.sent_json("CreateSchedule")
    return request["schedule"]


def test_applying_twice_creates_one_schedule(vertex, succeed, declared, monkeypatch):
    monkeypatch.setattr(package, "git_commit", lambda: "abc")
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
    monkeypatch.setattr(package, "git_commit", lambda: "def")
    assert succeed("schedule apply digits").startswith("unchanged:")
    assert changes(vertex) == ["CreateSchedule"]


def test_builtin_schedule_trains_only_on_new_data(vertex, succeed, registry):
    out = succeed("schedule apply digits")
    assert out.startswith("created: ")
    # Only https:// is a template_uri that Vertex AI takes; a registry of this machine is not.
    (version,) = registry.packages["training-digits"]["versions"]
    assert f"pinned to {version}" in out
    assert created(vertex)["cron"] == "TZ=UTC 0 3 * * 1"
    job = created(vertex)["createPipelineJobRequest"]["pipelineJob"]
    values = job["runtimeConfig"]["parameterValues"]
    assert (values["skip_if_unchanged"], values["max_cost"]) == (True, 2)


def test_schedule_is_paused_resumed_and_deleted(vertex, succeed, refused, declared, monkeypatch):
    succeed("schedule apply digits")
    succeed("schedule pause digits")
    succeed("schedule pause digits")
    assert succeed("schedule list").splitlines()[1].split()[:2] == ["digits", "PAUSED"]
    succeed("schedule resume digits")
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
    assert "is past, so no run would start" in refused("schedule apply digits")
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
