"""Create clients of Google Cloud whose calls have a deadline and are retried.

These are the clients below the SDK's classes, such as aiplatform.Endpoint, which retry only reads,
have time limits for some calls, and take two seconds to import.
"""

import functools
import importlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from vertex.client.cloud_errors import (
    REMEDY,
    SENT,
    Change,
    CloudError,
    is_retryable,
    is_unanswered,
    message_of,
    status_of,
)
from vertex.facts.emulation import ENDPOINT_VARIABLE, TOKEN_VARIABLE, TRANSPORT_VARIABLE
from vertex.formats import duration

ENDPOINT_VARIABLES = (ENDPOINT_VARIABLE, "CLOUDSDK_API_ENDPOINT_OVERRIDES_AIPLATFORM")
ANSWER_SECONDS = 60.0
"""Time limit for the answer to a request."""
UNSAFE_SECONDS = 120.0
"""Time limit for the answer to a call that must not be sent twice."""
OPERATION_SECONDS = 300.0
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_RETRY_SECONDS = 120.0
_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 30.0
# gRPC reports any failure to get a token as UNAVAILABLE, with this message.
_UNSIGNED = "Getting metadata from plugin failed"
_CREATES = ("create_", "upload_", "import_")
_READS = ("get_", "list_", "predict")
_FIRST_POLL_SECONDS, _LONGEST_POLL_SECONDS = 0.1, 10.0
_FIRST_REPORT_SECONDS, _REPORT_SECONDS = 5.0, 60.0
_SILENT_SECONDS = 5.0
"""Time after which a line says that an answer is still missing."""
_LINE_SECONDS = 120.0
"""Time for which a line is not repeated."""
_waiting = threading.local()


class Service:
    """A wrapper of a generated client whose calls have a deadline and are retried, page by page.

    A call that creates something is sent only once, unless it is given a `retry`, because its
    answer may be lost after it took effect.
    """

    def __init__(self, client: Any, retry: Any) -> None:
        self._client, self.retry = client, retry

    def __getattr__(self, name: str) -> Callable[..., Any]:
        from google.api_core.timeout import ConstantTimeout

        method = getattr(self._client, name)

        def call(*arguments: Any, **options: Any) -> Any:
            options.setdefault("timeout", ConstantTimeout(ANSWER_SECONDS))
            if not name.startswith(_CREATES):
                options.setdefault("retry", self.retry)
            try:
                return method(*arguments, **options)
            except Exception as error:
                setattr(error, SENT, not name.startswith(_READS) and is_unanswered(error))
                raise

        return call

    def list_operations(self, name: str) -> list[Any]:
        """List the long-running operations of a resource, which may have ended."""
        # The client's own method has paths that begin with /ui/.
        client = self._client.transport.operations_client
        return list(client.list_operations(name, "", retry=self.retry, timeout=ANSWER_SECONDS))


def connect_service(
    kind: Any, endpoint: str, *, transport: str = "", credentials: Any = None, retry: Any = None
) -> Service:
    """Connect a generated client, such as ModelServiceClient, to a host or URL.

    Args:
        transport: rest or grpc; empty: rest for a server on this machine, else grpc.
        credentials: credentials of the client; None: Application Default Credentials.
        retry: Retry for each call; None: `make_retry()`.
    """
    from google.api_core.client_options import ClientOptions

    local = is_loopback(endpoint)
    endpoint = add_scheme(endpoint) if local else endpoint
    transport = transport or ("rest" if local else "grpc")
    if local and transport == "grpc" and not endpoint.startswith("https:"):
        import grpc
        from google.auth.transport.grpc import AuthMetadataPlugin

        # A generated client creates only encrypted channels.
        secrets = grpc.local_channel_credentials()
        if credentials:
            token = grpc.metadata_call_credentials(AuthMetadataPlugin(credentials, None))
            secrets = grpc.composite_channel_credentials(secrets, token)
        host = urlsplit(endpoint).netloc
        channel = grpc.secure_channel(host, secrets)
        client = kind(transport=kind.get_transport_class("grpc")(channel=channel))
    else:
        client = kind(
            credentials=credentials,
            transport=transport,
            client_options=ClientOptions(api_endpoint=endpoint),
        )
        operations = getattr(client.transport, "operations_client", None)
        if transport == "rest" and operations:
            # The generated paths begin with /ui/, which is on no page; the default is /v1/.
            operations.transport._http_options.clear()
    return Service(client, retry or make_retry())


def connect_vertex(name: str, location: str, environment: Mapping[str, str]) -> Any:
    """Connect to a service of Vertex AI, such as "model", in `location`.

    Args:
        environment: environment variables. VERTEX_AI_ENDPOINT overrides Google's endpoint, and
            VERTEX_AI_TRANSPORT is rest or grpc, like the settings of the command line. A server on
            this machine gets no credentials except VERTEX_AI_ACCESS_TOKEN.
    """
    endpoints = [environment[name] for name in ENDPOINT_VARIABLES if environment.get(name)]
    endpoint = endpoints[0].rstrip("/") if endpoints else f"{location}-aiplatform.googleapis.com"
    return connect_service(
        import_client_class(name),
        endpoint,
        transport=environment.get(TRANSPORT_VARIABLE, ""),
        credentials=local_credentials(environment) if is_loopback(endpoint) else None,
    )


