"""MetadataService: executions, and contexts, which are experiments and their runs."""

from typing import Any

from pipelines.emulator.api_error import ApiError, not_found
from pipelines.emulator.operations import Operations


class MetadataService:
    """Keeps the parts of the metadata store `default` that commands use.

    Attributes:
        executions: IDs.
        experiments: IDs of an experiment's runs, by its own ID.
    """

    def __init__(self, operations: Operations) -> None:
        self.executions: set[str] = set()
        self.experiments: dict[str, list[str]] = {}
        self._operations = operations

    def delete_execution(self, request: Any) -> Any:
        execution = request.name.rpartition("/")[2]
        if execution not in self.executions:
            raise not_found(request.name)
        self.executions.remove(execution)
        return self._operations.start(request.name)

    def create_context(self, request: Any) -> Any:
        from google.cloud.aiplatform_v1 import types

        if request.context_id in self.experiments:
            raise ApiError("ALREADY_EXISTS", f"{request.context_id} already exists")
        self.experiments[request.context_id] = []
        name = f"{request.parent}/contexts/{request.context_id}"
        return types.Context(request.context, name=name)

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
