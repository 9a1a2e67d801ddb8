"""Fixtures: a server of images and one of rows."""

import pytest

from tests.trainer.serving.serving_processes import serve


@pytest.fixture(scope="session")
def image_model(trained):
    return str(trained / "model")


@pytest.fixture(scope="package")
def image_server(image_model):
    with serve(image_model) as server:
        yield server


@pytest.fixture(scope="package")
def row_server(row_model, tmp_path_factory):
    """A server whose request log is on a full disk, and the file of its errors."""
    errors = tmp_path_factory.mktemp("rows") / "errors"
    with serve(row_model, environment={"REQUEST_LOG": "/dev/full"}, errors=errors) as server:
        yield server
