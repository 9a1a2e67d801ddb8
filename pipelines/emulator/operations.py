"""Long-running operations, and lists in pages."""

import itertools
import time
from collections.abc import Callable
from typing import Any, TypeVar

from pipelines.emulator.api_error import ApiError, invalid, not_found

T = TypeVar("T")

PAGE_SIZE = 100


class Operations:
    """Keeps long-running operations.

    The effect of a request is there at once; its operation is done only after `seconds`.
    """

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self._numbers = itertools.count(1)
        self._known: dict[str, tuple[float, Any, Callable[[], bool]]] = {}

    def start(
        self, resource: str, response: Any = None, is_done: Callable[[], bool] = lambda: True
    ) -> Any:
        """Return the operation of a request on `resource`, which ends in `response` or Empty.

        Args:
            is_done: is asked once the seconds are over; ApiError is what the operation ends with.
        """
        location = "/".join(resource.split("/")[:4])
        name = f"{location}/operations/{next(self._numbers)}"
        self._known[name] = (time.monotonic() + self.seconds, response, is_done)
        return self._operation(name)

    def get_operation(self, request: Any) -> Any:
        if request.name not in self._known:
            raise not_found(f"Operation {request.name}")
        return self._operation(request.name)

    def _operation(self, name: str) -> Any:
        from google.longrunning import operations_pb2
        from google.protobuf import empty_pb2
        from google.rpc import code_pb2

        ready, response, is_done = self._known[name]
        if isinstance(response, operations_pb2.Operation):
            return response
        operation = operations_pb2.Operation(name=name)
        try:
            operation.done = time.monotonic() >= ready and is_done()
        except ApiError as error:
            operation.done = True
            operation.error.code = code_pb2.Code.Value(error.status)
            operation.error.message = str(error)
        else:
            if operation.done:
                operation.response.Pack(getattr(response, "_pb", response) or empty_pb2.Empty())
        if operation.done:
            self._known[name] = (ready, operation, is_done)
        return operation


def page(items: list[T], request: Any, limit: int = PAGE_SIZE) -> tuple[list[T], str]:
    """Return the part of a list that `request` asks for, and the token of the next page.

    Args:
        limit: of a page's length.
    """
    token = request.page_token or "0"
    if not token.isdigit():
        raise invalid(f"page_token {token!r} is not one that was given")
    start, size = int(token), min(request.page_size or limit, limit)
    rest = str(start + size) if start + size < len(items) else ""
    return items[start : start + size], rest
