"""PipelineSpecs of others run on the emulator as KFP defines them, or are refused when created."""

import contextlib
import json
import time
from typing import NamedTuple

import grpc
import pytest
import yaml
from google.api_core import exceptions
from google.cloud.aiplatform_v1 import PipelineServiceClient
from google.cloud.aiplatform_v1.types import PipelineJob
from google.protobuf import json_format
from google_cloud_pipeline_components.v1.custom_job import (
    create_custom_training_job_from_component,
)
from kfp import dsl

from tests.pipelines.local.package_runs import compile_to
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

    def create(self, pipeline, change=None, failure_policy="", job_id="", **parameters):
        """Create a job of a pipeline, whose PipelineSpec `change` may edit."""
        spec = yaml.safe_load(compile_to(self.folder, pipeline).read_text())
        if change:
            change(spec)
        config = {"gcsOutputDirectory": "gs://bucket/runs", "parameterValues": parameters}
        if failure_policy:
            config["failurePolicy"] = failure_policy
        content = {"displayName": "run", "pipelineSpec": spec, "runtimeConfig": config}
        job = PipelineJob(json_format.ParseDict(content, PipelineJob()._pb))
        return self.client.create_pipeline_job(
            parent=PARENT, pipeline_job=job, pipeline_job_id=job_id
        )

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
    return {name.removeprefix("output:"): text for name, text in found.execution.metadata.items()}


@dsl.container_component
def write(text: str, file: dsl.Output[dsl.Dataset]):
    return dsl.ContainerSpec("image", ["sh", "-c", 'echo "$0" > "$1"'], [text, file.path])


@dsl.container_component
def join(files: dsl.Input[list[dsl.Dataset]], text: dsl.OutputPath(str)):
    program = "import json, sys; out = open(sys.argv[2], 'w')\n"
    program += "for a in json.loads(sys.argv[1]): out.write(open(a['uri']).read())"
    return dsl.ContainerSpec("image", ["python3", "-c", program], [files, text])


@component
def double(number: int) -> int:
    return 2 * number


@component
def describe(value: dict) -> str:
    import json

    return json.dumps(value)


@dsl.container_component
def forget(text: dsl.OutputPath(str)):
    return dsl.ContainerSpec("image", ["sh", "-c", 'echo "$0"'], [text])


@dsl.pipeline(name="files")
def files():
    with dsl.ParallelFor([1, 2]) as x, dsl.ParallelFor(["3", "4"]) as y, dsl.If(y == "4"):
        written = write(text=y).after(double(number=x))
    join(files=dsl.Collected(written.outputs["file"]))


@dsl.pipeline(name="forgets")
def forgets():
    double(number=1).after(forget())


@dsl.container_component
def halve(number: dsl.OutputPath(int)):
    return dsl.ContainerSpec("image", ["sh", "-c", 'echo 2.5 > "$0"'], [number])


@dsl.pipeline(name="halves")
def halves():
    double(number=halve().output)


@dsl.pipeline(name="inner")
def inner(value: dict, text: str):
    describe(value=value)
    write(text=text)


@dsl.pipeline(name="nested")
def nested(name: str, number: int):
    value = {"list": [name, f"{name}-{number}", 1], "key": {"number": number}}
    inner(value=value, text=f"<{name}>")


@dsl.pipeline(name="training")
def training():
    job = create_custom_training_job_from_component(double, machine_type="n1-standard-4")
    job(number=21)


@dsl.pipeline(name="texts")
def texts():
    with dsl.ParallelFor([{"n": "a", "v": 1}]) as item:
        write(text=f"{item.n}={item.v}")


@dsl.pipeline(name="keys")
def keys(name: str):
    describe(value={f"{name}": 1})


@dsl.pipeline(name="compared")
def compared(name: str, other: str):
    with dsl.If(name == f"{other}"):
        describe(value={})


@dsl.pipeline(name="numbers")
def numbers(number: int):
    doubled = double(number=number)
    double(number=doubled.output)


