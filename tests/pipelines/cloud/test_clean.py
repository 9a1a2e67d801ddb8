"""Cleaning deletes what this project made, is old, and nobody needs; nothing else."""

import datetime

import pytest
from google.cloud.aiplatform_v1 import types

from tests.pipelines.cloud.emulator import NUMBER, REGION, Outcome, now

LABELS = {"made-by": "vertex-tensorflow-training", "recipe": "digits"}
PARENT = f"projects/{NUMBER}/locations/{REGION}"


def folder(run):
    return f"runs/{NUMBER}/{run}/"


@pytest.fixture
def run(vertex, command, bucket):
    """Makes a run that ended days ago, with a file in its folder."""

    def make(name, days, recipe="digits", state="SUCCEEDED"):
        source = () if recipe == "digits" else ("--set", "data_dir=gs://bucket/tfds")
        assert command("run", recipe, "--name", name, "--detach", *source)[0] == 0
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


def model_version(
    vertex, number, days, aliases=(), uri="gs://elsewhere/model", labels=LABELS, deployed=()
):
    created = now() - datetime.timedelta(days=days)
    version = types.Model(
        name=f"{PARENT}/models/digits", version_id=number, version_aliases=aliases,
        display_name="digits", artifact_uri=uri, labels=labels,
        version_create_time=created, create_time=created, deployed_models=deployed,
    )  # fmt: skip
    vertex.put_version("digits", version)


def deletions(vertex):
    return [
        (name, request.name.rpartition("/")[2])
        for name, request in vertex.requests
        if name.startswith("Delete")
    ]


def test_old_runs_go_with_folders_jobs_and_cache_and_young_ones_stay(vertex, command, run, bucket):
    run("old", 40)
    run("failed", 50, state="FAILED")
    run("young", 10)
    code, out, err = command("clean", "--older-than", "30d", "--yes")
    assert (code, err) == (0, "")
    assert list(vertex.pipeline_jobs) == ["young"]
    assert list(bucket) == [f"{folder('young')}create-tfrecords_1/records/dataset.json"]
    assert {job.labels["run"] for job in vertex.custom_jobs.values()} == {"young"}
    assert {name[-7:] for name in vertex.executions} == {"young-0", "young-1"}
    assert "8 deleted" in out


def test_a_dry_run_and_a_no_delete_nothing(vertex, command, run, bucket, monkeypatch):
    import io

    run("old", 40)
    assert "4 would be deleted" in command("clean", "--older-than", "30d", "--dry-run")[1]
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    code, out, err = command("clean", "--older-than", "30d")
    assert (code, err) == (0, "")
    assert out.endswith("nothing was deleted\n")
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    code, _, err = command("clean", "--older-than", "30d")
    assert code == 2
    assert err.endswith("error: there is no terminal to answer on, so nothing was deleted; add "
                        "--yes to delete without a question\n")  # fmt: skip
    assert deletions(vertex) == []
    assert list(vertex.pipeline_jobs) == ["old"]
    assert bucket


def test_what_a_champion_came_from_stays(vertex, command, run, bucket):
    run("winner", 90)
    run("loser", 80)
    model = "create-tfrecords_1/training/model"
    model_version(
        vertex, "1", 90, ["default", "champion"], f"gs://bucket/{folder('winner')}{model}"
    )
    model_version(vertex, "2", 80, [], f"gs://bucket/{folder('loser')}{model}")
    model_version(vertex, "3", 5, [])
    model_version(vertex, "4", 80, [], labels={})
    code, out, _ = command("clean", "--older-than", "30d", "--yes")
    assert code == 0
    assert list(vertex.pipeline_jobs) == ["winner"]
    assert vertex.version_numbers("digits") == ["1", "3", "4"]
    assert "kept: run winner: model version" in out
    assert any(name.startswith(folder("winner")) for name in bucket)
    # The version goes before the files that it points to.
    assert deletions(vertex)[0] == ("DeleteModelVersion", "digits@2")


def test_a_version_that_an_endpoint_serves_stays(vertex, command, bucket):
    model_version(vertex, "1", 90, ["default"])
    served = {"endpoint": f"{PARENT}/endpoints/1", "deployed_model_id": "1"}
    model_version(vertex, "2", 60, deployed=[served])
    model_version(vertex, "3", 60)
    assert command("clean", "--older-than", "30d", "--yes")[0] == 0
    assert vertex.version_numbers("digits") == ["1", "2"]


def test_endpoints_that_are_billed_for_nothing_are_told(vertex, command, bucket):
    model_version(vertex, "1", 90, ["champion", "default"])
    assert command("deploy", "digits")[0] == 0
    assert "endpoint" not in command("clean", "--older-than", "30d")[1]
    endpoint = vertex.endpoints["digits"]
    vertex.endpoints["digits-test-1"] = types.Endpoint(endpoint, name=f"{endpoint.name}-test-1")
    endpoint.traffic_split = {}
    vertex.endpoints["digits"] = endpoint
    code, shown, _ = command("clean", "--older-than", "30d")
    assert code == 0
    assert "kept: endpoint digits: billed, without traffic; remove it with `deploy --un" in shown
    assert "kept: endpoint digits-test-1: billed, left over from a step; delete it" in shown


