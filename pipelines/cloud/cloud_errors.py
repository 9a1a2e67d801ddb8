"""Turn what the cloud answers into one line."""

import contextlib
import re
from collections.abc import Iterator

from components.vertex_client import CAPACITY, is_dropped, last_error, message_of, status_of
from trainer.errors import InputError, one_line

NOT_FOUND = 404
FORBIDDEN = 403
# Quota exceeded for quota metric 'Job or LRO submission requests' and limit '… per minute …'.
_RATE = re.compile(r"per[ _](second|minute|100 seconds)", re.IGNORECASE)
# A TensorFlow that is out of memory says RESOURCE_EXHAUSTED, too.
_EXHAUSTED = re.compile(r"RESOURCE_EXHAUSTED")
_MEMORY = re.compile(r"out of memory|\bOOM\b|alloc", re.IGNORECASE)
_HINTS = {
    401: "sign in: gcloud auth application-default login",
    403: "`python -m pipelines doctor` tells which role is missing",
    429: "try again in a minute, or ask for a higher limit on the console's page of quotas",
}


class CloudError(Exception):
    """The cloud refused or could not be reached; its message is one line. Exit code 1."""


def is_capacity(message: str) -> bool:
    """Return whether an error says that such machines, or the quota for them, are used up."""
    if CAPACITY.search(message):
        return True
    other = _MEMORY.search(message) or _RATE.search(message)
    return bool(_EXHAUSTED.search(message)) and not other


@contextlib.contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turn errors of the client libraries into one line.

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
    except (json_format.ParseError, requests.exceptions.JSONDecodeError) as error:
        raise CloudError(
            f"{doing}: the answer is none of Google's ({one_line(error)[:200]}); check the setting "
            "endpoint"
        ) from None
    except auth.DefaultCredentialsError:
        raise CloudError(
            f"{doing}: no credentials of Google Cloud; sign in: gcloud auth application-default "
            "login"
        ) from None
    except auth.RefreshError as error:
        raise CloudError(f"{doing}: {one_line(error)}; {_HINTS[401]}") from None
    except exceptions.BadRequest as error:
        raise InputError(f"{doing}: {message_of(error)}") from None
    except (exceptions.GoogleAPIError, auth.GoogleAuthError, requests.RequestException) as error:
        raise CloudError(f"{doing}: {described(error)}") from None
    except OSError as error:
        if is_dropped(error):
            raise CloudError(f"{doing}: the connection broke ({one_line(error)})") from None
        # A file of the SDK's, such as that of credentials.
        raise CloudError(f"{doing}: {one_line(error)}") from None


@contextlib.contextmanager
def tolerated(*statuses: int) -> Iterator[None]:
    """Pass over an error of one of these HTTP statuses."""
    try:
        yield
    except Exception as error:
        if status_of(error) not in statuses:
            raise


def described(error: BaseException) -> str:
    """Return an error's own words in one line, with its status and what may help."""
    error = last_error(error)
    if is_dropped(error):
        what = f"{type(error).__name__}: {one_line(error)[:200]}"
        return f"no connection ({what}); check the network and the setting endpoint, and try again"
    status, text = status_of(error), message_of(error)
    if status:
        text = f"{status} {text}" if not text.startswith(str(status)) else text
    return f"{text}; {_HINTS[status]}" if status in _HINTS else text
