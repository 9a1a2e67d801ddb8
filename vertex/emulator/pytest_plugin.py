"""A plugin of pytest: the fixture `vertex` is a Google Cloud project that a test has for itself.

    def test_pipeline_trains(vertex):
        aiplatform.init(project=vertex.project, location=vertex.location)
        job = aiplatform.PipelineJob(display_name="train", template_path="train.yaml")
        job.submit()
        job.wait()

Google's clients need no settings. One emulator serves all tests of a session.
"""

import dataclasses
import datetime
import itertools
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from vertex.emulator.local_project import LocalProject

_NUMBERS = itertools.count(1)


@dataclasses.dataclass
class VertexProject:
    """A project of the emulator."""

    project: str  # ID
    location: str  # region
    bucket: str  # gs:// URI
    emulator: "LocalProject"
    _faults: list[tuple[str, Any]] = dataclasses.field(default_factory=list)
    requests: list[tuple[str, Any]] = dataclasses.field(default_factory=list)
    """The requests of this test: names of API methods, such as CreatePipelineJob, and messages."""

    def advance_clock(self, **ahead: float) -> None:
        """Set the emulator's clock forward, such as by `days=7`, and fire the schedules due."""
        self.emulator.clock.advance(datetime.timedelta(**ahead))
        self.emulator.fire()

    def fail(self, method: str, status: str = "UNAVAILABLE", *, times: int = 1) -> None:
        """Answer the next requests of an API method with an error, a google.rpc.Code by name."""
        from vertex.emulator.api_error import ApiError

        self._faults += [(method, ApiError(status, f"{method} fails in this test"))] * times

    def _call(self, call: Any, name: str, function: Any, request: Any) -> Any:
        self.requests.append((name, request))
        for fault in self._faults:
            if fault[0] == name:
                self._faults.remove(fault)
                raise fault[1]
        return call(name, function, request)


@pytest.fixture(scope="session")
def vertex_emulator(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[LocalProject]":
    """The emulator of this session."""
    from vertex.emulator.local_project import LocalProject

    folder = tmp_path_factory.mktemp("vertex")
    with pytest.MonkeyPatch.context() as patch, LocalProject(folder) as emulator:
        # gRPC reads the root certificates once in a process.
        for name, value in emulator.environment.items():
            patch.setenv(name, value)
        yield emulator


@pytest.fixture
def vertex(
    vertex_emulator: "LocalProject", monkeypatch: pytest.MonkeyPatch
) -> Iterator[VertexProject]:
    """A fresh project, to which Google's clients lead."""
    name = f"test-project-{next(_NUMBERS)}"
    for variable in ("GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT"):
        monkeypatch.setenv(variable, name)
    vertex_emulator.buckets.make(f"{name}-bucket")
    project = VertexProject(name, vertex_emulator.location, f"gs://{name}-bucket", vertex_emulator)
    call = vertex_emulator.server.call
    monkeypatch.setattr(
        vertex_emulator.server, "call", lambda *request: project._call(call, *request)
    )
    yield project
    # What aiplatform.init() has set.
    if initializer := sys.modules.get("google.cloud.aiplatform.initializer"):
        initializer.global_config.__init__()
