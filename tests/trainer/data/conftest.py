"""Fixtures of the tests of record writing."""

from pathlib import Path

import pytest

from tests.trainer.data.picture_folders import two_classes
from trainer import process_pool
from trainer.data.write import writer


@pytest.fixture
def photos(tmp_path) -> Path:
    """Write 40 pictures of each of two classes."""
    return two_classes(tmp_path / "in")


@pytest.fixture
def two_processes(monkeypatch) -> None:
    """Write with two processes, however few the pictures."""
    monkeypatch.setattr(writer, "POOL_MIN_SECONDS", 0.0)
    for module in (writer, process_pool):
        monkeypatch.setattr(module, "available_cores", lambda: 2)
