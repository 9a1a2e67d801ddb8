"""An execution of a PipelineSpec: its tasks in their order, branches, loops, retries and results.

    run = PipelineRun(spec, parameters, folder=..., artifacts=..., constants=..., processes=...)
    run.execute()
    [(task.path, task.state) for task in run.tasks]

A task runs in a thread that first waits for the tasks on which it depends, so tasks that don't
depend on each other run at the same time. After a failure, tasks that don't depend on the failed
one still run, unless the run fails fast. The task of an exit handler runs in any case, even in a
run that is cancelled.
"""

import concurrent.futures
import contextlib
import dataclasses
import functools
import itertools
import json
import logging
import os
import pathlib
import re
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from vertex import checked_json
from vertex.emulator.engine import expressions, output_cache, task_inputs
from vertex.emulator.engine.placeholders import resolve_command, resolve_inputs, resolve_json
from vertex.emulator.engine.spec_rules import (
    count_steps,
    depends_on,
    find_accelerator_problem,
    find_task_problem,
    is_loop,
    is_optional,
    names_read,
    selectors_of,
)
from vertex.emulator.engine.task_inputs import ABSENT, MISSING, UNTAKEN
from vertex.emulator.engine.task_processes import TaskProcesses, link_artifacts
from vertex.facts.jobs import TASK_ARTIFACTS, TASK_BYTES
from vertex.facts.json_numbers import Json, to_whole_numbers

TASK_ENDED = ("SUCCEEDED", "FAILED", "CANCELLED", "SKIPPED", "CACHED", "NOT_TRIGGERED")
DONE = ("SUCCEEDED", "CACHED", "SKIPPED")
"""States after which the tasks that depend on a task run."""
_TRANSPARENT = re.compile(r"comp-(condition|condition-branches|exit-handler)-\d+")
"""Groups of tasks whose name is not part of the paths of their tasks."""
_EXIT_HANDLER = re.compile(r"exit-handler-\d+")
"""The group of tasks after which the task of an exit handler runs."""


@dataclasses.dataclass(eq=False)
class Task:
    """A task of a run, or a group of tasks: a branch, a loop, an iteration or a nested pipeline."""

    number: int  # 1 is the pipeline itself
    parent: "Task | None"  # the group that it is in; None: it is in the root
    name: str  # its name in the spec; of an iteration, <loop>-iteration-<n>
    path: str  # unique in the run
    display_name: str
    spec: Json  # its PipelineTaskSpec; of an iteration, that of its loop
    component: Json  # its ComponentSpec
    log: pathlib.Path
    # PENDING, RUNNING, then one of `TASK_ENDED`: SKIPPED if its branch was not taken, NOT_TRIGGERED
    # if an earlier task failed.
    state: str = "PENDING"
    returncode: int | None = None  # of its process, after the end
    error: str = ""  # why it failed, if not by its process
    started: float = 0.0  # seconds since 1970; 0 if it has not started
    ended: float = 0.0  # seconds since 1970; 0 if it has not ended
    outputs: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def is_group(self) -> bool:
        return "dag" in self.component

    @property
    def seconds(self) -> float:
        """Return the seconds from start to end, or so far; 0 before the start."""
        return max(0.0, (self.ended or time.time()) - self.started) if self.started else 0.0

    def set_state(self, state: str) -> None:
        """Change the state, and note the time of start and end."""
        now = time.time()
        if state in ("RUNNING", "CACHED") and not self.started:
            self.started = now
        if state in TASK_ENDED and self.started:
            self.ended = now
        self.state = state


@dataclasses.dataclass(frozen=True)
class Result:
    """The end of a task: its state, outputs and error."""

    state: str
    outputs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # Whether it, or a task that it depends on, ran in this attempt rather than in an earlier one.
    is_new: bool = True
    error: str = ""


@dataclasses.dataclass(frozen=True)
class _Scope:
    """The values that the tasks of a DAG refer to."""

    arguments: Json  # values of the DAG's inputs
    is_new: bool  # as in `Result`, of the DAG's own dependencies
    results: Mapping[str, "concurrent.futures.Future[Result]"]  # by the name of the task


