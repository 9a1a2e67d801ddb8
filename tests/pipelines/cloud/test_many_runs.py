"""Runs by the thousand, clocks that differ, and log lines."""

import datetime

from google.cloud.aiplatform_v1 import types

from tests.pipelines.cloud.emulator import NUMBER, REGION, Outcome, now

PARENT = f"projects/{NUMBER}/locations/{REGION}"
LABELS = {"made-by": "vertex-tensorflow-training", "recipe": "digits"}


def test_the_latest_runs_are_listed_without_their_pipelines_and_the_rest_is_named(vertex, command):
    for number in range(60):
        created = now() - datetime.timedelta(hours=number)
        vertex.pipeline_jobs[f"run-{number}"] = types.PipelineJob(
            name=f"{PARENT}/pipelineJobs/run-{number}", labels=LABELS, create_time=created,
            state=types.PipelineState.PIPELINE_STATE_SUCCEEDED,
            runtime_config=types.PipelineJob.RuntimeConfig(gcs_output_directory="gs://bucket/runs"),
        )  # fmt: skip
    # One of the pages is asked for again, not all of them.
    vertex.fail("ListPipelineJobs", 503, "UNAVAILABLE")
    code, out, err = command("status")
    assert (code, err.count("no answer: 503")) == (0, 1)
    shown = [line.split()[0] for line in out.splitlines() if line.startswith("run-")]
    assert shown == [f"run-{number}" for number in range(20)]
    assert "older runs are left out" in out
    (first, *_) = [one for one in vertex.sent("ListPipelineJobs") if hasattr(one, "page_size")]
    assert first.page_size == 21
    assert "pipeline_spec" not in first.read_mask.paths
    assert "state" in first.read_mask.paths


def test_a_service_whose_clock_is_ahead_gives_no_negative_times_or_costs(vertex, command):
    vertex.outcomes = [Outcome("RUNNING")]
    assert command("run", "digits", "--name", "one", "--detach")[0] == 0
    vertex.finish("one", Outcome("RUNNING"))
    ahead = now() + datetime.timedelta(hours=2)
    job, (custom_job,) = vertex.pipeline_jobs["one"], vertex.custom_jobs.values()
    for one in (*job.job_detail.task_details, custom_job):
        one.start_time, one.end_time = ahead, None
    code, out, _ = command("status", "one")
    assert code == 0
    assert "training cost about 0.00 USD" in out
    (task,) = (line.split() for line in out.splitlines() if " Train" in line)
    assert task == ["task", "RUNNING", "Train"]


def test_lines_are_found_behind_empty_pages_within_the_runs_time(vertex, command):
    assert command("run", "digits", "--name", "one")[0] == 0
    (number,) = vertex.custom_jobs
    vertex.log_entries = [
        {"resource": {"labels": {"job_id": number, "task_name": "workerpool0-0"}}, **payload}
        for payload in ({"jsonPayload": {"message": {"step": 3}}}, {"textPayload": "done"})
    ]
    vertex.empty_log_pages = 3
    code, out, err = command("logs", "one")
    assert (code, err) == (0, "")
    assert out.splitlines() == ['workerpool0-0: {"step": 3}', "workerpool0-0: done"]
    first, *_, last = vertex.sent("ListLogEntries")
    job = vertex.pipeline_jobs["one"]
    bounds = dict(term.split("=", 1) for term in first["filter"].split(" AND ") if "time" in term)
    begin, end = (
        datetime.datetime.fromisoformat(bounds[f"timestamp{sign}"].strip('"')) for sign in "><"
    )
    assert begin <= job.create_time <= job.end_time <= end
    assert end - begin < datetime.timedelta(hours=3)
    assert last["filter"] == first["filter"]
