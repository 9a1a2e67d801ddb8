"""MetadataService: executions, and contexts, which are experiments and their runs."""

import dataclasses
from collections.abc import Container
from typing import Any

from pipelines.emulator import messages
from pipelines.emulator.api_error import ApiError, not_found
from pipelines.emulator.field_rules import check_id
from pipelines.emulator.messages import id_of, parent_of
from pipelines.emulator.operations import Operations


@dataclasses.dataclass
class MetadataService:
    """The parts of the metadata stores named `default` that the commands use."""

    operations: Operations
    runs: Container[str] = ()  # names of pipeline jobs, each of which also has a context
    executions: set[str] = dataclasses.field(default_factory=set)  # names
    # Names of the contexts of runs, by the name of their experiment's context.
    experiments: dict[str, list[str]] = dataclasses.field(default_factory=dict)

    def delete_execution(self, request: Any) -> Any:
        if request.name not in self.executions:
            raise not_found(request.name)
        self.executions.remove(request.name)
        return self.operations.start(request.name)

    def create_context(self, request: Any) -> Any:
        check_id("context_id", request.context_id)
        name = f"{request.parent}/contexts/{request.context_id}"
        if name in self.experiments or self._is_run(name):
            raise ApiError("ALREADY_EXISTS", f"{name} already exists")
        self.experiments[name] = []
        return messages.Context(request.context, name=name)

    def get_context(self, request: Any) -> Any:
        if request.name in self.experiments:
            return messages.Context(name=request.name, schema_title="system.Experiment")
        if self._is_run(request.name):
            return messages.Context(name=request.name, schema_title="system.PipelineRun")
        raise not_found(request.name)

    def add_context_children(self, request: Any) -> Any:
        if request.context not in self.experiments:
            raise not_found(request.context)
        store = request.context.partition("/contexts/")[0]
        for child in request.child_contexts:
            if not child.startswith(f"{store}/contexts/"):
                raise not_found(child)
            # "If any … have already been added to the parent Context, they are simply skipped."
            if child not in self.experiments[request.context]:
                self.experiments[request.context].append(child)
        return messages.AddContextChildrenResponse()

    def _is_run(self, context: str) -> bool:
        return f"{parent_of(context)}/pipelineJobs/{id_of(context)}" in self.runs