@dataclasses.dataclass(eq=False, kw_only=True)
class PipelineRun:
    """A run of a pipeline."""

    spec: Json  # the PipelineSpec as JSON
    parameters: Json  # values of all of its parameters
    folder: pathlib.Path  # gets the journal and, in artifacts/, output parameters
    artifacts: str  # path or URI of the folder of the run's artifacts
    constants: Json  # values of placeholders, as in `placeholders.resolve`
    processes: TaskProcesses  # starts the processes of tasks
    cache: pathlib.Path | None  # folder of outputs that runs share; None: reuse no outputs
    code_of: Callable[[list[str]], str]  # returns a digest of the code of a command, for the cache
    retries: bool = True  # try a failed task again as its retry policy says
    fails_fast: bool = False  # start no tasks after one has failed
    # Returns the path on this machine of a URI in a bucket, or the URI if it has none.
    to_local: Callable[[str], str] = str
    links_reused: bool = False  # link outputs of other runs into this run's folder

    def __post_init__(self) -> None:
        self._remote = self.processes.in_bucket
        self._journal = output_cache.Journal(self.folder, remote=self._remote)
        self._failing = threading.Event()  # set once a task has failed
        self._lock = threading.Lock()
        self.started = time.time()
        self.tasks: list[Task] = []  # in the order of the spec; iterations are added
        log = self.folder / "logs" / "pipeline.log"
        self.root = Task(1, None, "", "", "", {}, self.spec["root"], log)
        self.root.set_state("RUNNING")
        self._expand(self.spec["root"], None, "")

    @property
    def steps(self) -> list[Task]:
        """Return the tasks without groups."""
        return [task for task in list(self.tasks) if not task.is_group]

    @property
    def failed(self) -> Task | None:
        """Return the first task that failed, if any; a group only if no task in it did."""
        failed = [task for task in [*self.steps, *self.tasks] if task.state == "FAILED"]
        return next((task for task in failed if task.error or not task.is_group), None)

    def execute(self) -> str:
        """Run the pipeline to its end; return SUCCEEDED, FAILED or CANCELLED."""
        result = self._run_dag(None, self.parameters, is_new=False)
        self.root.outputs = result.outputs
        self.close(result.state)
        return result.state

    def close(self, state: str) -> None:
        """Set a final state for every task that has none; `state` is the run's."""
        for task in self.tasks:
            if task.state == "PENDING":
                task.set_state("SKIPPED" if state == "SUCCEEDED" else "NOT_TRIGGERED")
            elif task.state == "RUNNING":
                task.set_state("CANCELLED")
        self.root.set_state(state)

    def _expand(self, component: Json, group: Task | None, prefix: str) -> None:
        """List the tasks of a DAG, except those of loops, after the group that it is."""
        for name, spec in in_order(component["dag"].get("tasks", {})):
            kind = spec["componentRef"]["name"]
            inner = self.spec["components"][kind]
            display_name = spec.get("taskInfo", {}).get("name", name)
            task = self._add(group, name, f"{prefix}{name}", display_name, spec, inner)
            if task.is_group and not is_loop(spec):
                own = "" if _TRANSPARENT.fullmatch(kind) else f"{name}/"
                self._expand(inner, task, f"{prefix}{own}")

    def _add(
        self,
        group: Task | None,
        name: str,
        path: str,
        display_name: str,
        spec: Json,
        component: Json,
    ) -> Task:
        """List a task after the others of its group."""
        with self._lock:
            position = len(self.tasks)
            if group and self.tasks:
                position = max(n for n, task in enumerate(self.tasks) if is_in(task, group)) + 1
            # Logs are found by name; in a loop, the iterations have the same names.
            log = self.folder / "logs" / f"{path.replace('/', '.')}.log"
            number = len(self.tasks) + 2
            task = Task(number, group, name, path, display_name, spec, component, log)
            self.tasks.insert(position, task)
            return task

    def _run_dag(self, group: Task | None, arguments: Json, is_new: bool) -> Result:
        """Run the tasks of a group to their ends, or those of the root."""
        component = group.component if group else self.spec["root"]
        tasks = {task.name: task for task in list(self.tasks) if task.parent is group}
        results: dict[str, concurrent.futures.Future[Result]] = {}
        given = {name: value for name, value in arguments.items() if value is not ABSENT}
        scope = _Scope({**task_inputs.defaults_of(component), **given}, is_new, results)
        # Those that a task depends on come before it.
        for name, task in tasks.items():
            run = functools.partial(self._run_task, task, scope)
            results[name] = run_in_thread(f"task-{name}", run)
        ended = {name: future.result() for name, future in results.items()}
        outputs = collect_outputs(component["dag"].get("outputs", {}), ended)
        return combine(ended.values(), outputs)

    def _run_task(self, task: Task, scope: _Scope) -> Result:
        """Run a task once the tasks that it depends on have ended; raise nothing."""
        try:
            earlier = [scope.results[name].result() for name in depends_on(task.spec)]
            result = Result("NOT_TRIGGERED")
            if self._is_triggered(task, earlier):
                is_new = scope.is_new or any(result.is_new for result in earlier)
                result = self._run_triggered(task, scope, is_new)
        except Exception as error:
            task.error = f"{type(error).__name__}: {error}"
            with contextlib.suppress(OSError), task.log.open("a") as log:
                traceback.print_exc(file=log)
            result = Result("FAILED", error=task.error)
        task.outputs = result.outputs
        if result.state == "FAILED":
            self._failing.set()
        self._close_task(task, result.state)
        return result

    def _close_task(self, task: Task, state: str) -> None:
        """Set the final state of a task and of those tasks in it that did not run."""
        for inner in list(self.tasks):
            if inner is not task and is_in(inner, task) and inner.state == "PENDING":
                inner.set_state("SKIPPED" if state in DONE else "NOT_TRIGGERED")
        if task.state not in TASK_ENDED:
            task.set_state(state)

    def _is_triggered(self, task: Task, earlier: Iterable[Result]) -> bool:
        """Return whether a task is to run after the results of those that it depends on."""
        policy = task.spec.get("triggerPolicy", {})
        regardless = policy.get("strategy") == "ALL_UPSTREAM_TASKS_COMPLETED"
        succeeded = all(result.state in DONE for result in earlier)
        return (succeeded or regardless) and not self._is_stopped(task)

    def _is_stopped(self, task: Task) -> bool:
        """Return whether no more of a task is to run."""
        if self.processes.killed.is_set() or is_exit(task):
            return self.processes.killed.is_set()
        failing = self.fails_fast and self._failing.is_set()
        return failing or self.processes.cancelled.is_set()

    def _run_triggered(self, task: Task, scope: _Scope, is_new: bool) -> Result:
        """Run a task whose dependencies have ended, unless its condition is false."""
        given = task.spec.get("inputs", {})
        sources = {**given.get("parameters", {}), **given.get("artifacts", {})}
        inputs = {name: self._resolve_input(source, scope) for name, source in sources.items()}
        required = [name for name in list_required(task) if inputs.get(name, ABSENT) in MISSING]
        if any(inputs.get(name) is UNTAKEN for name in required):
            return Result("SKIPPED", is_new=is_new)
        if required:
            raise ValueError(f"the input {required[0]} is required, but is not given")
        condition = task.spec.get("triggerPolicy", {}).get("condition")
        if condition and not expressions.evaluate(condition, inputs):
            return Result("SKIPPED", is_new=is_new)
        if not task.is_group:
            return self._run_step(task, inputs, is_new)
        inputs = {name: resolve_inputs(value, inputs) for name, value in inputs.items()}
        task.set_state("RUNNING")
        if is_loop(task.spec):
            return self._run_loop(task, inputs, is_new)
        return self._run_dag(task, inputs, is_new)

    def _resolve_input(self, source: Json, scope: _Scope) -> Any:
        """Return the value of a task's input; one of MISSING if it has none."""
        match source:
            case {"runtimeValue": {"constant": value}}:
                return value
            case {"taskFinalStatus": {"producerTask": name}}:
                return self._describe_status(name, scope.results[name].result())
            case {"componentInputParameter": name} | {"componentInputArtifact": name}:
                value = scope.arguments.get(name, ABSENT)
            case {"taskOutputParameter": {"producerTask": name, "outputParameterKey": key}} | {
                "taskOutputArtifact": {"producerTask": name, "outputArtifactKey": key}
            }:
                result = scope.results[name].result()
                value = result.outputs.get(key, UNTAKEN if result.state in DONE else ABSENT)
            case _:
                raise ValueError(f"the input {json.dumps(source)} is not supported")
        selector = source.get("parameterExpressionSelector")
        if selector and value not in MISSING:
            return expressions.evaluate(selector, {}, value)
        return value

    def _describe_status(self, name: str, result: Result) -> dict[str, Any]:
        """Return the PipelineTaskFinalStatus of a task, for the task of an exit handler."""
        state = "SUCCEEDED" if result.state in DONE else result.state
        error = {"code": 9, "message": result.error} if state == "FAILED" else {}
        return {
            "state": state,
            "error": error,
            "pipelineJobResourceName": self.constants["pipeline_job_resource_name"],
            "pipelineTaskName": name,
        }

    def _run_loop(self, task: Task, inputs: Json, is_new: bool) -> Result:
        """Run the iterations of a loop, as many at once as it allows and this machine has cores."""
        item, values = task_inputs.list_items(task.spec, inputs)
        inside = count_steps(self.spec, task.component, {})
        if problem := find_task_problem(len(self.steps) + len(values) * inside):
            raise ValueError(problem)
        limit = task.spec.get("iteratorPolicy", {}).get("parallelismLimit") or os.cpu_count() or 1
        prefix = task.path.removesuffix(task.name)
        groups = []
        for number in range(len(values)):
            name = f"{task.name}-iteration-{number}"
            path, display_name = f"{prefix}{name}", f"{task.display_name} {number}"
            group = self._add(task, name, path, display_name, task.spec, task.component)
            self._expand(task.component, group, f"{path}/")
            groups.append(group)

        def run(group: Task, value: Any) -> Result:
            if self._is_stopped(group):
                return Result("NOT_TRIGGERED")
            group.set_state("RUNNING")
            result = self._run_dag(group, {**inputs, item: value}, is_new)
            self._close_task(group, result.state)
            return result

        with concurrent.futures.ThreadPoolExecutor(max(1, int(limit))) as pool:
            ended = list(pool.map(run, groups, values))
        definitions = task.component.get("outputDefinitions", {})
        names = [*definitions.get("parameters", {}), *definitions.get("artifacts", {})]
        outputs = {
            name: [result.outputs[name] for result in ended if name in result.outputs]
            for name in names
        }
        for name in definitions.get("artifacts", {}):  # Those of nested loops are one list.
            lists = [item if isinstance(item, list) else [item] for item in outputs[name]]
            outputs[name] = list(itertools.chain.from_iterable(lists))
        return combine(ended, outputs, is_new=is_new)

    def _run_step(self, task: Task, inputs: Json, is_new: bool) -> Result:
        """Run a task that is no group: reuse its outputs, or start its process."""
        executor = self.spec["deploymentSpec"]["executors"][task.component["executorLabel"]]
        if "importer" in executor:
            task.set_state("RUNNING")
            given = to_whole_numbers(inputs)
            artifact = task_inputs.import_artifact(executor["importer"], given, self.constants)
            artifact = dataclasses.replace(artifact, uri=self.to_local(artifact.uri))
            return Result("SUCCEEDED", {"artifact": artifact}, is_new)
        if not is_new and (outputs := self._journal.get(task.path)) is not None:
            return Result("CACHED", outputs, is_new=False)
        if problem := find_count_problem(task.component, inputs):
            return Result("FAILED", error=self._note(task, problem))
        waits = backoff_seconds(task.spec.get("retryPolicy", {}) if self.retries else {})
        while True:
            outputs, state = self._attempt(task, executor["container"], inputs)
            if outputs is not None:
                break
            wait = next(waits, None)
            cancelled = self.processes.cancelled.is_set() and not is_exit(task)
            if cancelled or wait is None:
                state = "CANCELLED" if cancelled else "FAILED"
                return Result(state, error=task.error or f"its process exited: {task.returncode}")
            with task.log.open("a") as log:
                log.write(f"--- retry in {wait:g} s ---\n")
            self.processes.cancelled.wait(wait)
        self._journal.put(task.path, outputs)
        return Result(state, outputs)

    def _attempt(
        self, task: Task, container: Json, inputs: Json
    ) -> tuple[dict[str, Any] | None, str]:
        """Return a task's outputs, None if it failed, and SUCCEEDED or CACHED."""
        constants = {
            **self.constants,
            "pipeline_task_name": task.name,
            "pipeline_task_uuid": str(task.number),
            "pipeline_root": self.artifacts,
        }
        folder = self.folder / "artifacts" / task.path
        request = task_inputs.build_executor_input(
            task.component,
            inputs,
            folder=folder,
            artifacts=f"{self.artifacts}/{task.path}",
            constants=constants,
        )
        command = [*container.get("command", []), *container.get("args", [])]
        settings = {key: container.get(key) for key in ("image", "env", "resources")}
        settings = resolve_json(settings, request, constants)
        if problem := find_accelerator_problem(settings):
            self._note(task, problem)
            return None, "FAILED"
        image = settings["image"]
        variables = {pair["name"]: str(pair["value"]) for pair in settings["env"] or ()}
        entry = None
        if self.cache and task.spec.get("cachingOptions", {}).get("enableCache"):
            image_id = self.processes.image_of(image)
            runs = self.folder.resolve().parent
            given = output_cache.to_relative(request["inputs"], runs)
            content = (image_id, command, variables, given, self.code_of(command))
            entry = self.cache / f"{checked_json.digest(content)}.json"
            cached = output_cache.read_entry(entry, runs, remote=self._remote)
            if cached is not None:
                if self.links_reused:
                    link_artifacts(folder, cached)
                return cached, "CACHED"
        task.set_state("RUNNING")
        self.processes.make_folder(folder)
        command = resolve_command(command, request, constants)
        task.returncode = self.processes.execute(
            task.path, image, command, variables, task.log, after_cancel=is_exit(task)
        )
        if task.returncode != 0:
            return None, "FAILED"
        try:
            outputs = task_inputs.read_outputs(task.component, request, self.to_local)
            problem = find_size_problem(outputs)
        except ValueError as error:
            outputs, problem = {}, str(error)
        if problem:
            self._note(task, problem)
            return None, "FAILED"
        if entry:
            output_cache.write_entry(entry, outputs, runs, remote=self._remote)
        return outputs, "SUCCEEDED"

    def _note(self, task: Task, problem: str) -> str:
        """Write an error message to a task and its log; return the message."""
        task.error = problem
        with task.log.open("a") as log:
            log.write(f"InputError: {problem}\n")
        return problem


