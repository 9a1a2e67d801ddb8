"""The state of a PipelineJob is that of its process on this machine."""

import datetime
import json
import os

from google.cloud.aiplatform_v1 import types

from pipelines.cloud import runs
from vertex_emulator.clock import Clock
from vertex_emulator.pipeline_engine import PipelineEngine


def test_failed_task_has_the_error_of_its_run(tmp_path):
    error = "Create TFRecords: source='images:/none' does not exist"
    task = {"name": "create-tfrecords", "display_name": "Create TFRecords", "seconds": 1.0}
    summary = {"state": "FAILED", "error": error, "tasks": [{**task, "state": "FAILED"}]}
    folder = tmp_path / "runs" / "one.europe-west4.123"
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text(json.dumps(summary))
    name = "projects/123/locations/europe-west4/pipelineJobs/one"
    job = types.PipelineJob(name=name, state="PIPELINE_STATE_RUNNING")
    PipelineEngine(tmp_path, None, Clock(), None).update(job)
    assert runs.failure_of(job, []) == "create-tfrecords: source='images:/none' does not exist"
    assert job.error.message == error


def test_job_ends_with_its_process_not_when_it_is_looked_at(tmp_path):
    folder = tmp_path / "runs" / "one.europe-west4.123"
    folder.mkdir(parents=True)
    for file, content, time in (("request", {"place": ""}, 1000), ("summary", {"tasks": []}, 1030)):
        (folder / f"{file}.json").write_text(json.dumps({**content, "state": "SUCCEEDED"}))
        os.utime(folder / f"{file}.json", (time, time))
    name = "projects/123/locations/europe-west4/pipelineJobs/one"
    job = types.PipelineJob(name=name, start_time=datetime.datetime(2027, 1, 1))
    PipelineEngine(tmp_path, None, Clock(), None).update(job)
    assert job.end_time.isoformat() == "2027-01-01T00:00:30+00:00"


def test_clocks_of_child_processes_are_ahead_as_the_emulators(monkeypatch):
    clock = Clock()
    clock.advance(datetime.timedelta(days=30))
    for name, value in clock.environment.items():
        monkeypatch.setenv(name, value)
    assert abs(Clock().now() - clock.now()) < datetime.timedelta(minutes=5)
