"""Check a PipelineSpec before anything of it runs.

Each reference names something that exists, each required input is given, each type fits, and each
step is a container with a command or an importer:
https://github.com/kubeflow/pipelines/blob/master/api/v2alpha1/pipeline_spec.proto
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from vertex.emulator.engine import expressions, placeholders
from vertex.errors import InputError
from vertex.facts.jobs import RUN_TASKS
from vertex.facts.json_numbers import Json, to_whole_numbers

_KINDS = ("parameters", "artifacts")
_POSITIVE = re.compile(r"[1-9][0-9]*")
_ANY_ARTIFACT = "system.Artifact"
_NUMBERS = ("NUMBER_INTEGER", "NUMBER_DOUBLE")
_TYPES: dict[str, type | tuple[type, ...]] = {
    "STRING": str,
    "NUMBER_DOUBLE": (int, float),
    "NUMBER_INTEGER": (int, float),
    "BOOLEAN": bool,
    "LIST": list,
    "STRUCT": dict,
}
"""The type of a parameter's JSON value, by its ParameterType."""


def check_spec(spec: Json) -> None:
    """Raise InputError for the first rule that a PipelineSpec breaks."""
    try:
        problem = "root has no dag"
        if "dag" in spec["root"]:
            problem = next(_check_component(spec, "root", spec["root"], (), set()), "")
            problem = problem or find_task_problem(count_steps(spec, spec["root"], {}))
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        problem = f"it is malformed: {error!r}"
    if problem:
        raise InputError(f"pipeline_spec: {problem}")


def find_task_problem(count: int) -> str:
    """Return an error message for more tasks than a run may have; else ""."""
    if count <= RUN_TASKS:
        return ""
    return f"the run has {count:,} tasks, but Vertex AI allows {RUN_TASKS:,}"


def count_steps(spec: Json, component: Json, known: dict[str, int]) -> int:
    """Return the number of tasks in a component, without groups, if each loop has one iteration.

    `known` gets the numbers of the components in it, by name.
    """
    if "dag" not in component:
        return 1
    kinds = [task["componentRef"]["name"] for task in component["dag"].get("tasks", {}).values()]
    for kind in kinds:
        if kind not in known:
            known[kind] = count_steps(spec, spec["components"][kind], known)
    return sum(known[kind] for kind in kinds)


def find_value_problem(name: str, definition: Json, value: Any) -> str:
    """Return an error message if a value does not fit a parameter's definition; else ""."""
    kind = definition.get("parameterType", "")
    if value is None and is_optional(definition):
        return ""
    fits = isinstance(value, _TYPES.get(kind, object))
    if kind in _NUMBERS and fits:
        whole = kind == "NUMBER_DOUBLE" or float(value).is_integer()
        fits = whole and not isinstance(value, bool)  # In Python, a bool is an int.
    value, choices = to_whole_numbers([value, definition.get("literals") or [value]])
    if not fits:
        return f"the parameter {name} is {json.dumps(value)[:80]}, which is not a {kind}"
    if value not in choices:
        return f"the parameter {name} is {json.dumps(value)[:80]}, not one of {json.dumps(choices)}"
    return ""


def find_accelerator_problem(container: Json) -> str:
    """Return an error message if a container asks for accelerators, but for no number; else ""."""
    accelerator = (container.get("resources") or {}).get("accelerator", {})
    count = str(accelerator.get("resourceCount", ""))
    if not accelerator or placeholders.is_in(count) or _POSITIVE.fullmatch(count):
        return ""
    return "the accelerator limit is not a positive integer"


def is_optional(definition: Json) -> bool:
    """Return whether an input may be left out."""
    return bool(definition.get("isOptional")) or "defaultValue" in definition


def is_loop(task: Json) -> bool:
    """Return whether a task's spec is that of a ParallelFor."""
    return "parameterIterator" in task or "artifactIterator" in task


def depends_on(task: Json) -> list[str]:
    """Return the names of the tasks of its DAG that a task waits for."""
    sources = [
        source for kind in _KINDS for source in task.get("inputs", {}).get(kind, {}).values()
    ]
    kinds = ("taskOutputParameter", "taskOutputArtifact", "taskFinalStatus")
    producers = [
        source[kind]["producerTask"] for source in sources for kind in kinds if kind in source
    ]
    return list(dict.fromkeys([*task.get("dependentTasks", []), *producers]))


