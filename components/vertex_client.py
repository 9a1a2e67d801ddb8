"""The way from a component to Vertex AI: a client, and calls that are tried again."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

from trainer.errors import InputError, one_line

T = TypeVar("T")

ENDPOINT_VARIABLES = ("VERTEX_AI_ENDPOINT", "CLOUDSDK_API_ENDPOINT_OVERRIDES_AIPLATFORM")
TRANSPORT_VARIABLE = "VERTEX_AI_TRANSPORT"
TOKEN_VARIABLE = "VERTEX_AI_ACCESS_TOKEN"  # noqa: S105 - of the emulator, a new one each time
# No project's: those have 6 characters at least.
LOCAL_PROJECT = "local"
"""The project of a run on this machine."""
UNSAFE_SECONDS = 120.0
"""Time for an answer to a call that must not be sent twice."""
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_RETRY_SECONDS = 120.0
_FIRST_PAUSE_SECONDS = 1.0


def model_client(location: str, environment: Mapping[str, str]) -> Any:
    """The ModelServiceClient of `location`.

    Args:
        environment: VERTEX_AI_ENDPOINT names another endpoint than Google's and
            VERTEX_AI_TRANSPORT rest or grpc, as the settings of the command line have it. A
            server of this machine is spoken to in REST, and is shown no credentials but
            VERTEX_AI_ACCESS_TOKEN.
    """
    # The generated clients alone: google.cloud.aiplatform takes two seconds more to import.
    from google.api_core.client_options import ClientOptions
    from google.cloud.aiplatform_v1.services.model_service import ModelServiceClient

    given = [environment[name] for name in ENDPOINT_VARIABLES if environment.get(name)]
    endpoint = given[0].rstrip("/") if given else ""
    is_local = urlsplit(endpoint if "://" in endpoint else f"//{endpoint}").hostname in _LOOPBACK
    if is_local and "://" not in endpoint:
        endpoint = f"http://{endpoint}"
    return ModelServiceClient(
        credentials=local_credentials(environment) if is_local else None,
        transport=environment.get(TRANSPORT_VARIABLE) or ("rest" if is_local else "grpc"),
        client_options=ClientOptions(
            api_endpoint=endpoint or f"{location}-aiplatform.googleapis.com"
        ),
    )


def local_credentials(environment: Mapping[str, str]) -> Any:
    """Return the credentials for a server of this machine: the token that it asks for, or none."""
    from google.auth.credentials import AnonymousCredentials

    token = environment.get(TOKEN_VARIABLE, "")

    class LocalCredentials(AnonymousCredentials):
        """Shows a fixed token."""

        def before_request(self, request: Any, method: str, url: str, headers: Any) -> None:
            headers["authorization"] = f"Bearer {token}"

        def refresh(self, request: Any) -> None:
            """Do nothing, so that the server's own answer to a wrong token is shown."""

    return LocalCredentials() if token else AnonymousCredentials()


def again(call: Callable[[], T]) -> T:
    """Calls, for two minutes at most, until the service is there. For what may be done twice."""
    from google.api_core import exceptions, retry

    # Google's own predicate knows 429, 500, 503 and broken connections.
    passing = (exceptions.BadGateway, exceptions.GatewayTimeout, exceptions.Aborted)

    def passes(error: BaseException) -> bool:
        return retry.if_transient_error(error) or isinstance(error, passing)

    return retry.Retry(predicate=passes, initial=_FIRST_PAUSE_SECONDS, timeout=_RETRY_SECONDS)(
        call
    )()


@contextlib.contextmanager
def in_one_line(doing: str, role: str = "roles/aiplatform.user") -> Iterator[None]:
    """Turns what the client libraries raise into an InputError that says what was tried.

    Args:
        role: that allows it.
    """
    from google.api_core import exceptions
    from google.auth import exceptions as auth

    try:
        yield
    except exceptions.Forbidden as error:
        raise InputError(
            f"{doing}: {one_line(error)}; the account of the run needs {role}"
        ) from None
    # A connection that breaks in the REST transport is an OSError.
    except (exceptions.GoogleAPIError, auth.GoogleAuthError, OSError) as error:
        raise InputError(f"{doing}: {one_line(error)}") from None