@component
def look(file: dsl.Input[dsl.Dataset]) -> str:
    return file.uri


@dsl.pipeline(name="opens")
def opens(file: dsl.Input[dsl.Dataset]):
    look(file=file)


def test_list_of_a_container_components_files_is_an_argument(runner):
    job = runner.run(files)
    assert job.state.name == "PIPELINE_STATE_SUCCEEDED"
    assert outputs(job, "join") == {"text": "4\n4\n"}


@pytest.mark.parametrize(
    ("pipeline", "task", "reason"),
    [
        (forgets, "forget", "its output text was not written"),
        (halves, "halve", "the parameter number is 2.5, which is not a NUMBER_INTEGER"),
    ],
)
def test_output_that_is_missing_or_of_another_type_fails_its_task(runner, pipeline, task, reason):
    job = runner.run(pipeline)
    assert (states(job)[task], states(job)["double"]) == ("FAILED", "NOT_TRIGGERED")
    assert reason in job.error.message


def test_placeholder_is_resolved_in_lists_and_dicts_and_for_nested_pipelines(runner):
    job = runner.run(nested, name='a"b', number=7)
    value = {"list": ['a"b', 'a"b-7', 1], "key": {"number": 7}}
    assert json.loads(outputs(job, "describe")["Output"]) == value
    (file,) = runner.folder.glob("engine/runs/*/artifacts/inner/write/file")
    assert file.read_text() == '<a"b>\n'


def test_component_becomes_a_custom_job_that_returns_its_output(runner):
    job = runner.run(training)
    assert job.state.name == "PIPELINE_STATE_SUCCEEDED", job.error.message
    assert outputs(job, "double")["Output"] == "42"


def edit(path, value):
    """Return a function that sets, or for None deletes, what a path names in a PipelineSpec."""

    def change(spec):
        *parents, last = path.split("/")
        for name in parents:
            spec = spec[name]
        spec[last] = value
        if value is None:
            del spec[last]

    return change


TASKS = "root/dag/tasks"
SECOND = f"{TASKS}/double-2/inputs/parameters/number"


@pytest.mark.parametrize(
    ("pipeline", "change", "parameters", "reason"),
    [
        (texts, None, {}, "task for-loop-2: .*-[nv] refers to .*pass a loop's item as an argument"),
        (numbers, None, {"number": "3"}, 'parameter number is "3", which is not a NUMBER_INTEGER'),
        (numbers, None, {"number": 2.5}, "parameter number is 2.5, which is not a NUMBER_INTEGER"),
        (
            numbers,
            edit("root/inputDefinitions/parameters/number/literals", [2, 3]),
            {"number": 1},
            r"parameter number is 1, not one of \[2",
        ),
        (keys, None, {"name": "a"}, "the task describe: {{channel:.* was not compiled"),
        (compared, None, {"name": "a", "other": "a"}, "condition-1: {{channel:.*name=other"),
        (numbers, None, {}, "parameter number is required"),
        (opens, None, {}, "input artifact file is required"),
        (numbers, edit(f"{TASKS}/double-2/inputs", {}), {"number": 1}, "number is required, but"),
        (
            numbers,
            edit(SECOND, {"runtimeValue": {"constant": "x"}}),
            {"number": 1},
            'double-2: the parameter number is "x", which is not a NUMBER_INTEGER',
        ),
        (
            numbers,
            edit(f"{SECOND}/taskOutputParameter/outputParameterKey", "none"),
            {"number": 1},
            "double-2: the input number refers to none of double, which does not return it",
        ),
        (
            numbers,
            edit(f"{SECOND}/taskOutputParameter/producerTask", "none"),
            {"number": 1},
            "the task double-2 depends on none, which does not exist",
        ),
        (
            numbers,
            edit(f"{TASKS}/double/dependentTasks", ["double-2"]),
            {"number": 1},
            "double, double-2 wait for each other",
        ),
        (
            numbers,
            edit(
                "components/comp-double/outputDefinitions/parameters/Output/parameterType", "LIST"
            ),
            {"number": 1},
            "number is a NUMBER_INTEGER, but Output of double is a LIST",
        ),
        (
            numbers,
            edit(f"{TASKS}/double/componentRef/name", "none"),
            {"number": 1},
            "component none of the task double does not exist",
        ),
        (
            numbers,
            edit("deploymentSpec/executors/exec-double/container/args", ["{{$.workspace_path}}"]),
            {"number": 1},
            "double: the placeholder {{\\$.workspace_path}} is not supported",
        ),
        (numbers, edit("root/dag/tasks", []), {"number": 1}, "pipeline_spec: it is malformed"),
    ],
)
def test_invalid_spec_or_value_is_refused(runner, pipeline, change, parameters, reason):
    with pytest.raises(exceptions.InvalidArgument, match=reason):
        runner.create(pipeline, change=change, **parameters)


