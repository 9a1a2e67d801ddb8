"""The plugin of pytest, as somebody uses it whose tests know nothing of this project."""

import os
import subprocess
import sys

from tests.child_processes import ROOT

TESTS = """
import time
import pytest
from google.api_core import exceptions
from google.cloud import aiplatform, storage
from kfp import compiler, dsl


@dsl.component(base_image="python:3.11")
def add(a: int, b: int) -> int:
    return a + b


@dsl.container_component
def shout(text: str, loud: dsl.OutputPath(str)):
    return dsl.ContainerSpec(
        image="alpine", command=["sh", "-c", 'mkdir -p "$(dirname "$1")"; echo "$0!" > "$1"'],
        args=[text, loud])


@dsl.pipeline(name="sums")
def sums(a: int = 2) -> int:
    shout(text="hello")
    return add(a=a, b=3).output


@pytest.fixture
def job(vertex, tmp_path):
    compiler.Compiler().compile(sums, str(tmp_path / "sums.yaml"))
    aiplatform.init(project=vertex.project, location=vertex.location)
    return aiplatform.PipelineJob(
        display_name="sums", template_path=str(tmp_path / "sums.yaml"), enable_caching=False)


def test_pipeline_runs(vertex, job):
    job.submit()
    job.wait()
    assert job.state.name == "PIPELINE_STATE_SUCCEEDED"
    assert [name for name, _ in vertex.requests].count("CreatePipelineJob") == 1


def test_project_is_fresh(vertex, job):
    assert aiplatform.PipelineJob.list() == []
    assert list(storage.Client().list_blobs(vertex.bucket.removeprefix("gs://"))) == []


def test_fault_is_answered_once(vertex, job):
    vertex.fail("CreatePipelineJob", "PERMISSION_DENIED")
    with pytest.raises(exceptions.PermissionDenied, match="fails in this test"):
        job.submit()
    job.submit()


def test_schedule_fires_when_the_clock_is_set_forward(vertex, job):
    schedule = job.create_schedule(cron="0 3 * * *", display_name="nightly")
    assert schedule.list_jobs() == []
    vertex.advance_clock(days=1)
    (started,) = schedule.list_jobs()
    started.wait()
    assert started.state.name == "PIPELINE_STATE_SUCCEEDED"
"""


def test_tests_of_a_pipeline_pass(tmp_path):
    (tmp_path / "test_sums.py").write_text(TESTS)
    plugin = ["-p", "vertex.emulator.pytest_plugin", "--durations=9", "-vv", "--durations-min=0"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugin],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