def import_client_class(name: str) -> Any:
    """Import the generated client of a service of Vertex AI, such as "model"."""
    # Only this module: importing google.cloud.aiplatform takes two more seconds.
    module = importlib.import_module(f"google.cloud.aiplatform_v1.services.{name}_service")
    return getattr(module, f"{name.title()}ServiceClient")


class Wait:
    """Pauses between looks at a server, with a line of output a minute if `what` is not empty."""

    def __init__(self, seconds: float, what: str = "", say: Callable[[str], None] = print) -> None:
        self.seconds, self._what, self._say = seconds, what, say
        self._begin, self._pause = time.monotonic(), _FIRST_POLL_SECONDS
        self._next_line = _FIRST_REPORT_SECONDS

    @property
    def is_over(self) -> bool:
        """Return True once the time is over."""
        return time.monotonic() - self._begin > self.seconds

    def pause(self) -> bool:
        """Sleep; return False instead once the time is over."""
        if self.is_over:
            return False
        waited = time.monotonic() - self._begin
        if self._what and waited >= self._next_line:
            self._say(f"{self._what} ({duration(waited)})")
            self._next_line = waited + _REPORT_SECONDS
        time.sleep(self._pause)
        self._pause = min(2 * self._pause, _LONGEST_POLL_SECONDS)
        return True


def finish(operation: Any, retry: Any, wait: Wait | None = None) -> None:
    """Wait for a long-running operation, by default for five minutes; raise its error."""
    wait = wait or Wait(OPERATION_SECONDS)
    with Change() as change:
        change.begun = True
        while not retry(operation.done)():
            if not wait.pause():
                name, after = operation.operation.name, duration(wait.seconds)
                raise CloudError(f"{name} has not ended after {after}, and may still succeed")
    operation.result()


def is_loopback(endpoint: str) -> bool:
    """Return True if an endpoint, with or without a scheme, is on this machine."""
    return urlsplit(endpoint if "://" in endpoint else f"//{endpoint}").hostname in _LOOPBACK


def add_scheme(endpoint: str) -> str:
    """Prefix an endpoint without a scheme with http://; strip the trailing slash."""
    endpoint = endpoint.rstrip("/")
    return endpoint if "://" in endpoint or not endpoint else f"http://{endpoint}"


def make_retry(
    say: Callable[[str], None] | None = None,
    *,
    sign_in: Callable[[], None] | None = None,
    seconds: float | None = None,
) -> Any:
    """Make a google.api_core.retry.Retry for idempotent calls.

    Args:
        say: called with a line before a retry, and if an answer takes long; not again with the
            same line for two minutes.
        sign_in: renews the credentials, or raises an error.
        seconds: longest time to retry for; default: two minutes.
    """
    from google.api_core.retry import Retry

    def can_retry(error: BaseException) -> bool:
        if sign_in and _UNSIGNED in str(error):
            sign_in()
        return is_retryable(error)

    said: dict[str, float] = {}
    limit = seconds or _RETRY_SECONDS

    def say_once(line: str) -> None:
        now = time.monotonic()
        if say and now > said.get(line, 0.0):
            said[line] = now + _LINE_SECONDS
            say(line)

    def report(error: BaseException) -> None:
        what = f"{status_of(error) or type(error).__name__} {message_of(error)[:160]}"
        say_once(f"no answer: {what}; trying again for up to {duration(limit)}")

    class AnnouncingRetry(Retry):
        """A Retry that says when an answer takes long."""

        def __call__(self, function: Any, on_error: Any = None) -> Any:
            return super().__call__(_announce(function, say_once), on_error)

    return (AnnouncingRetry if say else Retry)(
        predicate=can_retry,
        initial=_FIRST_PAUSE_SECONDS,
        maximum=_LONGEST_PAUSE_SECONDS,
        multiplier=2.0,
        timeout=limit,
        on_error=report,
    )


def _announce(function: Callable[..., Any], say: Callable[[str], None]) -> Callable[..., Any]:
    """Return a function that says a line while its answer is missing for `_SILENT_SECONDS`."""

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        # A call of several calls is not waiting for an answer itself.
        if outer := getattr(_waiting, "timer", None):
            outer.cancel()
        line = f"no answer for {_SILENT_SECONDS:g} s; still waiting"
        timer = _waiting.timer = threading.Timer(_SILENT_SECONDS, say, [line])
        timer.daemon = True
        timer.start()
        try:
            return function(*arguments, **options)
        finally:
            timer.cancel()

    return call


def local_credentials(environment: Mapping[str, str]) -> Any:
    """Return credentials for a server on this machine: VERTEX_AI_ACCESS_TOKEN, or none."""
    from google.auth.credentials import AnonymousCredentials
    from google.auth.exceptions import RefreshError

    token = environment.get(TOKEN_VARIABLE, "")

    class LocalCredentials(AnonymousCredentials):
        """Credentials that send a fixed token, if any."""

        def before_request(self, request: Any, method: str, url: str, headers: Any) -> None:
            if token:
                headers["authorization"] = f"Bearer {token}"

        def refresh(self, request: Any) -> None:
            what = f"another {TOKEN_VARIABLE}" if token else f"a token in {TOKEN_VARIABLE}"
            error = RefreshError(f"401 the server requires {what}")
            setattr(error, REMEDY, "set it to what the server prints")
            raise error

    return LocalCredentials()
