"""The way to Google Cloud: SDK, credentials, endpoints, and calls that are tried again."""

import dataclasses
import functools
import os
import time
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

from components.vertex_client import local_credentials
from pipelines.vertex import reach
from pipelines.vertex.errors import is_retryable, status_of, translated
from pipelines.vertex.settings import Settings
from trainer.errors import InputError
from trainer.fields import nearest

T = TypeVar("T")

CONSOLE = "https://console.cloud.google.com"
_SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]
_STORAGE = "storage.googleapis.com"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
TRIES = 6
_OPERATION_SECONDS = 300.0
_NO_SUCH_OPERATION = (404, 501)
_FIRST_PAUSE_SECONDS = 1.0


@dataclasses.dataclass(frozen=True)
class Connection:
    """Clients for a project and region.

    At an endpoint of this machine they speak REST, in place of a cloud.
    """

    settings: Settings
    _answering: set[str] = dataclasses.field(
        default_factory=set, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        settings = self.settings
        loopback = is_loopback(settings.endpoint)
        endpoint = _with_scheme(settings.endpoint) if loopback else settings.endpoint
        if endpoint:
            self.check_answers(
                endpoint,
                f"the setting endpoint is {settings.endpoint}: check it, and that a "
                "server runs there",
            )
        from google.cloud import aiplatform
        from google.cloud.aiplatform.constants.base import SUPPORTED_REGIONS

        if settings.region not in SUPPORTED_REGIONS:
            raise InputError(
                f"region={settings.region!r} is none that google-cloud-aiplatform knows"
                f"{nearest(settings.region, sorted(SUPPORTED_REGIONS))}"
            )
        with translated("signing in"):
            aiplatform.init(
                project=settings.project,
                location=settings.region,
                api_endpoint=endpoint or None,
                api_transport=settings.transport or ("rest" if loopback else "grpc"),
                credentials=self.credentials if loopback else None,
            )

    def check_answers(self, endpoint: str, advice: str = "") -> None:
        """Raises CloudError where nobody answers at an endpoint; asks each only once.

        Args:
            endpoint: without a scheme https is meant.
            advice: what to check.
        """
        url = endpoint if "://" in endpoint else f"https://{endpoint}"
        if url not in self._answering:
            reach.check(url, advice=advice or "check the network, and HTTPS_PROXY if it needs one")
            self._answering.add(url)

    @functools.cached_property
    def credentials(self) -> Any:
        """Application Default Credentials; those of the emulator for a server of this machine."""
        import google.auth

        if is_loopback(self.settings.endpoint):
            return local_credentials(os.environ)
        with translated("signing in"):
            return google.auth.default(scopes=_SCOPES)[0]

    @functools.cached_property
    def pipelines(self) -> Any:
        """PipelineServiceClient."""
        from google.cloud.aiplatform_v1.services.pipeline_service import PipelineServiceClient

        return self._client(PipelineServiceClient)

    @functools.cached_property
    def schedules(self) -> Any:
        """ScheduleServiceClient."""
        from google.cloud.aiplatform_v1.services.schedule_service import ScheduleServiceClient

        return self._client(ScheduleServiceClient)

    @functools.cached_property
    def jobs(self) -> Any:
        """JobServiceClient."""
        from google.cloud.aiplatform_v1.services.job_service import JobServiceClient

        return self._client(JobServiceClient)

    @functools.cached_property
    def models(self) -> Any:
        """ModelServiceClient."""
        from google.cloud.aiplatform_v1.services.model_service import ModelServiceClient

        return self._client(ModelServiceClient)

    @functools.cached_property
    def metadata(self) -> Any:
        """MetadataServiceClient."""
        from google.cloud.aiplatform_v1.services.metadata_service import MetadataServiceClient

        return self._client(MetadataServiceClient)

    @functools.cached_property
    def storage(self) -> Any:
        """Cloud Storage's client; STORAGE_EMULATOR_HOST leads it elsewhere."""
        from google.cloud import storage

        options = None
        emulator = os.environ.get("STORAGE_EMULATOR_HOST", "")
        if is_loopback(self.settings.endpoint) and not emulator:
            options = {"api_endpoint": _with_scheme(self.settings.endpoint)}
        with translated("signing in"):
            if emulator:
                client = storage.Client(project=self.settings.project)
            else:
                client = storage.Client(
                    project=self.settings.project,
                    credentials=self.credentials,
                    client_options=options,
                )
        at = f"STORAGE_EMULATOR_HOST is {emulator}: check that it runs there" if emulator else ""
        self.check_answers(emulator or (options or {}).get("api_endpoint", _STORAGE), at)
        return client

    def rest(self, service: str, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """A request to an API that has no client library here, such as Cloud Logging's.

        Args:
            service: as in `SERVICE.googleapis.com`; gcloud's own variable
                CLOUDSDK_API_ENDPOINT_OVERRIDES_SERVICE names another endpoint; a Vertex AI of
                this machine stands for every API that has none.
            method: GET or POST.
            path: after the endpoint, with the version.
            body: JSON.
        """
        from google.api_core import exceptions
        from google.auth.transport.requests import AuthorizedSession

        endpoint = os.environ.get(f"CLOUDSDK_API_ENDPOINT_OVERRIDES_{service.upper()}", "")
        if not endpoint and is_loopback(self.settings.endpoint):
            endpoint = self.settings.endpoint
        base = _with_scheme(endpoint) or f"https://{service}.googleapis.com"
        credentials = local_credentials(os.environ) if is_loopback(endpoint) else self.credentials

        self.check_answers(base)

        def send() -> dict[str, Any]:
            with AuthorizedSession(credentials) as session:
                response = session.request(method, f"{base}/{path}", json=body, timeout=60)
            if response.status_code >= 400:
                raise exceptions.from_http_response(response)
            return response.json()

        return attempt(send)

    def _client(self, kind: Any) -> Any:
        from google.cloud.aiplatform import initializer

        settings = self.settings
        plain = is_loopback(settings.endpoint) and not settings.endpoint.startswith("https:")
        with translated("signing in"):
            if plain and settings.transport == "grpc":
                import grpc

                # The SDK's own gRPC is always encrypted.
                channel = grpc.insecure_channel(urlsplit(_with_scheme(settings.endpoint)).netloc)
                return kind(transport=kind.get_transport_class("grpc")(channel=channel))
            client = initializer.global_config.create_client(kind)
        # Whoever has no credentials has heard of it by now.
        if not settings.endpoint:
            self.check_answers(
                f"{settings.region}-aiplatform.googleapis.com",
                f"check the network, HTTPS_PROXY if it needs one, and --region {settings.region}",
            )
        return client


def is_loopback(endpoint: str) -> bool:
    """Whether an endpoint, with or without a scheme, is on this machine."""
    if not endpoint:
        return False
    return urlsplit(endpoint if "://" in endpoint else f"//{endpoint}").hostname in _LOOPBACK


def _with_scheme(endpoint: str) -> str:
    """http:// before an endpoint of this machine that names no scheme; no slash at the end."""
    endpoint = endpoint.rstrip("/")
    return endpoint if "://" in endpoint or not endpoint else f"http://{endpoint}"


def attempt(
    call: Callable[[], T],
    *,
    tries: int = TRIES,
    told: Callable[[str], None] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Calls until it succeeds or fails for good; the pause doubles each time.

    Only for calls that do no harm when they are done twice.

    Args:
        call: raises what the client libraries raise.
        tries: how often at most.
        told: is given a line before each pause.
        sleep: how to pass the time.
    """
    pause = _FIRST_PAUSE_SECONDS
    for number in range(1, tries + 1):
        try:
            return call()
        except Exception as error:
            if number == tries or not is_retryable(error):
                raise
            if told:
                told(f"{type(error).__name__}; trying again in {pause:g} s")
        sleep(pause)
        pause = min(2 * pause, 30.0)
    raise AssertionError("unreachable")


def finished(operation: Any) -> None:
    """Waits for a long-running operation; raises what it ended with.

    A server that keeps no operations has accepted the request, and no more is to be known.
    """
    if operation.operation.done and not operation.operation.HasField("error"):
        return
    try:
        operation.result(timeout=_OPERATION_SECONDS)
    except Exception as error:
        if status_of(error) not in _NO_SUCH_OPERATION:
            raise


def run_link(settings: Settings, run_id: str) -> str:
    """The console's page of a pipeline run."""
    where = f"locations/{settings.region}/runs/{run_id}"
    return f"{CONSOLE}/vertex-ai/pipelines/{where}?project={settings.project}"


def custom_job_link(settings: Settings, job_id: str) -> str:
    """The console's page of a custom job."""
    where = f"locations/{settings.region}/training/{job_id}"
    return f"{CONSOLE}/vertex-ai/{where}/cpu?project={settings.project}"