def in_order(tasks: Json) -> Iterator[tuple[str, Any]]:
    """Yield tasks by name, after those that they depend on."""
    done: set[str] = set()

    def visit(name: str) -> Iterator[tuple[str, Any]]:
        if name not in done:
            done.add(name)
            for earlier in depends_on(tasks[name]):
                yield from visit(earlier)
            yield name, tasks[name]

    for name in sorted(tasks):
        yield from visit(name)


def is_exit(task: Task | None) -> bool:
    """Return whether a task is that of an exit handler, or is in one that is a pipeline."""
    while task:
        policy = task.spec.get("triggerPolicy", {}).get("strategy")
        handlers = [name for name in depends_on(task.spec) if _EXIT_HANDLER.fullmatch(name)]
        if policy == "ALL_UPSTREAM_TASKS_COMPLETED" and handlers:
            return True
        task = task.parent
    return False


def is_in(task: Task | None, group: Task) -> bool:
    """Return whether a task is the group or is in it, at any depth."""
    while task and task is not group:
        task = task.parent
    return task is not None


def list_required(task: Task) -> list[str]:
    """Return the names of the inputs without which a task can't run.

    A group passes inputs on to its tasks, of which some may do without.
    """
    if task.is_group:
        return list(names_read(task.spec))
    declared = task.component.get("inputDefinitions", {})
    return [
        name
        for definitions in declared.values()
        for name, definition in definitions.items()
        if not is_optional(definition) and definition.get("parameterType") != "TASK_CONFIG"
    ]


