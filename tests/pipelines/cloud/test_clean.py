"""python -m pipelines clean deletes what this project made, is old and is not used."""

import datetime
import io

import pytest
from google.cloud.aiplatform_v1 import types

from tests.pipelines.cloud.emulator import LABELS, LOCATION, NUMBER, Outcome, now


def folder(run):
    return f"runs/{NUMBER}/{run}/"


@pytest.fixture
def clean(succeed, bucket):
    """Delete what is older than 30 days; return what is shown."""
    return lambda flags="": succeed(f"clean --older-than 30d --yes {flags}")


@pytest.fixture
def run(vertex, succeed, bucket):
    """Make a run that ended days ago, with a file in its folder."""

    def make(name, days, recipe="digits", state="SUCCEEDED"):
        source = "" if recipe == "digits" else "--set data_dir=gs://bucket/tfds"
        succeed(f"run {recipe} --name {name} --detach {source}")
        vertex.finish(name, Outcome(state))
        ended = now() - datetime.timedelta(days=days)
        job = vertex.pipeline_jobs[name]
        job.create_time, job.end_time = ended - datetime.timedelta(hours=1), ended
        for custom_job in vertex.custom_jobs.values():
            if custom_job.labels["run"] == name:
                custom_job.end_time = ended
        bucket[f"{folder(name)}create-tfrecords_1/records/dataset.json"] = b"{}"
        return job

    return make


def put_version(vertex, number, days, aliases=(), artifact_uri="gs://elsewhere/model", **fields):
    """Add a version of the model digits that was made days ago."""
    created = now() - datetime.timedelta(days=days)
    fields |= {"version_create_time": created, "create_time": created}
    vertex.put_version(number, aliases, artifact_uri=artifact_uri, **fields)


def versions(vertex):
    return list(vertex.models["digits"]["versions"])


def deletions(vertex):
    return [
        (name, request.name.rpartition("/")[2])
        for name, request in vertex.requests
        if name.startswith("Delete")
    ]


def test_old_runs_are_deleted_with_folders_jobs_and_cache(vertex, clean, run, bucket):
    run("old", 40)
    run("failed", 50, state="FAILED")
    run("young", 10)
    assert "8 deleted" in clean()
    assert list(vertex.pipeline_jobs) == ["young"]
    assert list(bucket) == [f"{folder('young')}create-tfrecords_1/records/dataset.json"]
    assert {job.labels["run"] for job in vertex.custom_jobs.values()} == {"young"}
    assert {name[-7:] for name in vertex.executions} == {"young-0", "young-1"}


def test_nothing_is_deleted_without_a_yes(vertex, succeed, command, run, bucket, monkeypatch):
    run("old", 40)
    assert "4 would be deleted" in succeed("clean --older-than 30d --dry-run")
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert succeed("clean --older-than 30d").endswith("nothing was deleted\n")
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    code, _, err = command("clean --older-than 30d")
    assert code == 2
    remedy = "so nothing was deleted; add --yes to delete without a question\n"
    assert err.endswith(f"error: there is no terminal to answer on, {remedy}")
    assert deletions(vertex) == []
    assert list(vertex.pipeline_jobs) == ["old"]
    assert bucket


def test_champion_and_its_run_are_kept(vertex, clean, run, bucket):
    run("winner", 90)
    run("loser", 80)
    model = "create-tfrecords_1/training/model"
    winner, loser = (f"gs://bucket/{folder(name)}{model}" for name in ("winner", "loser"))
    put_version(vertex, 1, 90, ["default", "champion"], artifact_uri=winner)
    put_version(vertex, 2, 80, artifact_uri=loser)
    put_version(vertex, 3, 5)
    put_version(vertex, 4, 80, labels={})
    assert "kept: run winner: model version" in clean()
    assert list(vertex.pipeline_jobs) == ["winner"]
    assert versions(vertex) == ["1", "3", "4"]
    assert any(name.startswith(folder("winner")) for name in bucket)
    # The version goes before the files that it points to.
    assert deletions(vertex)[0] == ("DeleteModelVersion", "digits@2")


def test_deployed_version_is_kept(vertex, clean):
    put_version(vertex, 1, 90, ["default"])
    served = {"endpoint": f"{LOCATION}/endpoints/1", "deployed_model_id": "1"}
    put_version(vertex, 2, 60, deployed_models=[served])
    put_version(vertex, 3, 60)
    clean()
    assert versions(vertex) == ["1", "2"]


def test_endpoint_without_traffic_is_reported(vertex, succeed, clean):
    put_version(vertex, 1, 90, ["champion", "default"])
    succeed("deploy digits")
    assert "endpoint" not in clean()
    endpoint = vertex.endpoints["digits"]
    vertex.endpoints["digits-test-1"] = types.Endpoint(endpoint, name=f"{endpoint.name}-test-1")
    endpoint.traffic_split = {}
    vertex.endpoints["digits"] = endpoint
    shown = clean()
    assert "kept: endpoint digits: billed, without traffic; remove it with `deploy --un" in shown
    assert "kept: endpoint digits-test-1: billed, left over from a step; delete it" in shown


