"""Google's SDK, as it is, runs a pipeline on the emulator, and reaches no other host of Google."""

import json
import os
import subprocess
import sys

import pytest
from kfp import dsl

from tests.pipelines.emulator.conftest import emulated
from tests.pipelines.local.package_runs import compile_to

PROGRAM = """
import json, sys, time

from google.api_core import exceptions
from google.cloud import aiplatform, bigquery, storage

aiplatform.init(project="my-project", location="us-central1")
job = aiplatform.PipelineJob(display_name="sums", template_path=sys.argv[1], enable_caching=False)
begin = time.monotonic()
job.submit()
seconds = time.monotonic() - begin
job.wait()
buckets = [bucket.name for bucket in storage.Client().list_buckets()]
try:
    bigquery.Client().query("SELECT 1")
except exceptions.GoogleAPICallError as error:
    refused = str(error)
listed = [run.display_name for run in aiplatform.PipelineJob.list()]
print(json.dumps([job.state.name, listed, seconds, buckets, refused]))
"""


@dsl.component(base_image="example.com/image:1", install_kfp_package=False)
def add(a: int, b: int) -> int:
    return a + b


@dsl.pipeline(name="sums")
def sums(a: int = 2) -> int:
    return add(a=a, b=3).output


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory):
    with emulated(tmp_path_factory.mktemp("emulator")) as started:
        yield started


def test_sdk_submits_without_settings_and_without_leaving_the_machine(rehearsal, tmp_path):
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **rehearsal.variables}
    ours = ("VERTEX_AI_", "VERTEX_")
    environment = {name: value for name, value in environment.items() if not name.startswith(ours)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(compile_to(tmp_path, sums))],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    state, listed, seconds, buckets, refused = json.loads(done.stdout.splitlines()[-1])
    assert (state, listed) == ("PIPELINE_STATE_SUCCEEDED", ["sums"])
    assert seconds < 10
    assert buckets[0] == "my-project-training"
    assert buckets[1].startswith("my-project-vertex-pipelines-us-central1")  # made by the SDK
    assert "bigquery.googleapis.com/bigquery/v2/projects/my-project/jobs is not emulated" in refused


def test_token_is_given_for_the_secret_alone(rehearsal):
    token = "import google.auth, google.auth.transport.requests as r; c, _ = google.auth.default();"
    token += "c._refresh_token += sys.argv[1]; c.refresh(r.Request()); print(c.token)"
    for more, code in (("", 0), ("x", 1)):
        done = subprocess.run(
            [sys.executable, "-c", f"import sys; {token}", more],
            env={"PATH": os.environ["PATH"], **rehearsal.variables},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == code, done.stderr
    assert "invalid_grant" in done.stderr
