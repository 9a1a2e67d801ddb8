"""MetadataService: executions, and contexts, which are experiments and their runs."""

from collections.abc import Container
from typing import Any

from pipelines.emulator import messages
from pipelines.emulator.api_error import ApiError, not_found
from pipelines.emulator.field_rules import check_id
from pipelines.emulator.messages import id_of
from pipelines.emulator.operations import Operations


class MetadataService:
    """The parts of the metadata store `default` that the commands use.

    Args:
        runs: IDs of pipeline jobs, each of which also has a context with its ID.

    Attributes:
        executions: IDs of executions.
        experiments: IDs of the runs of each experiment, by the experiment's ID.
    """

    def __init__(self, operations: Operations, runs: Container[str] = ()) -> None:
        self.executions: set[str] = set()
        self.experiments: dict[str, list[str]] = {}
        self._operations = operations
        self._runs = runs

    def delete_execution(self, request: Any) -> Any:
        execution = id_of(request.name)
        if execution not in self.executions:
            raise not_found(request.name)
        self.executions.remove(execution)
        return self._operations.start(request.name)

    def create_context(self, request: Any) -> Any:
        check_id("context_id", request.context_id)
        if request.context_id in self.experiments or request.context_id in self._runs:
            raise ApiError("ALREADY_EXISTS", f"{request.context_id} already exists")
        self.experiments[request.context_id] = []
        name = f"{request.parent}/contexts/{request.context_id}"
        return messages.Context(request.context, name=name)

    def get_context(self, request: Any) -> Any:
        context_id = id_of(request.name)
        if context_id in self.experiments:
            return messages.Context(name=request.name, schema_title="system.Experiment")
        if context_id in self._runs:
            return messages.Context(name=request.name, schema_title="system.PipelineRun")
        raise not_found(request.name)

    def add_context_children(self, request: Any) -> Any:
        experiment = id_of(request.context)
        if experiment not in self.experiments:
            raise not_found(request.context)
        store = request.context.partition("/contexts/")[0]
        for child in request.child_contexts:
            if not child.startswith(f"{store}/contexts/"):
                raise not_found(child)
            child_id = id_of(child)
            # "If any … have already been added to the parent Context, they are simply skipped."
            if child_id not in self.experiments[experiment]:
                self.experiments[experiment].append(child_id)
        return messages.AddContextChildrenResponse()
