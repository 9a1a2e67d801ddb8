"""python -m pipelines clean deletes what this project made, is old and is not used."""

import datetime
import io
import re

import pytest
from google.cloud.aiplatform_v1 import types

from tests.pipelines.cloud.scripted_vertex import LABELS, LOCATION, NUMBER, Outcome, now


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


def deletions(vertex):
    return [
        (name, request.name.rpartition("/")[2])
        for name, request in vertex.requests
        if name.startswith("Delete")
    ]


def test_folder_to_delete_is_that_of_the_outputs(clean, run, bucket):
    # "a sub-path pattern {job_id}/{taskId}/{outputKey} under the specified output directory"
    artifact, file = types.Artifact(uri="gs://bucket/runs/old/1/records"), "runs/old/1/records/a"
    outputs = run("old", 40).job_detail.task_details[0].outputs
    outputs["records"] = types.PipelineTaskDetail.ArtifactList(artifacts=[artifact])
    bucket[file] = b""
    assert "gs://bucket/runs/old/" in clean()
    assert file not in bucket


def test_old_runs_are_deleted_with_folders_jobs_and_cache(vertex, clean, run, bucket):
    old = run("old", 40)
    run("failed", 50, state="FAILED")
    run("young", 10)
    # More than a page, and more than are read at once.
    for number in range(9):
        vertex.pipeline_jobs[f"run-{number}"] = copy = types.PipelineJob(old)
        copy.name = f"{LOCATION}/pipelineJobs/run-{number}"
    assert "44 deleted" in clean()
    # Once when it was started, for three, and once now.
    assert vertex.names().count("GetPipelineJob") == 3 + 12
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
    assert err.endswith("error: no terminal to answer on: nothing was deleted; add --yes\n")
    assert deletions(vertex) == []
    assert list(vertex.pipeline_jobs) == ["old"]
    assert bucket


def test_unlabelled_and_active_resources_are_kept(vertex, clean, run, bucket):
    del run("theirs", 99).labels["made-by"]
    run("running", 99).state = types.PipelineState.PIPELINE_STATE_RUNNING
    # Training jobs whose runs are gone.
    for name in ("their-job", "running-job", "old-job"):
        run(name, 99)
        del vertex.pipeline_jobs[name]
    jobs = {job.display_name: job for job in vertex.custom_jobs.values()}
    for name in ("theirs", "their-job"):
        del jobs[name].labels["made-by"]
    for name in ("running", "running-job"):
        jobs[name].state = types.JobState.JOB_STATE_RUNNING
    for state in ("ACTIVE", "PAUSED", "COMPLETED"):
        schedule = types.Schedule(name=f"{LOCATION}/schedules/{state}", state=state)
        schedule.create_time = schedule.update_time = now() - datetime.timedelta(days=60)
        schedule.create_pipeline_job_request.pipeline_job.labels.update(LABELS)
        vertex.schedules[state] = schedule
    bucket["runs/notes.txt"] = b""
    number = jobs["old-job"].name.rpartition("/")[2]
    clean()
    assert deletions(vertex) == [("DeleteSchedule", "COMPLETED"), ("DeleteCustomJob", number)]
    assert "nothing to delete" in clean()


def test_used_versions_and_outputs_are_kept(vertex, clean, run, bucket):
    for name in ("winner", "loser", "users"):
        run(name, 90)
    put_version(vertex, 1, 90, ["champion"], f"gs://bucket/{folder('winner')}job/model")
    put_version(vertex, 2, 80, [], f"gs://bucket/{folder('loser')}job/model")
    # A user's own version, whose model is from a run.
    put_version(vertex, 3, 90, ["default"], f"gs://bucket/{folder('users')}model", labels={})
    put_version(vertex, 4, 80, labels={})
    put_version(vertex, 5, 5)
    served = {"endpoint": f"{LOCATION}/endpoints/1", "deployed_model_id": "1"}
    put_version(vertex, 6, 60, deployed_models=[served])
    for name in ("first", "second"):
        run(name, 60)
        cached = run(f"cached-{name}", 1)
        records = f"gs://bucket/{folder(name)}create-tfrecords_1/records"
        cached.job_detail.task_details[0].outputs["records"].artifacts[0].uri = records
    cached.labels.clear()  # As the console starts it.
    run("failed", 60, state="FAILED")
    values = run("resumed", 1).runtime_config.parameter_values
    values["resume_from"] = f"gs://bucket/{folder('failed')}plan-training_2/training"
    runs, files = set(vertex.pipeline_jobs), set(bucket)

    kept = re.findall(r"^kept: run (\S+: .*?)( \(.*)? uses its outputs", clean(), re.MULTILINE)
    assert {line for line, _ in kept} == {
        f"winner: model version {LOCATION}/models/digits@1",
        f"users: model version {LOCATION}/models/digits@3",
        "first: run cached-first",
        "second: run cached-second",
        "failed: run resumed",
    }
    assert runs - set(vertex.pipeline_jobs) == {"loser"}
    assert files - set(bucket) == {f"{folder('loser')}create-tfrecords_1/records/dataset.json"}
    assert list(vertex.models["digits"]["versions"]) == ["1", "3", "4", "5", "6"]
    # The version goes before the files that it points to.
    assert deletions(vertex)[0] == ("DeleteModelVersion", "digits@2")


