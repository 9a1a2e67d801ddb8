import pytest

from tests.registry_service import ModelService, registry_at
from vertex.client import vertex_client
from vertex.registry import promotion_lock


@pytest.fixture
def service(tmp_path, monkeypatch):
    """Yield a Model Registry to which the environment points."""
    monkeypatch.setattr(vertex_client, "_FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(promotion_lock, "_PAUSE_SECONDS", 0.02)
    with ModelService(tmp_path / "registry") as service:
        for name, value in service.environment.items():
            monkeypatch.setenv(name, value)
        yield service


@pytest.fixture
def registry(service):
    return registry_at(service.environment)


@pytest.fixture
def refused(capsys):
    """Call a step that must end with exit code 2; return its one line of error."""

    def call(step, *arguments, **named):
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            step(*arguments, **named)
        error = capsys.readouterr().err
        assert (ended.value.code, error.count("\n")) == (2, 1), error
        assert error.startswith("error: ")
        return error.removeprefix("error: ")

    return call
