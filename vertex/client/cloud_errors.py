"""Translate errors of Google Cloud's clients into one line, and classify what to retry."""

import contextlib
import re
import traceback
from collections.abc import Iterator

from vertex.errors import InputError, one_line

FORBIDDEN, NOT_FOUND, CONFLICT, NOT_IMPLEMENTED = 403, 404, 409, 501
_REFUSED, _SERVER_ERROR = 400, 500
SENT, REMEDY = "sent", "remedy"
"""Attributes of errors: True if the change may have taken effect, although no answer says so; and
what to do if credentials are refused."""
_CAPACITY = re.compile(
    r"quota metrics? exceed|quotas? (are|is) exceeded|exceed(s|ed)? quota|quota exceeded for|"
    r"quota (limit |metric )?'[^']+' (has been |is |was )?exceeded|insufficient ('[^']+' )?quota|"
    r"resources? (are|is) insufficient|insufficient (resources|capacity)|stock.?out|"
    r"resource.pool.exhausted|machine type temporarily unavailable|"
    r"(does not|don't) have enough resources",
    re.IGNORECASE,
)
"""Messages of Vertex AI and Compute Engine on a lack of machines or quota, as in public issues."""
_RETRYABLE = (408, 429, 500, 502, 503, 504)
# http.client's error for a status line that is not HTTP; ssl's for an untrusted server or no TLS.
_OTHER_PROTOCOL = re.compile(r"BadStatusLine\(|SSLError|SSLCertVerificationError")
# "Quota exceeded for quota metric 'Job or LRO submission requests' and limit '… per minute …'"
_RATE = re.compile(r"per[ _](second|minute|100 seconds)", re.IGNORECASE)
# TensorFlow reports RESOURCE_EXHAUSTED, too, when it is out of memory.
_EXHAUSTED = re.compile(r"RESOURCE_EXHAUSTED")
_MEMORY = re.compile(r"out of memory|\bOOM\b|alloc", re.IGNORECASE)
_MISREAD = (AttributeError, KeyError, TypeError)
_PERMISSION_HINT = "`python -m pipelines doctor` shows which role is missing"
_HINTS = {
    401: "sign in: gcloud auth application-default login",
    429: "try again in a minute, or ask for a higher limit on the console's quotas page",
}


class CloudError(Exception):
    """A refused request or an unreachable cloud, described in one line; exit code 1."""


def status_of(error: BaseException) -> int:
    """Return the HTTP status of an error of any client library; 0 if it has none."""
    code = getattr(error, "code", None)
    if code is None:
        response = getattr(error, "response", None)
        code = getattr(response, "status_code", 0)
    code = getattr(code, "value", code)
    code = code[0] if isinstance(code, tuple) else code
    return code if isinstance(code, int) else 0


def _is_aborted(error: BaseException) -> bool:
    """Return True for Google's status ABORTED, which shares 409 with ALREADY_EXISTS."""
    code, response = getattr(error, "grpc_status_code", None), getattr(error, "response", None)
    if code is None and response is not None:
        with contextlib.suppress(ValueError, AttributeError):
            return response.json()["error"].get("status") == "ABORTED"
    return code is not None and code.name == "ABORTED"


def is_retryable(error: BaseException) -> bool:
    """Return True if the same request may succeed a little later.

    True for a server error, too many requests and a broken connection; False for a lack of
    machines and for a server that speaks another protocol.
    """
    if is_dropped(error):
        return not _OTHER_PROTOCOL.search(str(error))
    if _is_aborted(error) or getattr(error, "retryable", False) is True:
        return True
    return status_of(error) in _RETRYABLE and not _lacks_machines(str(error))


def is_refused(error: BaseException) -> bool:
    """Return True if Google Cloud refused the request, or the credentials, that `error` reports.

    False if there was no answer, or nobody is signed in.
    """
    from google.auth import exceptions as auth

    cause = error.__context__ or error
    return isinstance(cause, auth.RefreshError) or _REFUSED <= status_of(cause) < _SERVER_ERROR


def is_dropped(error: BaseException) -> bool:
    """Return True if the connection could not be established, or broke."""
    import urllib3
    from google.auth import exceptions as auth
    from google.auth.transport.requests import requests

    dropped = (
        requests.exceptions.ConnectionError,
        requests.exceptions.Timeout,
        requests.exceptions.ChunkedEncodingError,
        urllib3.exceptions.HTTPError,
        auth.TransportError,
        ConnectionError,
        TimeoutError,
    )
    return isinstance(error, dropped)


def last_error(error: BaseException) -> BaseException:
    """Return the error of the last attempt if `error` is a RetryError; else `error`."""
    from google.api_core import exceptions

    cause = error.cause if isinstance(error, exceptions.RetryError) else None
    return cause or error


def message_of(error: BaseException) -> str:
    """Return the server's message, without the URL that the REST transport puts before it."""
    text = one_line(getattr(error, "message", None) or error)
    return re.sub(r"^(GET|POST|PATCH|PUT|DELETE) \S+: ", "", text)