def collect_outputs(outputs: Json, results: Mapping[str, Result]) -> dict[str, Any]:
    """Return the outputs of a DAG; of a OneOf, that of the branch which was taken."""
    collected = {}
    for kind, key in (("parameters", "outputParameterKey"), ("artifacts", "outputArtifactKey")):
        for name, source in outputs.get(kind, {}).items():
            for selector in selectors_of(source):
                produced = results[selector["producerSubtask"]].outputs
                if selector[key] in produced:
                    collected[name] = produced[selector[key]]
    return collected


def combine(results: Iterable[Result], outputs: Json, is_new: bool = False) -> Result:
    """Return the result of a group of tasks."""
    results = list(results)
    states = {result.state for result in results}
    state = next(
        (state for state in ("FAILED", "CANCELLED", "NOT_TRIGGERED") if state in states),
        "SUCCEEDED",
    )
    error = next((result.error for result in results if result.error), "")
    # A group in which a task was not triggered has been cancelled before its end.
    state = "CANCELLED" if state == "NOT_TRIGGERED" else state
    is_new = is_new or any(result.is_new for result in results)
    return Result(state, outputs if state == "SUCCEEDED" else {}, is_new, error)


def backoff_seconds(policy: Json) -> Iterator[float]:
    """Yield the seconds to wait before each retry that a RetryPolicy allows."""
    wait, longest = (
        float(policy.get(name, default).removesuffix("s"))
        for name, default in (("backoffDuration", "0s"), ("backoffMaxDuration", "3600s"))
    )
    for _ in range(int(policy.get("maxRetryCount", 0))):
        yield min(wait, longest)
        wait *= policy.get("backoffFactor", 2.0)