def names_read(task: Json) -> set[str]:
    """Return the names of the inputs that a task's loop or condition reads."""
    iterator = task.get("parameterIterator") or task.get("artifactIterator") or {}
    items = iterator.get("items", {})
    looped = {items[key] for key in ("inputParameter", "inputArtifact") if key in items}
    return looped | expressions.find_names(task.get("triggerPolicy", {}).get("condition", ""))


def selectors_of(output: Json) -> list[Json]:
    """Return the selectors of the tasks' outputs that an output of a DAG comes from."""
    match output:
        case {"valueFromParameter": selector}:
            return [selector]
        case {"valueFromOneof": {"parameterSelectors": selectors}}:
            return list(selectors)
    return list(output["artifactSelectors"])


def _inputs(component: Json, kind: str) -> Json:
    found: Json = component.get("inputDefinitions", {}).get(kind, {})
    return found


def _outputs(component: Json, kind: str) -> Json:
    found: Json = component.get("outputDefinitions", {}).get(kind, {})
    return found


def _check_component(
    spec: Json, where: str, component: Json, ancestors: tuple[str, ...], checked: set[str]
) -> Iterator[str]:
    """Yield the problems of a component and of the tasks in it; `where` is its path.

    `ancestors` are the components that it is in, `checked` those without problems.
    """
    if "dag" not in component:
        executors = spec.get("deploymentSpec", {}).get("executors", {})
        for problem in _check_executor(component, executors.get(component.get("executorLabel"))):
            yield f"{where}: {problem}"
        return
    tasks = component["dag"].get("tasks", {})
    parts = {}
    for name, task in tasks.items():
        kind = task["componentRef"]["name"]
        if kind in ancestors or kind not in spec.get("components", {}):
            problem = "contains itself" if kind in ancestors else "does not exist"
            yield f"{where}: the component {kind} of the task {name} {problem}"
        parts[name] = spec["components"][kind]
    for problem in _check_dag(component, parts):
        yield f"{where}: {problem}"
    for name, task in tasks.items():
        kind = task["componentRef"]["name"]
        if kind not in checked:
            path, inner = f"{where}/{name}".removeprefix("root/"), (*ancestors, kind)
            yield from _check_component(spec, path, parts[name], inner, checked)
            checked.add(kind)


def _check_executor(component: Json, executor: Json | None) -> Iterator[str]:
    known = {name for kind in _KINDS for name in _inputs(component, kind)}
    if not executor:
        yield f"the executor {component.get('executorLabel')} does not exist"
    elif "container" in executor:
        container = executor["container"]
        words = [*container.get("command", []), *container.get("args", [])]
        if not words:
            yield f"the image {container['image']} is not run here; give its container a command"
        yield from filter(None, [placeholders.find_problem(word, known) for word in words])
    elif "importer" in executor:
        yield from filter(None, [placeholders.find_problem(executor, known)])
    else:
        yield f"{', '.join(executor)} does not run here, only a container or importer"


def _check_dag(component: Json, parts: Json) -> Iterator[str]:
    """Yield the problems of the order, inputs and outputs of the tasks of a DAG.

    `parts` are the components of its tasks.
    """
    tasks = component["dag"].get("tasks", {})
    waiting = {name: set(depends_on(task)) for name, task in tasks.items()}
    for name, earlier in waiting.items():
        for missing in sorted(earlier - tasks.keys()):
            yield f"the task {name} depends on {missing}, which does not exist"
    while ready := [name for name, earlier in waiting.items() if not earlier & waiting.keys()]:
        waiting = {name: earlier for name, earlier in waiting.items() if name not in ready}
    if waiting:
        yield f"the tasks {', '.join(sorted(waiting))} wait for each other"
    for name, task in tasks.items():
        for problem in _check_task(task, parts[name], component, parts):
            yield f"the task {name}: {problem}"
    for kind, outputs in component["dag"].get("outputs", {}).items():
        for name, output in outputs.items():
            for selector in selectors_of(output):
                producer = selector["producerSubtask"]
                key = selector[f"output{kind.title().removesuffix('s')}Key"]
                if key not in _outputs(parts.get(producer, {}), kind):
                    yield f"the output {name} is {key} of {producer}, which does not return it"


