"""Errors in the form in which Google's APIs return them."""

import grpc
from google.api_core import exceptions

_KEPT = 300
"""Characters kept at each end of a long message, up to 12 bytes each: gRPC allows 8 KB."""


class ApiError(Exception):
    """An error that a request ends with: a google.rpc.Code by name, and HTTP's code for it."""

    def __init__(self, status: str, message: str, code: int = 0) -> None:
        if len(message) > 2 * _KEPT:
            message = f"{message[:_KEPT]} … {message[-_KEPT:]}"
        super().__init__(message)
        self.status = status
        self.code = code or int(exceptions.from_grpc_status(grpc.StatusCode[status], "").code)

    @property
    def json(self) -> dict[str, object]:
        """Return the response's body: a google.rpc.Status as JSON."""
        return {"error": {"code": self.code, "message": str(self), "status": self.status}}


def code_of(status: str) -> int:
    """Return the number of a google.rpc.Code, such as 3 for INVALID_ARGUMENT."""
    return int(grpc.StatusCode[status].value[0])


def invalid(message: str) -> ApiError:
    """Return the error for a request that is invalid in any state."""
    return ApiError("INVALID_ARGUMENT", message)


def not_found(name: str) -> ApiError:
    """Return the error for a request for a resource that does not exist."""
    return ApiError("NOT_FOUND", f"{name} is not found.")