def find_size_problem(outputs: Json) -> str:
    """Return an error message if a task's outputs are too large for Vertex AI; else ""."""
    total = len(json.dumps(list(outputs.values()), default=dataclasses.asdict).encode())
    if total <= TASK_BYTES:
        return ""
    return (
        f"its output parameters and the metadata of its artifacts are {total:,} bytes as JSON, "
        f"but Vertex AI allows {TASK_BYTES:,}; write them to an artifact's file"
    )


def find_count_problem(component: Json, inputs: Json) -> str:
    """Return an error message if a task has more artifacts than Vertex AI allows; else ""."""
    count = len(component.get("outputDefinitions", {}).get("artifacts", {}))
    count += sum(len(task_inputs.list_artifacts(value)) for value in inputs.values())
    if count <= TASK_ARTIFACTS:
        return ""
    return (
        f"it has {count} input and output artifacts, but Vertex AI allows {TASK_ARTIFACTS}; pass "
        "fewer, such as one with several files"
    )


def run_in_thread(name: str, function: Callable[[], Any]) -> "concurrent.futures.Future[Any]":
    """Run a function in a daemon thread; return its future.

    Wait for the future, not with Thread.join: before Python 3.13, a signal that interrupts join
    marks a running thread as dead.
    """
    future: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            logging.getLogger(__name__).exception("%s ended early", name)
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