def test_a_run_whose_model_somebody_registered_by_hand_stays(vertex, command, run, bucket):
    run("old", 90)
    model_version(vertex, "1", 90, ["default"], f"gs://bucket/{folder('old')}model", labels={})
    assert "kept: run old: model version" in command("clean", "--older-than", "30d", "--yes")[1]
    assert deletions(vertex) == []


@pytest.mark.parametrize("of_the_console", [False, True])
def test_records_that_a_kept_run_took_from_the_cache_stay(
    vertex, command, run, bucket, of_the_console
):
    run("first", 60)
    later = run("later", 1)
    if of_the_console:
        later.labels.clear()
    records = f"gs://bucket/{folder('first')}create-tfrecords_1/records"
    later.job_detail.task_details[0].outputs["records"].artifacts[0].uri = records
    out = command("clean", "--older-than", "30d", "--yes")[1]
    assert "kept: run first: run later uses its outputs" in out
    assert "first" in vertex.pipeline_jobs
    assert deletions(vertex) == []


def test_the_checkpoint_that_a_kept_run_goes_on_from_stays(vertex, command, run, bucket):
    run("first", 60, state="FAILED")
    values = run("again", 1).runtime_config.parameter_values
    values["resume_from"] = f"gs://bucket/{folder('first')}plan-training_2/training"
    out = command("clean", "--older-than", "30d", "--yes")[1]
    assert "kept: run first: run again uses its outputs" in out
    assert deletions(vertex) == []


def test_a_training_job_of_a_schedule_goes_with_its_run_alone(vertex, command, run, bucket):
    run("kept", 50)
    run("old", 60)
    for job in vertex.custom_jobs.values():
        # A schedule's template names no run.
        job.display_name = job.labels.pop("run")
    code, _, err = command("clean", "--older-than", "30d", "--keep-last", "1", "--yes")
    assert (code, err) == (0, "")
    assert list(vertex.pipeline_jobs) == ["kept"]
    assert [job.display_name for job in vertex.custom_jobs.values()] == ["kept"]


def test_the_last_successful_runs_of_each_recipe_are_kept(vertex, command, run, bucket):
    for days, name in enumerate(["a", "b", "c"], 40):
        run(name, days)
    run("failed", 39, state="FAILED")
    run("flowers", 99, recipe="flowers")
    assert command("clean", "--older-than", "30d", "--keep-last", "1", "--yes")[0] == 0
    assert sorted(vertex.pipeline_jobs) == ["a", "flowers"]
    run("flowers-2", 90, recipe="flowers")
    assert command("clean", "--older-than", "4w", "--recipe", "flowers", "--yes")[0] == 0
    assert list(vertex.pipeline_jobs) == ["a"]


def test_what_is_not_labelled_or_goes_on_is_not_touched(vertex, command, run, bucket):
    del run("theirs", 99).labels["made-by"]
    for job in vertex.custom_jobs.values():
        del job.labels["made-by"]
    running = run("running", 99)
    running.state = types.PipelineState.PIPELINE_STATE_RUNNING
    for job in vertex.custom_jobs.values():
        if job.labels["run"] == "running":
            job.state = types.JobState.JOB_STATE_RUNNING
    bucket["runs/notes.txt"] = b""
    assert "nothing to delete" in command("clean", "--older-than", "30d", "--yes")[1]
    assert deletions(vertex) == []


def test_many_runs_are_read_in_pages(vertex, command, run, bucket):
    job = run("old", 40)
    for number in range(30):
        vertex.pipeline_jobs[f"run-{number}"] = copy = types.PipelineJob(job)
        copy.name = f"{PARENT}/pipelineJobs/run-{number}"
    code, _, err = command("clean", "--older-than", "30d", "--yes")
    assert (code, err) == (0, "")
    assert vertex.pipeline_jobs == {}
    assert sum(name == "GetPipelineJob" for name in vertex.names()) == 31 + 1


def test_only_schedules_that_have_ended_are_deleted(vertex, command, bucket):
    for number, state in enumerate(["ACTIVE", "PAUSED", "COMPLETED"]):
        schedule = types.Schedule(
            name=f"{PARENT}/schedules/{number}",
            state=types.Schedule.State[state],
            update_time=now() - datetime.timedelta(days=60),
        )
        schedule.create_pipeline_job_request.pipeline_job.labels.update(LABELS)
        vertex.schedules[str(number)] = schedule
    assert command("clean", "--older-than", "30d", "--yes")[0] == 0
    assert list(vertex.schedules) == ["0", "1"]


def test_an_interrupted_cleaning_can_be_done_again(vertex, command, run, bucket):
    run("old", 40)
    vertex.fail("DeletePipelineJob", 403, "PERMISSION_DENIED", "no permission")
    code, _, err = command("clean", "--older-than", "30d", "--yes")
    assert code == 1
    assert "403 no permission" in err and err.count("\n") == 1
    vertex.drop("DeletePipelineJob", after=True)
    assert command("clean", "--older-than", "30d", "--yes")[0] == 0
    assert (vertex.pipeline_jobs, bucket, vertex.custom_jobs) == ({}, {}, {})


@pytest.mark.parametrize("age", ["30", "d", "-3d", "30 days"])
def test_an_age_is_a_number_and_a_unit(vertex, command, age):
    code, _, err = command("clean", f"--older-than={age}")
    assert code == 2
    assert "is not an age, such as 30d" in err
    assert vertex.requests == []