@component
def make_items() -> list:
    return [{"name": "a", "number": 1}, {"name": "b", "number": 2}]


@dsl.pipeline(name="items")
def items():
    with dsl.ParallelFor(make_items().output) as item, dsl.If(item.number == 2):
        write(text="taken")


@dsl.pipeline(name="ordered")
def ordered():
    with dsl.ParallelFor(make_items().output) as item, dsl.If(item.number > 1):
        write(text="taken")


def test_condition_compares_a_field_of_a_loops_item(runner):
    job = runner.run(items)
    taken = [task.state.name for task in job.job_detail.task_details if task.task_name == "write"]
    assert taken == ["NOT_TRIGGERED", "SUCCEEDED"]
    job = runner.run(ordered)  # KFP compiles the number to a text, which has no order with one.
    assert job.state.name == "PIPELINE_STATE_FAILED"
    assert "> '1'\" can't be evaluated" in job.error.message


@dsl.pipeline(name="listed")
def listed(numbers: list):
    with dsl.ParallelFor(numbers) as number:
        double(number=number)
        double(number=number)


def multiply(spec):
    """Nest a pipeline in a pipeline until there are 2 to the power of 15 tasks."""
    tasks = spec["root"]["dag"]["tasks"]
    given = {"componentInputParameter": "number"}
    for level in range(15):
        kind = f"comp-{level - 1}" if level else "comp-double"
        task = {"componentRef": {"name": kind}, "inputs": {"parameters": {"number": given}}}
        definitions = {"parameters": {"number": {"parameterType": "NUMBER_INTEGER"}}}
        dag = {"tasks": {"one": task, "two": task}}
        spec["components"][f"comp-{level}"] = {"inputDefinitions": definitions, "dag": dag}
    tasks["double-2"]["componentRef"]["name"] = "comp-14"


def test_run_has_at_most_ten_thousand_tasks(runner):
    with pytest.raises(exceptions.InvalidArgument, match="has 32,769 tasks, but Vertex AI allows"):
        runner.create(numbers, change=multiply, number=1)
    job = runner.run(listed, numbers=[*range(5001)])
    assert "the run has 10,002 tasks, but Vertex AI allows 10,000" in job.error.message


@dsl.container_component
def fail():
    return dsl.ContainerSpec("image", ["false"])


@dsl.container_component
def sleep(seconds: int):
    return dsl.ContainerSpec("image", ["sleep"], [seconds])


@component
def report(status: dsl.PipelineTaskFinalStatus) -> str:
    return status.state


@dsl.pipeline(name="fast")
def fast():
    fail()
    double(number=1).after(sleep(seconds=1))


@pytest.mark.parametrize(("policy", "state"), [("FAST", "NOT_TRIGGERED"), ("SLOW", "SUCCEEDED")])
def test_run_that_fails_fast_starts_no_more_tasks(runner, policy, state):
    job = runner.run(fast, failure_policy=f"PIPELINE_FAILURE_POLICY_FAIL_{policy}")
    assert job.state.name == "PIPELINE_STATE_FAILED"
    ended = states(job)
    assert (ended["sleep"], ended["double"]) == ("SUCCEEDED", state)


