"""What the cloud answers, as one line, and which of its errors are worth another try."""

import contextlib
import re
from collections.abc import Iterator
from typing import Any

from trainer.errors import InputError

NOT_FOUND = 404
_RETRYABLE_STATUS = (408, 429, 500, 502, 503, 504)
_QUOTA = re.compile(r"quota", re.IGNORECASE)
# Quota exceeded for quota metric 'Job or LRO submission requests' and limit '… per minute …'.
_RATE = re.compile(r"per[ _](second|minute|100 seconds)", re.IGNORECASE)
# As public issues quote Vertex AI and, below it, Compute Engine.
_CAPACITY = re.compile(
    r"quota metrics? exceed|exceed(s|ed)? quota|quota '[^']+' exceeded|"
    r"resources? (are|is) insufficient|insufficient (resources|capacity)|stock.?out|"
    r"resource.pool.exhausted|machine type temporarily unavailable|"
    r"(does not|don't) have enough resources",
    re.IGNORECASE,
)
# A TensorFlow that is out of memory says RESOURCE_EXHAUSTED, too.
_EXHAUSTED = re.compile(r"RESOURCE_EXHAUSTED")
_MEMORY = re.compile(r"out of memory|\bOOM\b|alloc", re.IGNORECASE)
# http.client's, of a first line that is none of HTTP; and ssl's, of what is no or no trusted TLS.
_OTHER_PROTOCOL = re.compile(r"BadStatusLine\(|SSLError|SSLCertVerificationError")
_HINTS = {
    401: "sign in: gcloud auth application-default login",
    403: "`python -m pipelines doctor` tells which role is missing",
    429: "try again in a minute, or ask for a higher limit on the console's page of quotas",
}


class CloudError(Exception):
    """The cloud refused or could not be reached; its message is one line. Exit code 1."""


def is_capacity(message: str) -> bool:
    """Whether an error says that there are no such machines, or none left of the quota."""
    if _CAPACITY.search(message):
        return True
    other = _MEMORY.search(message) or _RATE.search(message)
    return bool(_EXHAUSTED.search(message)) and not other


def status_of(error: BaseException) -> int:
    """The HTTP status of an error of any of the client libraries; 0 where it has none."""
    code = getattr(error, "code", None)
    if code is None:
        response = getattr(error, "response", None)
        code = getattr(response, "status_code", 0)
    code = getattr(code, "value", code)
    code = code[0] if isinstance(code, tuple) else code
    return code if isinstance(code, int) else 0


def is_retryable(error: BaseException) -> bool:
    """Whether the same request may go through if it is sent again a little later.

    A server's fault, too many requests in a minute, and a connection that broke are; a quota
    that is used up, and a server that speaks something else, are not.
    """
    if is_dropped(error):
        return not _OTHER_PROTOCOL.search(str(error))
    text = str(error)
    used_up = _QUOTA.search(text) and not _RATE.search(text)
    return status_of(error) in _RETRYABLE_STATUS and not used_up


def is_dropped(error: BaseException) -> bool:
    """Whether the connection could not be made, or broke."""
    import urllib3
    from google.api_core import exceptions
    from google.auth import exceptions as auth
    from google.auth.transport.requests import requests

    dropped = (
        requests.exceptions.ConnectionError,
        requests.exceptions.Timeout,
        requests.exceptions.ChunkedEncodingError,
        urllib3.exceptions.HTTPError,
        exceptions.RetryError,
        ConnectionError,
        TimeoutError,
    )
    if isinstance(error, dropped):
        return True
    return isinstance(error, auth.TransportError)


@contextlib.contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turns errors of the client libraries into one line.

    Args:
        doing: what was tried, as "creating the run 'x'".

    Raises:
        InputError: the cloud says that what was asked for is wrong (400).
        CloudError: anything else.
    """
    from google.api_core import exceptions
    from google.auth import exceptions as auth
    from google.auth.transport.requests import requests
    from google.protobuf import json_format

    try:
        yield
    except json_format.ParseError as error:
        raise CloudError(
            f"{doing}: the answer is none of Vertex AI's ({_line(error)[:200]}); check the setting "
            "endpoint"
        ) from None
    except auth.DefaultCredentialsError:
        raise CloudError(
            f"{doing}: no credentials of Google Cloud; sign in: gcloud auth application-default "
            "login"
        ) from None
    except auth.RefreshError as error:
        raise CloudError(f"{doing}: {_line(error)}; {_HINTS[401]}") from None
    except exceptions.BadRequest as error:
        raise InputError(f"{doing}: {_message(error)}") from None
    except (exceptions.GoogleAPIError, auth.GoogleAuthError, requests.RequestException) as error:
        raise CloudError(f"{doing}: {described(error)}") from None
    except (ConnectionError, TimeoutError) as error:
        raise CloudError(f"{doing}: the connection broke ({_line(error)})") from None
    except OSError as error:
        # A file of the SDK's, such as that of credentials.
        raise CloudError(f"{doing}: {_line(error)}") from None


@contextlib.contextmanager
def tolerated(*statuses: int) -> Iterator[None]:
    """Passes over an error of one of these HTTP statuses."""
    try:
        yield
    except Exception as error:
        if status_of(error) not in statuses:
            raise


def described(error: BaseException) -> str:
    """An error's own words in one line, with its status and what may help."""
    if is_dropped(error):
        what = f"{type(error).__name__}: {_line(error)[:200]}"
        return f"no connection ({what}); check the network and the setting endpoint, and try again"
    status = status_of(error)
    text = _message(error)
    if status:
        text = f"{status} {text}" if not text.startswith(str(status)) else text
    return f"{text}; {_HINTS[status]}" if status in _HINTS else text


def _message(error: Any) -> str:
    """The server's words, without the URL that the REST transport puts before them."""
    text = _line(getattr(error, "message", None) or error)
    return re.sub(r"^(GET|POST|PATCH|PUT|DELETE) \S+: ", "", text)


def _line(text: Any) -> str:
    return " ".join(str(text).split())
