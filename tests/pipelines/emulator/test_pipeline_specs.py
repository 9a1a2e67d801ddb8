"""PipelineSpecs of others run on the emulator as KFP defines them, or are refused when created."""

import contextlib
import json
import time

import grpc
import pytest
from google.api_core import exceptions
from google.cloud.aiplatform_v1 import PipelineServiceClient
from google.cloud.aiplatform_v1.types import PipelineJob
from google.protobuf import json_format
from kfp import dsl

from tests.pipelines.local.package_runs import compile_to
from vertex import checked_json
from vertex.emulator.clock import Clock
from vertex.emulator.engine.pipeline_engine import PipelineEngine
from vertex.emulator.engine.task_processes import Services
from vertex.emulator.job_service import JobService
from vertex.emulator.operations import Operations
from vertex.emulator.pipeline_service import PipelineService
from vertex.emulator.processes import Guardian
from vertex.emulator.server import Emulator

PARENT = "projects/my-project/locations/us-central1"
component = dsl.component(base_image="example.com/image:1", install_kfp_package=False)


class Runner:
    """Creates PipelineJobs with the official client; returns them as they have ended."""

    def __init__(self, folder, client):
        self.folder, self.client = folder, client

    def create(self, pipeline, change=None, failure_policy="", **parameters):
        """Create a job of a pipeline, whose PipelineSpec `change` may edit."""
        spec = checked_json.parse_yaml(compile_to(self.folder, pipeline).read_text())
        if change:
            change(spec)
        config = {"gcsOutputDirectory": "gs://bucket/runs", "parameterValues": parameters}
        if failure_policy:
            config["failurePolicy"] = failure_policy
        content = {"displayName": "run", "pipelineSpec": spec, "runtimeConfig": config}
        job = PipelineJob(json_format.ParseDict(content, PipelineJob()._pb))
        return self.client.create_pipeline_job(parent=PARENT, pipeline_job=job)

    def run(self, pipeline, **options):
        return self.wait(self.create(pipeline, **options))

    def wait(self, job):
        while not job.end_time:
            time.sleep(0.05)
            job = self.client.get_pipeline_job(name=job.name)
        return job


@pytest.fixture
def runner(tmp_path):
    operations = Operations()
    with contextlib.ExitStack() as stack:
        guardian = stack.enter_context(Guardian())
        jobs = JobService(operations, directory=tmp_path / "jobs", guardian=guardian)
        jobs = stack.enter_context(jobs)
        engine = PipelineEngine(tmp_path / "engine", Clock(), lambda _: "", explain)
        stack.callback(engine.close)
        pipelines = PipelineService(operations, None, engine.clock, engine=engine)
        emulator = stack.enter_context(Emulator(jobs, pipelines, operations, guardian=guardian))
        engine.services = Services(emulator, (jobs,), guardian)
        channel = stack.enter_context(grpc.insecure_channel(emulator.socket))
        transport = PipelineServiceClient.get_transport_class("grpc")(channel=channel)
        yield Runner(tmp_path, PipelineServiceClient(transport=transport))


def explain(run):
    return f"{run.failed.path}: {run.failed.error}" if run.failed else ""


def states(job):
    return {task.task_name: task.state.name for task in job.job_detail.task_details}


def outputs(job, task):
    """Return the output parameters of a task by name."""
    (found,) = [item for item in job.job_detail.task_details if item.task_name == task]
    values = dict(found.execution.metadata)
    return {name.removeprefix("output:"): value for name, value in values.items()}
