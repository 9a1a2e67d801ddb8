"""Long-running operations."""

import itertools
import time
from collections.abc import Callable
from typing import Any

from google.longrunning import operations_pb2
from google.protobuf import empty_pb2

from vertex.emulator.api_error import ApiError, code_of, not_found
from vertex.emulator.messages import parent_of


class Operations:
    """A store of long-running operations.

    A request takes effect immediately, unless its service says otherwise; its operation is done
    only after `seconds`.
    """

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self._numbers = itertools.count(1)
        # By name, what `start` was given or, once it is done, the Operation.
        self._known: dict[str, Any] = {}

    def start(
        self,
        resource: str,
        response: Any = None,
        is_done: Callable[[], bool] = lambda: True,
        *,
        parent: str = "",
    ) -> Any:
        """Return the operation of a request on `resource`, whose result is `response` or Empty.

        An ApiError that `is_done` raises becomes the operation's error. The operation is listed
        below `parent`; empty: below the location.
        """
        name = f"{parent or parent_of(resource)}/operations/{next(self._numbers)}"
        self._known[name] = (time.monotonic() + self.seconds, response, is_done)
        return self._build_operation(name)

    def advance(self) -> None:
        """Complete the operations that are done, as if somebody had asked for each of them."""
        for name in self._known:
            self._build_operation(name)

    def list_operations(self, request: Any) -> Any:
        names = [name for name in self._known if name.startswith(f"{request.name}/operations/")]
        return operations_pb2.ListOperationsResponse(
            operations=[self._build_operation(name) for name in names]
        )

    def get_operation(self, request: Any) -> Any:
        if request.name not in self._known:
            raise not_found(f"Operation {request.name}")
        return self._build_operation(request.name)

    def _build_operation(self, name: str) -> Any:
        known = self._known[name]
        if isinstance(known, operations_pb2.Operation):
            return known
        ready, response, is_done = known
        # `is_done` may read the resource, which completes operations: this one is being completed.
        self._known[name] = operation = operations_pb2.Operation(name=name)
        try:
            operation.done = time.monotonic() >= ready and is_done()
        except ApiError as error:
            operation.done = True
            operation.error.code = code_of(error.status)
            operation.error.message = str(error)
        else:
            if operation.done:
                operation.response.Pack(getattr(response, "_pb", response) or empty_pb2.Empty())
        finally:
            if not operation.done:
                self._known[name] = known
        return operation
