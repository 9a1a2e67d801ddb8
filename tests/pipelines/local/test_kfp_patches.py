"""The modules of kfp.local that this package reaches into are as they were when it was written."""

import importlib.metadata
import inspect
import json
import sys
from pathlib import Path

import pytest

from pipelines.emulator import environment
from pipelines.local import bucket_executor, kfp_patches
from pipelines.local.cache import WholeCache, fingerprint

INPUTS = {
    "inputs": {"parameterValues": {"pools": [{"count": 2.0, "rate": 0.5}], "name": 'a "b"'}},
    "outputs": {"outputFile": "/tmp/out.json"},
}


class NoTasks:
    def begin(self, task):
        raise NotImplementedError

    execute = end = begin


@pytest.fixture
def resolve():
    """kfp's own door, opened: resolves one element of a command."""
    from kfp.local import placeholder_utils

    def call(element):
        return placeholder_utils.resolve_individual_placeholder(
            element=element,
            executor_input_dict=INPUTS,
            pipeline_resource_name="small",
            task_resource_name="task",
            pipeline_root="/root",
            pipeline_job_id="1",
            pipeline_task_id="2",
        )

    with kfp_patches.applied(NoTasks(), cache=WholeCache, run_name="digits-1"):
        yield call


def test_the_doors_belong_to_the_pinned_kfp():
    assert importlib.metadata.version("kfp") == "2.17.0"


def test_every_door_is_where_kfp_looks_it_up():
    from kfp.local import cache, task_dispatcher
    from kfp.local.orchestrator import dag_orchestrator, enhanced_dag_orchestrator, task_executor

    def source(thing):
        return " ".join(inspect.getsource(thing).split())

    for orchestrator in (dag_orchestrator, enhanced_dag_orchestrator):
        assert "task_executor.execute_single_task( task_name=" in source(orchestrator)
    dispatcher = source(task_dispatcher.run_single_task_implementation)
    assert "subprocess_task_handler.SubprocessTaskHandler" in dispatcher
    assert "executor_input_utils.construct_local_task_root(" in dispatcher
    assert "executor_input_utils.construct_executor_input(" in dispatcher
    assert "placeholder_utils.replace_placeholders(" in dispatcher
    assert "cache_module.get_local_cache()" in source(task_executor.execute_single_task)
    assert "LocalCache(cache_root=" in source(cache.get_local_cache)


def test_kfps_executor_is_in_a_components_command_and_has_its_mount_where_it_is_moved():
    from kfp.dsl.types import artifact_types

    from components.collect_training import collect_training

    container = collect_training.component_spec.implementation.container
    command = environment.local_command(
        bucket_executor.replace_executor(["python3", *container.command[1:], *container.args])
    )
    assert command[:3] == [sys.executable, "-m", "pipelines.local.bucket_executor"]
    file = command[command.index("--component_module_path") + 1]
    assert "\ndef collect_training(" in Path(file).read_text()
    assert artifact_types._GCS_LOCAL_MOUNT_PREFIX == "/gcs/"


def test_doors_are_shut_again():
    from kfp.local import cache, placeholder_utils, subprocess_task_handler

    modules = (cache, placeholder_utils, subprocess_task_handler)
    before = [dict(vars(module)) for module in modules]
    with kfp_patches.applied(NoTasks(), cache=WholeCache, run_name="digits-1"):
        assert cache.LocalCache is WholeCache
    assert [dict(vars(module)) for module in modules] == before


@pytest.mark.parametrize(
    ("element", "value"),
    [
        ("{{$.pipeline_google_cloud_project_id}}/x", "local/x"),
        ("{{$.pipeline_google_cloud_location}}", "local"),
        ("{{$.pipeline_persistent_resource_id}}", ""),
        ("{{$.pipeline_job_name}}", "digits-1"),
        ("{{$.pipeline_task_uuid}}", "2"),
        ("{{$.inputs.parameters['pools']}}", '[{"count": 2, "rate": 0.5}]'),
        ("x={{$.inputs.parameters['name']}}", 'x=a "b"'),
    ],
)
def test_placeholders_of_vertex_ai_get_their_values(resolve, element, value):
    assert resolve(element) == value


def test_json_escape_embeds_a_value_in_json(resolve):
    escaped = resolve('{"input": "{{$.json_escape[1]}}"}')
    assert json.loads(json.loads(escaped)["input"])["outputs"] == INPUTS["outputs"]
    twice = resolve("""{"n": "{{$.inputs.parameters['name'].json_escape[1]}}"}""")
    assert json.loads(twice) == {"n": 'a "b"'}


def test_whole_numbers_are_integers_again_and_others_stay():
    given = {"a": [2.0, 0.5, True, "2.0", None], "b": {"c": -1.0, "d": float("inf")}}
    expected = {"a": [2, 0.5, True, "2.0", None], "b": {"c": -1, "d": float("inf")}}
    assert json.dumps(kfp_patches.whole_numbers(given)) == json.dumps(expected)


@pytest.mark.parametrize(
    "command",
    [
        ["sh", "-c", "def f():\n    from trainer.writer import write"],
        ["python3", "-m", "kfp.dsl.executor_main", "--function_to_execute", "step"],
    ],
)
def test_the_code_behind_a_component_is_part_of_the_key(tmp_path, monkeypatch, command):
    (tmp_path / "components").mkdir()
    (tmp_path / "components" / "step.py").write_text("from trainer.writer import write\n")

    def write(**modules):
        for name, text in modules.items():
            path = tmp_path / "trainer" / f"{name}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        return fingerprint(command)

    monkeypatch.setattr("pipelines.local.cache._ROOT", tmp_path)
    writer = "from trainer import (\n    schema,\n)"
    first = write(writer=writer, schema="A = 1", models="B = 1")
    assert write(models="B = 2") == first
    assert write(schema="A = 2") != first
    assert write(schema="A = 1") == first
    kinds = tmp_path / "trainer" / "kinds"
    kinds.mkdir()
    (kinds / "__init__.py").write_text("from trainer import plugins")
    (kinds / "one.py").write_text("C = 1")
    declared = write(schema="from trainer import kinds")
    (kinds / "one.py").write_text("C = 2")
    assert len({first, declared, write()}) == 3
    write(schema="A = 1")
    (tmp_path / "requirements.lock").write_text("pillow==12.1.0")
    locked = write()
    (tmp_path / "requirements.lock").write_text("pillow==12.2.0")
    assert len({first, locked, write()}) == 3