def test_endpoint_without_traffic_is_reported(vertex, succeed, clean):
    put_version(vertex, 1, 90, ["champion", "default"])
    succeed("deploy digits")
    assert "endpoint" not in clean()
    endpoint = vertex.endpoints["digits"]
    other = types.Endpoint(endpoint, name=f"{endpoint.name}-test-1")
    other.labels["recipe"] = "digits_test_1"  # A model with such a name.
    vertex.endpoints["digits-test-1"] = other
    assert "endpoint" not in clean()
    endpoint.traffic_split = {}
    vertex.endpoints["digits"] = endpoint
    shown = clean()
    assert "kept: endpoint digits: billed, without traffic; remove it with `deploy --un" in shown


@pytest.mark.parametrize("under_way", [False, True])
def test_endpoint_that_a_killed_step_left_is_deleted(vertex, succeed, clean, run, under_way):
    put_version(vertex, 1, 90, ["champion", "default"])
    succeed("deploy digits")
    endpoint, made = vertex.endpoints["digits"], now() - datetime.timedelta(days=1)
    name = f"{endpoint.name}-test-1"
    test = types.Endpoint(name=name, display_name="x", labels=LABELS, create_time=now())
    vertex.endpoints["digits-test-1"] = test
    deployment = types.DeployModelRequest(
        endpoint=name, deployed_model=endpoint.deployed_models[0], traffic_split={"0": 100}
    )
    vertex.servers.polls = 9 if under_way else 0
    vertex.deploy_model(deployment)
    left = "left over from a step; a shorter --older-than deletes it"
    billed = "" if under_way else "billed, "
    assert f"kept: endpoint digits-test-1: {billed}{left}" in clean("--dry-run")
    test = vertex.endpoints["digits-test-1"]
    vertex.endpoints["digits-test-1"] = types.Endpoint(test, create_time=made)
    users = run("busy", 0)
    users.state, users.create_time = types.PipelineState.PIPELINE_STATE_RUNNING, made
    assert "kept: endpoint digits-test-1: the run busy may be using it for a test" in clean()
    users.state = types.PipelineState.PIPELINE_STATE_FAILED
    assert name in clean()
    assert [*vertex.endpoints] == ["digits"]
    assert vertex.endpoints["digits"].deployed_models


@pytest.mark.parametrize(
    ("kind", "shown"),
    [("BatchPredictionJob", "batch prediction"), ("HyperparameterTuningJob", "search")],
)
def test_old_batch_predictions_and_searches_are_deleted(vertex, clean, run, kind, shown):
    run("old", 40)
    collection = f"{kind[0].lower()}{kind[1:]}s"
    jobs = vertex.batch_jobs if kind == "BatchPredictionJob" else vertex.tuning_jobs
    for number, (days, state, labels) in enumerate(
        [
            (40, "SUCCEEDED", {**LABELS, "run": "old"}),
            (40, "FAILED", {**LABELS, "run": "gone"}),
            (40, "RUNNING", {**LABELS, "run": "gone"}),
            (10, "SUCCEEDED", {**LABELS, "run": "gone"}),
            (40, "SUCCEEDED", {"run": "gone"}),
        ],
        1,
    ):
        jobs[str(number)] = getattr(types, kind)(
            name=f"{LOCATION}/{collection}/{number}",
            labels=labels,
            state=f"JOB_STATE_{state}",
            end_time=now() - datetime.timedelta(days=days),
        )
    assert shown in clean()
    assert [*jobs] == ["3", "4", "5"]
    # Not every server has them.
    vertex.fail(f"List{kind}s", 501, "UNIMPLEMENTED")
    assert "nothing to delete" in clean()


