"""The parts of kfp.local that are replaced, which a new version of kfp may move."""

import importlib.metadata
import inspect
import json
import sys
from pathlib import Path

import pytest

from pipelines import local_programs
from pipelines.json_files import to_whole_numbers
from pipelines.local import bucket_executor, kfp_patches

INPUTS = {
    "inputs": {"parameterValues": {"pools": [{"count": 2.0, "rate": 0.5}], "name": 'a "b"'}},
    "outputs": {"outputFile": "/tmp/out.json"},
}


def test_pinned_kfp_calls_the_replaced_function():
    from kfp.local.orchestrator import dag_orchestrator, enhanced_dag_orchestrator, task_executor

    assert importlib.metadata.version("kfp") == "2.17.0"
    for orchestrator in (dag_orchestrator, enhanced_dag_orchestrator):
        source = " ".join(inspect.getsource(orchestrator).split())
        assert "task_executor.execute_single_task( task_name=" in source
    before = task_executor.execute_single_task
    executor = kfp_patches.TaskExecutor(None, {}, "/artifacts", None)
    with executor.applied():
        assert task_executor.execute_single_task == executor.execute
    assert task_executor.execute_single_task is before


def test_executor_of_a_component_is_replaced():
    from kfp.dsl.types import artifact_types

    from components.collect_training import collect_training

    container = collect_training.component_spec.implementation.container
    words = ["python3", *container.command[1:], *container.args]
    command = local_programs.component_program("", bucket_executor.replace_executor(words)).command
    assert command[:3] == [sys.executable, "-m", "pipelines.local.bucket_executor"]
    file = command[command.index("--component_module_path") + 1]
    assert "\ndef collect_training(" in Path(file).read_text()
    assert artifact_types._GCS_LOCAL_MOUNT_PREFIX == "/gcs/"


def resolve(element):
    """Resolve one element of a command."""
    values = to_whole_numbers(INPUTS)
    names = ("task_resource_name", "pipeline_root", "pipeline_job_id")
    others = dict.fromkeys(names, "x")
    constants = kfp_patches.make_constants("digits-1")
    (resolved,) = kfp_patches.resolve_placeholders([element], values, constants=constants, **others)
    return resolved


@pytest.mark.parametrize(
    ("element", "value"),
    [
        ("{{$.pipeline_google_cloud_project_id}}/x", "local/x"),
        ("{{$.pipeline_google_cloud_location}}", "local"),
        ("{{$.pipeline_persistent_resource_id}}", ""),
        ("{{$.pipeline_job_name}}", "digits-1"),
        ("{{$.pipeline_job_uuid}}", "x"),
        ("{{$.inputs.parameters['pools']}}", '[{"count": 2, "rate": 0.5}]'),
        ("x={{$.inputs.parameters['name']}}", 'x=a "b"'),
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