@dsl.pipeline(name="reports")
def reports():
    # A pipeline as the exit task: its tasks run, too.
    double(number=3).after(double(number=2))


@dsl.pipeline(name="exits")
def exits():
    with dsl.ExitHandler(report()):
        sleep(seconds=60)
    with dsl.ExitHandler(reports()):
        sleep(seconds=60)


def test_exit_tasks_run_when_a_run_is_cancelled(runner):
    job = runner.create(exits)
    while states(job).get("sleep") != "RUNNING" or states(job).get("sleep-2") != "RUNNING":
        job = runner.client.get_pipeline_job(name=job.name)
    runner.client.cancel_pipeline_job(name=job.name)
    job = runner.wait(job)
    assert job.state.name == "PIPELINE_STATE_CANCELLED"
    assert (states(job)["sleep"], outputs(job, "report")) == ("CANCELLED", {"Output": "CANCELLED"})
    assert outputs(job, "double") == {"Output": "6"}


@dsl.pipeline(name="limits")
def limits(count: str = "1", memory: str = "8G"):
    task = double(number=1)
    task.set_accelerator_type("NVIDIA_L4").set_accelerator_limit(count).set_memory_limit(memory)


def test_limits_of_a_step_may_be_parameters(runner):
    assert runner.run(limits).state.name == "PIPELINE_STATE_SUCCEEDED"
    job = runner.run(limits, count="none")
    assert job.error.message == "double: the accelerator limit is not a positive integer"


@dsl.pipeline(name="times")
def times():
    created = dsl.PIPELINE_JOB_CREATE_TIME_UTC_PLACEHOLDER
    describe(value={"times": [created, dsl.PIPELINE_JOB_SCHEDULE_TIME_UTC_PLACEHOLDER]})


def test_placeholders_of_times_are_those_of_the_run(runner):
    # The ID is one that a schedule gives.
    for job_id, scheduled in (("", ""), ("times-20300102030405-s1", "2030-01-02T03:04:05Z")):
        job = runner.run(times, job_id=job_id)
        created = f"{job.create_time:%Y-%m-%dT%H:%M:%SZ}"
        shown = json.loads(outputs(job, "describe")["Output"])
        assert shown == {"times": [created, scheduled or created]}


@component
def register(model: dsl.Output[dsl.Model], uri: str):
    model.uri = uri


@component
def move(file: dsl.Output[dsl.Dataset], path: str):
    import pathlib

    file.set_path(path)
    pathlib.Path(file.path).write_text("moved")


@component
def name_of(file: dsl.Input[dsl.Dataset]) -> str:
    import pathlib

    return f"{file.name} {pathlib.Path(file.path).read_text()}"


class Places(NamedTuple):
    name: str
    model: dsl.Model


@dsl.pipeline(name="places")
def places(path: str) -> Places:
    registered = register(uri="gs://elsewhere/model")
    named = name_of(file=move(path=path).outputs["file"])
    return Places(named.output, registered.outputs["model"])


def test_pipeline_returns_artifacts_of_other_places(runner):
    job = runner.run(places, path=str(runner.folder / "moved"))
    assert job.state.name == "PIPELINE_STATE_SUCCEEDED", job.error.message
    root = job.job_detail.task_details[0]
    assert root.task_name == job.name.rpartition("/")[2]
    assert outputs(job, root.task_name) == {"name": "file moved"}
    assert root.outputs["model"].artifacts[0].uri == "gs://elsewhere/model"


@dsl.pipeline(name="own")
def own():
    file = dsl.importer(artifact_uri="gs://bucket/file", artifact_class=dsl.Dataset).output
    name_of(file=file)


def test_importer_reads_the_emulators_own_bucket(runner):
    bucket = runner.folder / "engine" / "buckets" / "bucket"
    bucket.mkdir(parents=True)
    (bucket / "file").write_text("text")
    assert outputs(runner.run(own), "name-of") == {"Output": "artifact text"}
