"""MetadataService: artifacts, executions, and contexts, which group them.

Experiments and their runs are contexts. A pipeline job has a context, too, an execution for itself
and one for each of its tasks, and the artifacts that these have made.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import pathlib
import uuid
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

from vertex.emulator import messages
from vertex.emulator.api_error import ApiError, not_found
from vertex.emulator.clock import Clock
from vertex.emulator.field_rules import check_common, check_id, refuse
from vertex.emulator.list_filters import parse_filter
from vertex.emulator.messages import id_of, parent_of, state_of
from vertex.emulator.operations import Operations
from vertex.emulator.proto_rules import find_marked
from vertex.emulator.resource_store import FolderStore, MemoryStore
from vertex.emulator.resources import Resources

_MAX_PARENTS = 10
_STORE = "metadataStores/default"
_STATES = {"SUCCEEDED": "COMPLETE", "FAILED": "FAILED", "CANCELLED": "CANCELLED"}
_OUTPUT = 2
"""Event.Type.OUTPUT."""


@dataclasses.dataclass(eq=False)
class _Records(Resources):
    """The resources of one kind in the metadata stores named `default`."""

    # Returns resources of pipeline jobs by name.
    of_runs: Callable[[], Mapping[str, Any]] = dict
    in_context: Callable[[str], frozenset[str]] = frozenset[str]  # returns the names in a context

    def __post_init__(self) -> None:
        super().__post_init__()
        self._deleted: set[str] = set()  # those of pipeline jobs, which are not stored
        if self.folder:
            collection = f"{_STORE}/{self.collection}"
            self.stored = FolderStore(self.folder, collection, self.parse, self.dump, self.name_of)

    def read_new(self, request: Any) -> Any:
        resource = super().read_new(request)
        store = id_of(request.parent)
        refuse(store != "default", f"the metadata store {store!r} is not emulated; use default")
        return resource

    def new_name(self, request: Any, resource: Any) -> str:
        name = super().new_name(request, resource)
        if name in self.of_runs():
            raise ApiError("ALREADY_EXISTS", f"{name} already exists")
        return name

    def next_id(self, resource: Any) -> str:
        return str(uuid.uuid4())

    def check(self, resource: Any, parent: str) -> None:
        check_common(resource, self._field, parent.partition("/metadataStores/")[0])

    def find(self, name: str) -> Any:
        known = name in self.stored or name in self._deleted
        found = None if known else self.of_runs().get(name)
        return super().find(name) if found is None else self.refresh(found)

    def list_all(self) -> list[Any]:
        stored = super().list_all()
        names = {*self._deleted, *(one.name for one in stored)}
        of_runs = (one for one in self.of_runs().values() if one.name not in names)
        return [*stored, *map(self.refresh, of_runs)]

    def delete(self, request: Any) -> Any:
        self.find(request.name)
        self._deleted.add(request.name)
        with self.stored.lock(), contextlib.suppress(KeyError):
            del self.stored[request.name]
        return self.operations.start(request.name)

    def update(self, request: Any) -> Any:
        """Update the fields that the mask names; without a mask, those that are set."""
        if not request.update_mask.paths:
            new = getattr(request, self._field)
            fixed = {"name", "etag", *find_marked(type(new), "Output only")}
            paths = [field.name for field, _ in new._pb.ListFields() if field.name not in fixed]
            request.update_mask = {"paths": paths}
        return super().update(request)

    def list_page(self, request: Any) -> Any:
        names_in = functools.cache(self.in_context)  # once for a request, not for each resource
        functions = {"in_context": lambda one, context: one.name in names_in(context)}
        predicate = parse_filter(request.filter, functions=functions)
        page = type(request)(request)
        page.filter = ""
        prefix = f"{request.parent}/"
        listed = [one for one in self.list_all() if one.name.startswith(prefix) and predicate(one)]
        return self.build_page(listed, page, self.kind, f"{self._field}s")


class _Contexts(_Records):
    kind = "Context"
    parents: Callable[[str], list[str]] = lambda _: []

    def read_new(self, request: Any) -> Any:
        if request.context_id:
            check_id("context_id", request.context_id)
        return super().read_new(request)

    def refresh(self, resource: Any) -> Any:
        resource.parent_contexts = self.parents(resource.name)
        return resource


class _Executions(_Records):
    kind = "Execution"


class _Artifacts(_Records):
    kind = "Artifact"


class _Schemas(_Records):
    kind = "MetadataSchema"


class MetadataService:
    """The metadata stores named `default`, which exist in every project and region.

    Args:
        runs: pipeline jobs by name.
        folder: keeps the resources after this process; None: memory.
    """

    def __init__(
        self,
        operations: Operations,
        runs: Mapping[str, Any] | None = None,
        folder: pathlib.Path | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.operations, self.runs = operations, {} if runs is None else runs
        common = (operations, folder, clock or Clock())
        self.contexts = _Contexts(*common, self._contexts_of_runs, self._children_of)
        self.contexts.parents = self.parents_of
        self.executions = _Executions(*common, self._executions_of_runs, self._members_of)
        self.artifacts = _Artifacts(*common, self._artifacts_of_runs, self._members_of)
        schemas = _Schemas(*common)
        # By the name of a context, those of its children and of its members; by the name of an
        # execution, its events.
        self.children = _lists(folder, "experiments", "contexts", "runs")
        self.members = _lists(folder, "members", "contexts", "names")
        self.events = _lists(folder, "events", "executions", "events")
        self.standard_methods = {
            name: method
            for kind in (self.contexts, self.executions, self.artifacts, schemas)
            for name, method in kind.standard_methods.items()
        }
        for name in ("Update", "Delete"):
            del self.standard_methods[f"{name}MetadataSchema"]

    # Stores

    def create_metadata_store(self, request: Any) -> Any:
        store = request.metadata_store_id or "default"
        refuse(store != "default", f"the metadata store {store!r} is not emulated; use default")
        raise ApiError("ALREADY_EXISTS", f"{request.parent}/{_STORE} already exists")

    def get_metadata_store(self, request: Any) -> Any:
        if id_of(request.name) != "default":
            raise not_found(request.name)
        return messages.MetadataStore(name=request.name)

    def list_metadata_stores(self, request: Any) -> Any:
        store = messages.MetadataStore(name=f"{request.parent}/{_STORE}")
        return messages.ListMetadataStoresResponse(metadata_stores=[store])

    # Contexts

    def add_context_children(self, request: Any) -> Any:
        self.contexts.find(request.context)
        store = request.context.partition("/contexts/")[0]
        for child in request.child_contexts:
            if not child.startswith(f"{store}/contexts/"):
                raise not_found(child)
            parents = self.parents_of(child)
            # "If any … have already been added to the parent Context, they are simply skipped."
            if request.context in parents:
                continue
            refuse(len(parents) == _MAX_PARENTS, f"{child} has {_MAX_PARENTS} parents already")
            refuse(self._is_below(request.context, child), f"{child} is above {request.context}")
            self.children[request.context] = [*self.children.get(request.context, ()), child]
        return messages.AddContextChildrenResponse()

    def remove_context_children(self, request: Any) -> Any:
        self.contexts.find(request.context)
        gone = {*request.child_contexts}
        left = [name for name in self.children.get(request.context, ()) if name not in gone]
        self.children[request.context] = left
        return messages.RemoveContextChildrenResponse()

    def add_context_artifacts_and_executions(self, request: Any) -> Any:
        self.contexts.find(request.context)
        given = [*request.artifacts, *request.executions]
        for names, kind in (
            (request.artifacts, self.artifacts),
            (request.executions, self.executions),
        ):
            for name in names:
                kind.find(name)
        before = self.members.get(request.context, [])
        self.members[request.context] = [*dict.fromkeys([*before, *given])]
        return messages.AddContextArtifactsAndExecutionsResponse()

    def add_execution_events(self, request: Any) -> Any:
        self.executions.find(request.execution)
        events = self.events.get(request.execution, [])
        for event in request.events:
            self.artifacts.find(event.artifact)
            added = messages.Event(event, execution=request.execution)
            added.event_time = added.event_time or self.executions.clock.now()
            events = [*events, json.loads(type(added).to_json(added))]
        self.events[request.execution] = events
        return messages.AddExecutionEventsResponse()

    # Lineage

    def query_context_lineage_subgraph(self, request: Any) -> Any:
        self.contexts.find(request.context)
        return self._build_subgraph(self._members_of(request.context))

    def query_execution_inputs_and_outputs(self, request: Any) -> Any:
        self.executions.find(request.execution)
        events = self._events_of(request.execution)
        return self._build_subgraph({request.execution, *(event.artifact for event in events)})

    def query_artifact_lineage_subgraph(self, request: Any) -> Any:
        self.artifacts.find(request.artifact)
        refuse(request.filter, "a filter of the lineage of an artifact is not emulated")
        events = [event for name in self._names_with_events() for event in self._events_of(name)]
        reached, hops = {request.artifact}, 0
        while hops < (request.max_hops or len(events) + 1):
            before = len(reached)
            for event in events:
                if {event.artifact, event.execution} & reached:
                    reached = reached | {event.artifact, event.execution}
            hops += 1
            if len(reached) == before:
                break
        return self._build_subgraph(reached)

    def _build_subgraph(self, names: frozenset[str] | set[str]) -> Any:
        executions = [one for one in self.executions.list_all() if one.name in names]
        artifacts = [one for one in self.artifacts.list_all() if one.name in names]
        events = [event for one in executions for event in self._events_of(one.name)]
        return messages.LineageSubgraph(artifacts=artifacts, executions=executions, events=events)

    def _events_of(self, execution: str) -> list[Any]:
        stored = [
            messages.Event.from_json(json.dumps(event)) for event in self.events.get(execution, ())
        ]
        return stored + [event for event in self._events_of_runs() if event.execution == execution]

    def _names_with_events(self) -> set[str]:
        return {*self.events, *(event.execution for event in self._events_of_runs())}

    def _children_of(self, context: str) -> frozenset[str]:
        of_runs = (one.name for one in self._contexts_of_runs().values())
        mine = (name for name in of_runs if context in self.parents_of(name))
        return frozenset([*self.children.get(context, ()), *mine])

    def _members_of(self, context: str) -> frozenset[str]:
        """Return the names of the artifacts and executions of a context."""
        names = [*self.members.get(context, ())]
        for job in self._jobs():
            if context in (_context_of(job), _pipeline_context_of(job)):
                names += [one.name for one in (*_executions_of(job), *_artifacts_of(job))]
        return frozenset(names)

    def parents_of(self, context: str) -> list[str]:
        parents = [name for name, children in self.children.items() if context in children]
        job = self.runs.get(f"{parent_of(context)}/pipelineJobs/{id_of(context)}")
        pipeline = _pipeline_context_of(job) if job else ""
        return [*parents, pipeline] if pipeline else parents

    def _is_below(self, context: str, other: str) -> bool:
        """Return whether a context is another, or one of its children, or of theirs."""
        children = self.children.get(other, ())
        return context == other or any(self._is_below(context, child) for child in children)

    # Pipeline jobs

    def _jobs(self) -> Iterator[Any]:
        for name in [*self.runs]:
            if job := self.runs.get(name):
                yield job

    def _contexts_of_runs(self) -> dict[str, Any]:
        contexts = {}
        for schema, name_of in (
            ("system.Pipeline", _pipeline_context_of),
            ("system.PipelineRun", _context_of),
        ):
            for job in self._jobs():
                name, times = name_of(job), _times_of(job)
                contexts[name] = messages.Context(
                    name=name, display_name=id_of(name), schema_title=schema, **times
                )
        contexts.pop("", None)
        return contexts

    def _executions_of_runs(self) -> dict[str, Any]:
        return {one.name: one for job in self._jobs() for one in _executions_of(job)}

    def _artifacts_of_runs(self) -> dict[str, Any]:
        return {one.name: one for job in self._jobs() for one in _artifacts_of(job)}

    def _events_of_runs(self) -> Iterator[Any]:
        for job in self._jobs():
            run = _executions_of(job)[0].name
            for detail in job.job_detail.task_details:
                for artifact in _outputs_of(job, detail):
                    makers = [detail.execution.name]
                    if "Metrics" in artifact.schema_title:  # The run's, too, as the SDK reads them.
                        makers.append(run)
                    for maker in makers:
                        yield messages.Event(artifact=artifact.name, execution=maker, type_=_OUTPUT)


def _lists(
    folder: pathlib.Path | None, place: str, collection: str, key: str
) -> MutableMapping[str, list[Any]]:
    """Return a store of lists by the names of resources."""
    if folder is None:
        return MemoryStore()
    return FolderStore(
        folder / place,
        f"{_STORE}/{collection}",
        lambda text: json.loads(text)[key],
        lambda values: json.dumps({key: values}),
    )


def _times_of(job: Any) -> dict[str, Any]:
    return {"create_time": job.create_time, "update_time": job.update_time}


def _context_of(job: Any) -> str:
    return f"{parent_of(job.name)}/{_STORE}/contexts/{id_of(job.name)}"


def _pipeline_context_of(job: Any) -> str:
    name = (job.pipeline_spec or {}).get("pipelineInfo", {}).get("name", "")
    return f"{parent_of(job.name)}/{_STORE}/contexts/{name}" if name else ""


def _executions_of(job: Any) -> list[Any]:
    """Return the execution of a job, which has its parameters, and those of its tasks."""
    store = f"{parent_of(job.name)}/{_STORE}"
    values = dict(job.runtime_config.parameter_values)
    times = _times_of(job)
    run = messages.Execution(
        name=f"{store}/executions/{id_of(job.name)}-run",
        display_name=id_of(job.name),
        schema_title="system.Run",
        metadata={f"input:{name}": value for name, value in values.items()},
        state=_STATES.get(state_of(job), "RUNNING"),
        **times,
    )
    executions = [run]
    for detail in job.job_detail.task_details:
        if detail.execution.name == run.name:
            run.metadata = {**dict(run.metadata), **dict(detail.execution.metadata)}
        elif detail.execution.name:
            one = messages.Execution(detail.execution, display_name=detail.task_name, **times)
            one.schema_title = one.schema_title or "system.ContainerExecution"
            executions.append(one)
    return executions


def _artifacts_of(job: Any) -> list[Any]:
    return [one for detail in job.job_detail.task_details for one in _outputs_of(job, detail)]


def _outputs_of(job: Any, detail: Any) -> Iterator[Any]:
    """Yield the artifacts that a task has made, with names of their own.

    The outputs of a group of tasks are those of its tasks.
    """
    if detail.execution.schema_title != "system.ContainerExecution":
        return
    store = f"{parent_of(job.name)}/{_STORE}"
    for output, listed in detail.outputs.items():
        for number, artifact in enumerate(listed.artifacts):
            key = f"{job.name} {detail.task_id} {output} {number}"
            name = artifact.name or (
                f"{store}/artifacts/{hashlib.sha256(key.encode()).hexdigest()[:32]}"
            )
            yield messages.Artifact(artifact, name=name, **_times_of(job))