def test_last_successful_runs_of_each_recipe_are_kept(vertex, clean, succeed, run):
    for days, name in enumerate(["a", "b"], 40):
        run(name, days)
    run("failed", 39, state="FAILED")
    run("flowers", 99, recipe="flowers")
    for job in vertex.custom_jobs.values():
        # As of a schedule, whose template names no run.
        job.display_name = job.labels.pop("run")
    clean("--keep-last 1")
    assert sorted(vertex.pipeline_jobs) == ["a", "flowers"]
    assert sorted(job.display_name for job in vertex.custom_jobs.values()) == ["a", "flowers"]
    succeed("clean --older-than 4w --recipe flowers --yes")
    assert list(vertex.pipeline_jobs) == ["a"]


def test_interrupted_cleaning_can_be_repeated(vertex, clean, command, run, bucket):
    run("old", 40)
    # Exit code 2 would say that nothing was deleted.
    for status in ((403, "PERMISSION_DENIED"), (400, "FAILED_PRECONDITION")):
        vertex.fail("DeletePipelineJob", *status, "no permission")
        code, _, err = command("clean --older-than 30d --yes")
        assert code == 1
        assert "no permission" in err and err.count("\n") == 1
    vertex.drop("DeletePipelineJob", after=True)
    assert command("clean --older-than 30d --yes")[0] == 0
    assert (vertex.pipeline_jobs, bucket, vertex.custom_jobs) == ({}, {}, {})


def test_run_whose_files_a_bucket_retains_is_kept(vertex, command, run, storage, bucket):
    run("retained", 50)
    run("old", 40)
    retention = "Object 'x' is subject to bucket's retention policy and cannot be deleted"
    vertex.before(
        "DeleteExecution",
        lambda: storage.fail("DeleteObject", 403, "PERMISSION_DENIED", retention),
    )
    code, out, err = command("clean --older-than 30d --yes")
    assert (code, err.count("\n")) == (1, 1)
    assert err.endswith(f"/: 403 {retention}\n")
    assert out.endswith("\n6 deleted\n")
    (kept,) = vertex.pipeline_jobs
    assert [*bucket] == [f"{folder(kept)}create-tfrecords_1/records/dataset.json"]
    # Before the files, so that no run reuses what is being deleted.
    assert not vertex.executions
    assert "3 deleted" in command("clean --older-than 30d --yes")[1]


def test_inputs_of_runs_and_schedules_are_kept(vertex, clean, run, succeed, declared):
    for name in ("table", "weights", "default", "start"):
        run(name, 60)
    root = f"bucket/runs/{NUMBER}"
    values = run("young", 1).runtime_config.parameter_values
    values["source"] = f"csv:gs://{root}/table/records/rows.csv"
    values["model_options"] = {"weights": f"/gcs/{root}/weights/model.keras"}
    declared('source = "digits"', f'source = "tfds:digits"\ndata_dir = "gs://{root}/default/data"')
    declared("epochs = 20", f'warm_start = "gs://{root}/start/model"')
    succeed("schedule apply digits")
    kept = re.findall(r"^kept: run (\S+: .*) uses its outputs", clean(), re.MULTILINE)
    assert sorted(kept) == [
        "default: schedule digits",
        "start: schedule digits",
        "table: run young",
        "weights: run young",
    ]


def test_model_deleted_in_the_meantime_is_no_error(vertex, clean):
    put_version(vertex, 1, 90, ["champion", "default"])
    vertex.fail("ListModelVersions", 404, "NOT_FOUND", "no such model")
    assert "nothing to delete" in clean()


def test_age_is_a_number_and_a_unit(vertex, refused):
    for age in ("30", "d", "-3d", "30 days"):
        assert "is not an age, such as 30d" in refused("clean", f"--older-than={age}")
    assert vertex.requests == []
