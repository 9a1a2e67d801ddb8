"""Errors as Google's APIs answer them."""

_HTTP_CODES = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "ABORTED": 409,
    "RESOURCE_EXHAUSTED": 429,
}
"""https://github.com/googleapis/googleapis/blob/master/google/rpc/code.proto"""


class ApiError(Exception):
    """An error that a request is answered with.

    Attributes:
        status: name of a google.rpc.Code.
        code: of HTTP; default: the one that belongs to the status.
    """

    def __init__(self, status: str, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.status, self.code = status, code or _HTTP_CODES[status]

    @property
    def json(self) -> dict[str, object]:
        """The answer's body: google.rpc.Status, as REST shows it."""
        return {"error": {"code": self.code, "message": str(self), "status": self.status}}


def invalid(message: str) -> ApiError:
    """Return the error of a request that is wrong in itself."""
    return ApiError("INVALID_ARGUMENT", message)


def not_found(name: str) -> ApiError:
    """Return the error of a request for a resource that does not exist."""
    return ApiError("NOT_FOUND", f"{name} is not found.")