def is_capacity(message: str) -> bool:
    """Return True if an error message reports a lack of machines, or of quota for them.

    Their disks count as well: another machine may have other disks.
    """
    other = _MEMORY.search(message) or _RATE.search(message)
    return _lacks_machines(message) or (bool(_EXHAUSTED.search(message)) and not other)


def _lacks_machines(message: str) -> bool:
    return bool(_CAPACITY.search(message)) and not _RATE.search(message)


class Change:
    """A change that takes several requests; a context manager.

    Once it has `begun`, every error, also of a request that only reads, is one after which the
    change may have taken effect.
    """

    begun = False

    def __enter__(self) -> "Change":
        return self

    def __exit__(self, kind: object, error: BaseException | None, *_: object) -> None:
        if self.begun and error:
            setattr(error, SENT, True)


@contextlib.contextmanager
def translated(
    doing: str, permission_hint: str = _PERMISSION_HINT, repeat: str = ""
) -> Iterator[None]:
    """Translate errors of the client libraries into CloudError, or InputError (400: invalid).

    After a change that may have taken effect, every error is a CloudError, which says so.

    Args:
        doing: what was attempted, such as "creating the run 'x'".
        permission_hint: hint for a missing permission.
        repeat: how to find out whether a change without an answer took effect.
    """
    from google.api_core import exceptions
    from google.auth import exceptions as auth
    from google.auth.transport.requests import requests
    from google.protobuf import json_format

    try:
        yield
    except (json_format.ParseError, requests.exceptions.JSONDecodeError, *_MISREAD) as error:
        if isinstance(error, _MISREAD) and not _is_misread(error):
            raise
        raise CloudError(
            f"{doing}: the answer is not from Google's API ({one_line(error)[:200]}); check the "
            f"setting endpoint{_describe_effect(error, repeat)}"
        ) from None
    except auth.DefaultCredentialsError as error:
        why, remedy = "no Google Cloud credentials", _HINTS[401]
        if "default credentials were not found" not in str(error):
            # A file that GOOGLE_APPLICATION_CREDENTIALS names, which precedes any other.
            why = one_line(error.args[0]).rstrip(".")
            remedy = "correct GOOGLE_APPLICATION_CREDENTIALS"
        raise CloudError(f"{doing}: {why}; {remedy}") from None
    except auth.RefreshError as error:
        remedy, effect = getattr(error, REMEDY, _HINTS[401]), _describe_effect(error, repeat)
        raise CloudError(f"{doing}: {one_line(error)}; {remedy}{effect}") from None
    except exceptions.BadRequest as error:
        effect = _describe_effect(error, repeat)
        kind = CloudError if effect else InputError
        raise kind(f"{doing}: {message_of(error)}{effect}") from None
    # OSError: of the connection, or of a file of the SDK, such as the credentials file.
    except (exceptions.GoogleAPIError, auth.GoogleAuthError, OSError) as error:
        what = f"{describe(error, permission_hint)}{_describe_effect(error, repeat)}"
        raise CloudError(f"{doing}: {what}") from None


def _describe_effect(error: BaseException, repeat: str) -> str:
    # After retries in an outer call, only the last attempt's error has the attribute.
    if not any(getattr(each, SENT, False) for each in (error, last_error(error))):
        return ""
    return f"; it may have taken effect{repeat and f': {repeat}'}"


def _is_misread(error: BaseException) -> bool:
    """Return True if a client library failed on a malformed answer, such as a JSON array."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    module = frame.f_globals.get("__name__", "")
    return module.startswith(("google.", "requests."))


@contextlib.contextmanager
def as_input_error(doing: str, role: str = "roles/aiplatform.user") -> Iterator[None]:
    """Translate errors of the client libraries into InputError, which ends a step with one line.

    `role` is the IAM role that permits the attempted call.
    """
    try:
        with translated(doing, f"the account of the run needs {role}"):
            yield
    except CloudError as error:
        raise InputError(str(error)) from None


def is_unanswered(error: BaseException) -> bool:
    """Return True if a request may have taken effect: its answer was lost or is unreadable."""
    from google.protobuf import json_format

    error = last_error(error)
    unreadable = isinstance(error, json_format.ParseError)
    failed = status_of(error) >= _SERVER_ERROR and status_of(error) != NOT_IMPLEMENTED
    return unreadable or is_dropped(error) or failed


@contextlib.contextmanager
def tolerated(*statuses: int) -> Iterator[None]:
    """Suppress errors with one of these HTTP statuses."""
    try:
        yield
    except Exception as error:
        if status_of(error) not in statuses:
            raise


def describe(error: BaseException, permission_hint: str = _PERMISSION_HINT) -> str:
    """Return an error's message in one line, with its status and a hint."""
    error = last_error(error)
    if is_dropped(error):
        what = f"{type(error).__name__}: {one_line(error)[:200]}"
        return f"no connection ({what}); check the network and the setting endpoint, and try again"
    status, text = status_of(error), message_of(error)
    if status:
        text = f"{status} {text}" if not text.startswith(str(status)) else text
    hint = _HINTS.get(status)
    if status == FORBIDDEN and "retention policy" not in text:
        hint = permission_hint
    return f"{text}; {hint}" if hint else text