def test_run_of_a_users_version_is_kept(vertex, clean, run):
    run("old", 90)
    model = f"gs://bucket/{folder('old')}model"
    put_version(vertex, 1, 90, ["default"], artifact_uri=model, labels={})
    assert "kept: run old: model version" in clean()
    assert deletions(vertex) == []


@pytest.mark.parametrize("from_the_console", [False, True])
def test_run_whose_records_are_in_use_is_kept(vertex, clean, run, from_the_console):
    run("first", 60)
    later = run("later", 1)
    if from_the_console:
        later.labels.clear()
    records = f"gs://bucket/{folder('first')}create-tfrecords_1/records"
    later.job_detail.task_details[0].outputs["records"].artifacts[0].uri = records
    assert "kept: run first: run later uses its outputs" in clean()
    assert deletions(vertex) == []


def test_run_whose_checkpoint_is_in_use_is_kept(vertex, clean, run):
    run("first", 60, state="FAILED")
    values = run("again", 1).runtime_config.parameter_values
    values["resume_from"] = f"gs://bucket/{folder('first')}plan-training_2/training"
    assert "kept: run first: run again uses its outputs" in clean()
    assert deletions(vertex) == []


def test_training_job_of_a_schedule_is_deleted_with_its_run(vertex, clean, run):
    run("kept", 50)
    run("old", 60)
    for job in vertex.custom_jobs.values():
        # A schedule's template names no run.
        job.display_name = job.labels.pop("run")
    clean("--keep-last 1")
    assert list(vertex.pipeline_jobs) == ["kept"]
    assert [job.display_name for job in vertex.custom_jobs.values()] == ["kept"]


def test_last_successful_runs_of_each_recipe_are_kept(vertex, clean, succeed, run):
    for days, name in enumerate(["a", "b"], 40):
        run(name, days)
    run("failed", 39, state="FAILED")
    run("flowers", 99, recipe="flowers")
    clean("--keep-last 1")
    assert sorted(vertex.pipeline_jobs) == ["a", "flowers"]
    succeed("clean --older-than 4w --recipe flowers --yes")
    assert list(vertex.pipeline_jobs) == ["a"]


def test_unlabelled_and_running_resources_are_kept(vertex, clean, run, bucket):
    del run("theirs", 99).labels["made-by"]
    for job in vertex.custom_jobs.values():
        del job.labels["made-by"]
    running = run("running", 99)
    running.state = types.PipelineState.PIPELINE_STATE_RUNNING
    for job in vertex.custom_jobs.values():
        if job.labels["run"] == "running":
            job.state = types.JobState.JOB_STATE_RUNNING
    bucket["runs/notes.txt"] = b""
    assert "nothing to delete" in clean()
    assert deletions(vertex) == []


def test_runs_of_many_pages_are_deleted(vertex, clean, run):
    job = run("old", 40)
    for number in range(9):
        vertex.pipeline_jobs[f"run-{number}"] = copy = types.PipelineJob(job)
        copy.name = f"{LOCATION}/pipelineJobs/run-{number}"
    clean()
    assert vertex.pipeline_jobs == {}
    assert vertex.names().count("GetPipelineJob") == 10 + 1


def test_only_completed_schedules_are_deleted(vertex, clean):
    for number, state in enumerate(["ACTIVE", "PAUSED", "COMPLETED"]):
        schedule = types.Schedule(
            name=f"{LOCATION}/schedules/{number}",
            state=state,
            update_time=now() - datetime.timedelta(days=60),
        )
        schedule.create_pipeline_job_request.pipeline_job.labels.update(LABELS)
        vertex.schedules[str(number)] = schedule
    clean()
    assert list(vertex.schedules) == ["0", "1"]


def test_interrupted_cleaning_can_be_repeated(vertex, clean, command, run, bucket):
    run("old", 40)
    vertex.fail("DeletePipelineJob", 403, "PERMISSION_DENIED", "no permission")
    code, _, err = command("clean --older-than 30d --yes")
    assert code == 1
    assert "403 no permission" in err and err.count("\n") == 1
    vertex.drop("DeletePipelineJob", after=True)
    assert command("clean --older-than 30d --yes")[0] == 0
    assert (vertex.pipeline_jobs, bucket, vertex.custom_jobs) == ({}, {}, {})


def test_age_is_a_number_and_a_unit(vertex, refused):
    for age in ("30", "d", "-3d", "30 days"):
        assert "is not an age, such as 30d" in refused("clean", f"--older-than={age}")
    assert vertex.requests == []