def _check_task(task: Json, component: Json, dag: Json, parts: Json) -> Iterator[str]:
    """Yield the problems of the inputs of a task of `dag`."""
    iterator = task.get("parameterIterator") or task.get("artifactIterator") or {}
    given = {kind: task.get("inputs", {}).get(kind, {}) for kind in _KINDS}
    known = {name for kind in _KINDS for name in (*given[kind], *_inputs(component, kind))}
    for kind in _KINDS:
        definitions = _inputs(component, kind)
        for name, source in given[kind].items():
            yield from _check_source(kind, name, source, definitions.get(name, {}), dag, parts)
        for name, definition in definitions.items():
            # The service gives a TASK_CONFIG.
            injected = definition.get("parameterType") == "TASK_CONFIG"
            present = name in given[kind] or name == iterator.get("itemInput") or injected
            if not present and not is_optional(definition):
                yield f"the input {name} is required, but is not given"
    yield from filter(None, [placeholders.find_problem(task, known)])
    for name in sorted(names_read(task) - {name for kind in _KINDS for name in given[kind]}):
        yield f"its loop or condition reads the input {name}, which is not given"


def _check_source(
    kind: str, name: str, source: Json, definition: Json, dag: Json, parts: Json
) -> Iterator[str]:
    """Yield a problem of what an input is given: it does not exist, or has another type."""
    wanted = _type_of(definition)
    if wanted == "TASK_FINAL_STATUS" and "taskFinalStatus" not in source:
        yield f"the input {name} takes only the final status of a task"
    match source:
        case {"runtimeValue": {"constant": value}}:
            if not placeholders.is_in(value):
                yield from filter(None, [find_value_problem(name, definition, value)])
        case {"componentInputParameter": origin} | {"componentInputArtifact": origin}:
            if origin not in _inputs(dag, kind):
                yield _explain_dangling(name, f"{origin}, which is not an input of its pipeline")
        case {"taskOutputParameter": {"producerTask": producer, "outputParameterKey": key}} | {
            "taskOutputArtifact": {"producerTask": producer, "outputArtifactKey": key}
        }:
            output = _outputs(parts[producer], kind).get(key)
            if output is None:
                yield _explain_dangling(name, f"{key} of {producer}, which does not return it")
            elif "parameterExpressionSelector" not in source:
                made = _type_of(output, is_loop(dag["dag"]["tasks"][producer]))
                if not _fits(made, wanted):
                    yield f"the input {name} is a {wanted}, but {key} of {producer} is a {made}"
        case {"taskFinalStatus": _}:
            pass
        case _:
            yield f"the input {name} is given {json.dumps(source)[:80]}, which is not supported"


def _explain_dangling(name: str, what: str) -> str:
    """Return the message for a reference to nothing."""
    # KFP's compiler does not pass on a loop's item, or its field, that only a text contains.
    hint = "; pass a loop's item as an argument of its own, not in a text"
    return f"the input {name} refers to {what}{hint if 'loop-item' in what else ''}"


def _type_of(definition: Json, in_loop: bool = False) -> str:
    """Return the type of an input or output; of an output of a loop, that of its iterations'."""
    if "artifactType" in definition:
        title = str(definition["artifactType"].get("schemaTitle", _ANY_ARTIFACT))
        return f"list of {title}" if in_loop or definition.get("isArtifactList") else title
    return "LIST" if in_loop else str(definition.get("parameterType", ""))


def _fits(made: str, wanted: str) -> bool:
    """Return whether an output's type may be passed to an input; an unknown type may."""
    if "" in (made, wanted) or {made, wanted} <= {*_NUMBERS}:
        return True
    alike = made.startswith("list of ") == wanted.startswith("list of ")
    return made == wanted or (alike and _ANY_ARTIFACT in made + wanted)
