"""MetadataService: executions, and contexts, which are experiments and their runs."""

from collections.abc import Container
from typing import Any

from pipelines.emulator.api_error import ApiError, not_found
from pipelines.emulator.operations import Operations


class MetadataService:
    """Keeps the parts of the metadata store `default` that commands use.

    Attributes:
        executions: IDs.
        experiments: IDs of an experiment's runs, by its own ID.

    Args:
        runs: IDs of pipeline jobs, each of which has a context of its ID, too.
    """

    def __init__(self, operations: Operations, runs: Container[str] = ()) -> None:
        self.executions: set[str] = set()
        self.experiments: dict[str, list[str]] = {}
        self._operations = operations
        self._runs = runs

    def delete_execution(self, request: Any) -> Any:
        execution = request.name.rpartition("/")[2]
        if execution not in self.executions:
            raise not_found(request.name)
        self.executions.remove(execution)
        return self._operations.start(request.name)

    def create_context(self, request: Any) -> Any:
        from google.cloud.aiplatform_v1 import types

        if request.context_id in self.experiments or request.context_id in self._runs:
            raise ApiError("ALREADY_EXISTS", f"{request.context_id} already exists")
        self.experiments[request.context_id] = []
        name = f"{request.parent}/contexts/{request.context_id}"
        return types.Context(request.context, name=name)

    def get_context(self, request: Any) -> Any:
        from google.cloud.aiplatform_v1 import types

        context_id = request.name.rpartition("/")[2]
        if context_id in self.experiments:
            return types.Context(name=request.name, schema_title="system.Experiment")
        if context_id in self._runs:
            return types.Context(name=request.name, schema_title="system.PipelineRun")
        raise not_found(request.name)

    def add_context_children(self, request: Any) -> Any:
        from google.cloud.aiplatform_v1 import types

        experiment = request.context.rpartition("/")[2]
        if experiment not in self.experiments:
            raise not_found(request.context)
        store = request.context.partition("/contexts/")[0]
        for child in request.child_contexts:
            if not child.startswith(f"{store}/contexts/"):
                raise not_found(child)
            self.experiments[experiment].append(child.rpartition("/")[2])
        return types.AddContextChildrenResponse()
