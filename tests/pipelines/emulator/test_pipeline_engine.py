"""Any compiled pipeline runs by its PipelineSpec: loops, branches, importers, exit tasks."""

import json
import sys
from pathlib import Path

import pytest
from kfp import dsl

from pipelines.local import local_programs
from tests.pipelines.local.package_runs import compile_to, run_package
from vertex.emulator.engine import bucket_executor, expressions, placeholders
from vertex.facts.json_numbers import to_whole_numbers

component = dsl.component(base_image="example.com/image:1", install_kfp_package=False)


@component
def double(number: int) -> int:
    if number < 0:
        raise ValueError("a negative number")
    return 2 * number


@component
def add(numbers: list) -> int:
    return sum(numbers)


@component
def write(text: str, file: dsl.Output[dsl.Artifact]):
    import pathlib

    pathlib.Path(file.path).write_text(text)
    file.metadata["length"] = len(text)


@component
def read(files: dsl.Input[list[dsl.Artifact]]) -> str:
    import pathlib

    return " ".join(pathlib.Path(file.path).read_text() for file in files)


@component
def describe(status: dsl.PipelineTaskFinalStatus) -> str:
    return f"{status.pipeline_task_name} {status.state}"


@component
def look(artifact: dsl.Input[dsl.Dataset]) -> str:
    return f"{artifact.uri} {artifact.metadata['rows']}"


@dsl.pipeline(name="loop")
def loop(items: list):
    with dsl.ParallelFor(items=items) as item:
        doubled = double(number=item).set_caching_options(False)
        written = write(text=f"n{item}").set_caching_options(False)
    add(numbers=dsl.Collected(doubled.output)).set_caching_options(False)
    read(files=dsl.Collected(written.outputs["file"])).set_caching_options(False)


@dsl.pipeline(name="branches")
def branches(number: int, name: str = "a'b") -> int:
    with dsl.If(number > 3):
        large = double(number=number).set_caching_options(False)
    with dsl.Elif(number == 3):
        equal = double(number=30).set_caching_options(False)
    with dsl.Else():
        small = double(number=1).set_caching_options(False)
    chosen = dsl.OneOf(large.output, equal.output, small.output)
    last = double(number=chosen).set_caching_options(False)
    return last.output


@dsl.pipeline(name="exits")
def exits(number: int):
    with dsl.ExitHandler(describe()):
        double(number=number).set_caching_options(False)


@dsl.pipeline(name="imports")
def imports(uri: str = "gs://bucket/data", rows: int = 7):
    kinds = {"artifact_class": dsl.Dataset, "metadata": {"rows": rows}}
    imported = dsl.importer(artifact_uri=uri, reimport=False, **kinds)
    look(artifact=imported.output).set_caching_options(False)


@dsl.pipeline(name="many")
def many(uris: list):
    with dsl.ParallelFor(items=uris) as uri:
        imported = dsl.importer(artifact_uri=uri, artifact_class=dsl.Artifact, reimport=False)
    read(files=dsl.Collected(imported.output)).set_caching_options(False)


@pytest.fixture
def run(tmp_path):
    """Run a pipeline; return its state, and the states of its tasks by path."""

    def run(pipeline, **parameters):
        result, _ = run_package(compile_to(tmp_path, pipeline), tmp_path / "runs", parameters)
        return result.state, {task["name"]: task["state"] for task in result.summary["tasks"]}

    return run


@pytest.fixture
def output(tmp_path):
    """Read the output of a task of the last run."""
    from vertex.emulator.engine.output_cache import Journal

    return lambda task: Journal(tmp_path / "runs" / "latest").get(task)["Output"]


def test_loop_runs_each_iteration_and_collects_their_outputs(run, output):
    state, tasks = run(loop, items=[1, 2, 3])
    assert state == "SUCCEEDED"
    assert tasks["for-loop-1-iteration-2/double"] == "SUCCEEDED"
    assert output("for-loop-1-iteration-2/double") == 6
    assert output("add") == 12
    assert output("read") == "n1 n2 n3"


def test_failed_iteration_fails_the_run(run):
    state, tasks = run(loop, items=[1, -2, 3])
    assert state == "FAILED"
    names = ("for-loop-1-iteration-0/double", "for-loop-1-iteration-1/double", "add")
    assert [tasks[name] for name in names] == ["SUCCEEDED", "FAILED", "NOT_TRIGGERED"]


@pytest.mark.parametrize(("number", "taken", "value"), [(4, 0, 16), (3, 1, 120), (2, 2, 4)])
def test_one_branch_is_taken_and_its_output_passed_on(run, output, number, taken, value):
    state, tasks = run(branches, number=number)
    assert state == "SUCCEEDED"
    states = [tasks[name] for name in ("double", "double-2", "double-3")]
    assert states == ["SUCCEEDED" if n == taken else "SKIPPED" for n in range(3)]
    assert output("double-4") == value


