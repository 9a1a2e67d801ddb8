"""Clients of Google Cloud for a project and region, signed in."""

import dataclasses
import datetime
import functools
import os
import socket
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from pipelines.printing import print_error
from pipelines.project.settings import Settings
from vertex.client.cloud_errors import NOT_FOUND, CloudError, tolerated, translated
from vertex.client.vertex_client import (
    ANSWER_SECONDS,
    add_scheme,
    connect_service,
    finish,
    import_client_class,
    is_loopback,
    local_credentials,
    make_retry,
)
from vertex.facts import regions

_SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]
_STORAGE = "storage.googleapis.com"
_TOKEN_SERVERS = ("_token_uri", "_token_url")
"""Attributes of credentials of users and service accounts, and of federated ones."""
_CONNECTING_SECONDS = 2.5
_TRIES = 2


def _declare_client(name: str) -> Any:
    """Declare a property for a client of Vertex AI; it is imported on first use."""

    def connect(self: "Connection") -> Any:
        settings = self.settings
        host = f"{settings.region}-aiplatform.googleapis.com"
        # Report missing credentials before an unreachable server.
        credentials = self.credentials
        if not settings.endpoint:
            advice = "check the network, HTTPS_PROXY if it needs one, and --region "
            self.check_answers(host, f"{advice}{settings.region}")
        with translated("signing in"):
            return connect_service(
                import_client_class(name),
                settings.endpoint or host,
                transport=settings.transport,
                credentials=credentials,
                retry=self.retry,
            )

    return functools.cached_property(connect)


