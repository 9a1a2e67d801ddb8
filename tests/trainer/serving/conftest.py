"""A server of images and one of rows, each with the records that its model knows."""

import pytest

from tests import tables
from tests.trainer.serving.servers import serve
from trainer.models import build_model
from trainer.training.export import export


@pytest.fixture(scope="session")
def image_model(trained):
    return str(trained / "model")


@pytest.fixture(scope="session")
def image_server(image_model):
    with serve(image_model) as server:
        yield server


@pytest.fixture(scope="session")
def row_records(tmp_path_factory):
    return tables.records(tmp_path_factory.mktemp("rows"), 900)


@pytest.fixture(scope="session")
def row_model(tmp_path_factory, row_records):
    folder = str(tmp_path_factory.mktemp("row-model"))
    export(build_model("wide_and_deep", row_records, {"hidden_units": [16]}), row_records, folder)
    return folder


@pytest.fixture(scope="session")
def row_server(row_model):
    with serve(row_model) as server:
        yield server