@pytest.mark.parametrize(("number", "state"), [(1, "SUCCEEDED"), (-1, "FAILED")])
def test_exit_task_runs_after_failures_and_is_told_the_state(run, output, number, state):
    assert run(exits, number=number)[0] == state
    assert output("describe") == f"exit-handler-1 {state}"


def test_importer_returns_an_artifact_with_its_metadata(run, output):
    assert run(imports)[0] == "SUCCEEDED"
    assert output("look") == "gs://bucket/data 7"


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("inputs.parameter_values['n'] >= 3 && inputs.parameter_values['s'] != 'x && y'", True),
        ("!(inputs.parameter_values['n'] == 3) || inputs.parameter_values['b'] == true", False),
        ("int(inputs.parameter_values['s']) == 7", True),
        ('parseJson(string_value)["a"]', [1]),
    ],
)
def test_expression_has_its_value(expression, value):
    parameters = {"n": 3.0, "s": "7", "b": False}
    assert expressions.evaluate(expression, parameters, '{"a": [1]}') == value


@pytest.mark.parametrize(
    "expression",
    ["__import__('os')", "inputs.parameter_values['none']", "1 +", "open('x')", "''.x"],
)
def test_expression_of_anything_else_is_refused(expression):
    with pytest.raises(ValueError, match="can't be evaluated"):
        expressions.evaluate(expression, {})


INPUTS = {
    "inputs": {"parameterValues": {"pools": [{"count": 2.0, "rate": 0.5}], "name": 'a "b"'}},
    "outputs": {"outputFile": "/tmp/out.json"},
}


def resolve(element):
    """Resolve one element of a command."""
    constants = placeholders.make_constants("digits-1", "project", "europe-west4")
    (word,) = placeholders.resolve_command([element], to_whole_numbers(INPUTS), constants)
    return word


@pytest.mark.parametrize(
    ("element", "value"),
    [
        ("{{$.pipeline_google_cloud_project_id}}/x", "project/x"),
        ("{{$.pipeline_google_cloud_location}}", "europe-west4"),
        ("{{$.pipeline_persistent_resource_id}}", ""),
        ("{{$.pipeline_job_name}}", "digits-1"),
        ("{{$.inputs.parameters['pools']}}", '[{"count": 2, "rate": 0.5}]'),
        ("x={{$.inputs.parameters['name']}}", 'x=a "b"'),
        ('{"Concat": ["a", {"IfPresent": {"InputName": "name", "Then": "b"}}]}', "ab"),
    ],
)
def test_placeholder_gets_its_value(element, value):
    assert resolve(element) == value


def test_json_escape_embeds_a_value_in_json():
    escaped = resolve('{"input": "{{$.json_escape[1]}}"}')
    assert json.loads(json.loads(escaped)["input"])["outputs"] == INPUTS["outputs"]
    twice = resolve("""{"n": "{{$.inputs.parameters['name'].json_escape[1]}}"}""")
    assert json.loads(twice) == {"n": 'a "b"'}


def test_only_whole_numbers_become_integers():
    values = {"a": [2.0, 0.5, True, "2.0", None], "b": {"c": -1.0, "d": float("inf")}}
    expected = {"a": [2, 0.5, True, "2.0", None], "b": {"c": -1, "d": float("inf")}}
    assert json.dumps(to_whole_numbers(values)) == json.dumps(expected)


def test_executor_of_a_component_is_replaced():
    from kfp.dsl.types import artifact_types

    from components.collect_training import collect_training

    container = collect_training.component_spec.implementation.container
    words = ["python3", *container.command[1:], *container.args]
    command = local_programs.component_program("", bucket_executor.replace_executor(words)).command
    assert command[:3] == [sys.executable, "-m", "vertex.emulator.engine.bucket_executor"]
    file = command[command.index("--component_module_path") + 1]
    assert "\ndef collect_training(" in Path(file).read_text()
    assert artifact_types._GCS_LOCAL_MOUNT_PREFIX == "/gcs/"


def test_task_has_at_most_a_hundred_artifacts(tmp_path):
    def run(count):
        files = [tmp_path / str(number) for number in range(count)]
        for file in files:
            file.write_text("x")
        package = compile_to(tmp_path, many)
        return run_package(package, tmp_path / "runs", {"uris": list(map(str, files))})

    assert run(100)[0].state == "SUCCEEDED"
    result, shown = run(101)
    assert result.state == "FAILED"
    assert "error: read: it has 101 input and output artifacts, but Vertex AI allows 100" in shown