@dataclasses.dataclass(frozen=True)
class Connection:
    """Clients for a project and region. Each call has a deadline and is retried.

    The clients speak REST to an endpoint on this machine.
    """

    settings: Settings
    # Called with a line before each retry; default: print to standard error.
    say: Callable[[str], None] = print_error
    _answering: set[str] = dataclasses.field(
        default_factory=set, init=False, repr=False, compare=False
    )

    pipelines = _declare_client("pipeline")
    schedules = _declare_client("schedule")
    jobs = _declare_client("job")
    models = _declare_client("model")
    endpoints = _declare_client("endpoint")
    metadata = _declare_client("metadata")

    def __post_init__(self) -> None:
        if endpoint := self.settings.endpoint:
            advice = f"the setting endpoint is {endpoint}: check it, and that its server is running"
            self.check_answers(self._local_endpoint or endpoint, advice)
        regions.check_region(self.settings.region)

    @property
    def _local_endpoint(self) -> str:
        """Return the setting endpoint as a URL if it is on this machine; else an empty string."""
        endpoint = self.settings.endpoint
        return add_scheme(endpoint) if is_loopback(endpoint) else ""

    def check_answers(self, endpoint: str, advice: str = "") -> None:
        """Raise CloudError with advice if an endpoint does not answer; check each only once."""
        url = endpoint if "://" in endpoint else f"https://{endpoint}"
        if url not in self._answering:
            check_server(url, advice or "check the network, and HTTPS_PROXY if it needs one")
            self._answering.add(url)

    @functools.cached_property
    def credentials(self) -> Any:
        """Return valid Application Default Credentials, or the emulator's for a local endpoint.

        They are refreshed immediately, which reports expired credentials: gRPC would treat them as
        an outage.
        """
        import google.auth
        from google.auth.transport.requests import Request

        if self._local_endpoint:
            return local_credentials(os.environ)
        with translated("signing in"):
            credentials = google.auth.default(scopes=_SCOPES)[0]
            for server in filter(None, (getattr(credentials, name, "") for name in _TOKEN_SERVERS)):
                self.check_answers(server)
            make_retry(self.say)(credentials.refresh)(Request())
            return credentials

    @functools.cached_property
    def retry(self) -> Any:
        """Return the google.api_core Retry for idempotent calls; it prints a line per retry."""
        return self.make_retry(self.say)

    def make_retry(self, say: Callable[[str], None], seconds: float | None = None) -> Any:
        """Return a Retry with a timeout other than the default two minutes."""
        from google.auth.transport.requests import Request

        def sign_in() -> None:
            self.credentials.refresh(Request())

        return make_retry(say, sign_in=sign_in, seconds=seconds)

    @functools.cached_property
    def registry(self) -> Any:
        """Return the Model Registry of the settings' project and region."""
        from vertex.registry.model_registry import ModelRegistry

        return ModelRegistry(self.models, self.settings.parent)

    @functools.cached_property
    def storage(self) -> Any:
        """Return the client of Cloud Storage, or of STORAGE_EMULATOR_HOST if that is set."""
        from google.cloud import storage

        emulator = os.environ.get("STORAGE_EMULATOR_HOST", "")
        options: dict[str, Any] = {} if emulator else {"credentials": self.credentials}
        if self._local_endpoint and not emulator:
            options["client_options"] = {"api_endpoint": self._local_endpoint}
        with translated("signing in"):
            client = storage.Client(project=self.settings.project, **options)
        advice = f"STORAGE_EMULATOR_HOST is {emulator}: check that it is running there"
        self.check_answers(emulator or self._local_endpoint or _STORAGE, advice if emulator else "")
        return client

    def call_api(self, service: str, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """Call an API whose client library this project does not use, such as Cloud Logging's.

        gcloud's own variable CLOUDSDK_API_ENDPOINT_OVERRIDES_SERVICE overrides the endpoint
        SERVICE.googleapis.com. Without it, a Vertex AI endpoint on this machine serves every API.
        """
        endpoint = os.environ.get(f"CLOUDSDK_API_ENDPOINT_OVERRIDES_{service.upper()}", "")
        base = add_scheme(endpoint) or self._local_endpoint or f"https://{service}.googleapis.com"
        self.check_answers(base)
        return self.send_json(method, f"{base}/{path}", body)

    def send_json(self, method: str, url: str, body: Any = None) -> dict[str, Any]:
        """Send JSON and return the JSON object of the response."""
        from google.protobuf import json_format

        answer = self.send_request(method, url, json=body).json()
        if not isinstance(answer, dict):
            raise json_format.ParseError("JSON that is not an object")
        return answer

    def send_request(self, method: str, url: str, **content: Any) -> Any:
        """Send a request with `requests`; return its Response, or raise GoogleAPICallError."""
        from google.api_core import exceptions
        from google.auth.transport.requests import AuthorizedSession

        credentials = local_credentials(os.environ) if is_loopback(url) else self.credentials

        def send() -> Any:
            with AuthorizedSession(credentials) as session:
                response = session.request(method, url, timeout=ANSWER_SECONDS, **content)
            if response.status_code < 400:
                return response
            try:
                raise exceptions.from_http_response(response)
            except (AttributeError, TypeError):
                # The JSON does not have the form of Google's errors.
                raise exceptions.from_http_status(
                    response.status_code, response.text, response=response
                ) from None

        return self.retry(send)()

    def now(self) -> datetime.datetime:
        """Return the time; from an emulator, that of its clock, which may be ahead."""
        if self._local_endpoint:
            with translated("asking for the time"), tolerated(NOT_FOUND):
                answer = self.send_json("GET", f"{self._local_endpoint}/clock")
                return datetime.datetime.fromisoformat(answer["now"])
        return datetime.datetime.now(datetime.UTC)

    def finish(self, operation: Any) -> None:
        """Wait for a long-running operation; raise its error, if any."""
        finish(operation, self.retry)


def check_server(url: str, advice: str) -> None:
    """Fail fast with CloudError when a server refuses connections; calls retry for minutes.

    Does not check a server that is reached through a proxy.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if urllib.request.getproxies().get(parts.scheme) and not urllib.request.proxy_bypass(host):
        return
    for number in range(1, _TRIES + 1):
        try:
            port = parts.port or (80 if parts.scheme == "http" else 443)
            socket.create_connection((host, port), timeout=_CONNECTING_SECONDS).close()
            return
        except (OSError, ValueError) as error:
            # An unknown host or invalid port is permanent; other errors may pass.
            if number == _TRIES or isinstance(error, (socket.gaierror, ValueError)):
                why = getattr(error, "strerror", None) or error
                raise CloudError(f"no answer from {parts.netloc} ({why}); {advice}") from None


def console_link(settings: Settings, path: str) -> str:
    """Return the URL of a page of the console, with {region} in `path` replaced."""
    path = path.format(region=settings.region)
    return f"https://console.cloud.google.com/{path}?project={settings.project}"


def run_link(settings: Settings, run_id: str) -> str:
    """Return the URL of a pipeline run in the console."""
    return console_link(settings, f"vertex-ai/pipelines/locations/{{region}}/runs/{run_id}")
