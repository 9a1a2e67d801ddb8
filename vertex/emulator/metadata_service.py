"""MetadataService: executions, and contexts, which are experiments and their runs."""

import dataclasses
import json
import pathlib
import uuid
from collections.abc import Container, MutableMapping
from typing import Any

from vertex.emulator import messages
from vertex.emulator.api_error import ApiError, not_found
from vertex.emulator.field_rules import check_common, check_id, refuse
from vertex.emulator.messages import id_of, parent_of
from vertex.emulator.operations import Operations
from vertex.emulator.resource_store import FolderStore

_MAX_PARENTS = 10
_COLLECTION = "metadataStores/default/contexts"


@dataclasses.dataclass
class MetadataService:
    """The parts of the metadata stores named `default` that the commands use."""

    operations: Operations
    runs: Container[str] = ()  # names of pipeline jobs, each of which also has a context
    folder: pathlib.Path | None = None  # keeps the contexts after this process; None: memory

    def __post_init__(self) -> None:
        self.executions: set[str] = set()  # names
        self.contexts: MutableMapping[str, Any] = {}  # those created, by name
        # Names of the contexts of runs, by the name of their experiment's context.
        self.experiments: MutableMapping[str, list[str]] = {}
        if self.folder:
            kind = messages.Context
            self.contexts = FolderStore(self.folder, _COLLECTION, kind.from_json, kind.to_json)
            self.experiments = FolderStore(
                self.folder / "experiments",
                _COLLECTION,
                lambda text: json.loads(text)["runs"],
                lambda runs: json.dumps({"runs": runs}),
            )

    def delete_execution(self, request: Any) -> Any:
        if request.name not in self.executions:
            raise not_found(request.name)
        self.executions.remove(request.name)
        return self.operations.start(request.name)

    def create_context(self, request: Any) -> Any:
        context_id = request.context_id or str(uuid.uuid4())
        check_id("context_id", context_id)
        check_common(request.context, "context", parent_of(request.parent))
        name = f"{request.parent}/contexts/{context_id}"
        if name in self.contexts or self._is_run(name):
            raise ApiError("ALREADY_EXISTS", f"{name} already exists")
        self.experiments[name] = []
        self.contexts[name] = messages.Context(request.context, name=name)
        return self.contexts[name]

    def get_context(self, request: Any) -> Any:
        if request.name in self.contexts:
            return self.contexts[request.name]
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
            parents = [name for name, runs in self.experiments.items() if child in runs]
            # "If any … have already been added to the parent Context, they are simply skipped."
            if request.context in parents:
                continue
            refuse(len(parents) == _MAX_PARENTS, f"{child} has {_MAX_PARENTS} parents already")
            refuse(self._is_below(request.context, child), f"{child} is above {request.context}")
            self.experiments[request.context] = [*self.experiments[request.context], child]
        return messages.AddContextChildrenResponse()

    def _is_below(self, context: str, other: str) -> bool:
        """Return whether a context is another, or one of its children, or of theirs."""
        children = self.experiments.get(other, ())
        return context == other or any(self._is_below(context, child) for child in children)

    def _is_run(self, context: str) -> bool:
        return f"{parent_of(context)}/pipelineJobs/{id_of(context)}" in self.runs
