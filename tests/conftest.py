"""Fixtures that tests share: one set of records and one trained model."""

import fcntl
import functools
import gc
import os
import pickle
import shlex
from pathlib import Path

import pytest

import components  # noqa: F401 Before the tests import Google's services.
import trainer  # noqa: F401 Sets the threshold of garbage collection before the tests' imports.

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
# Tests run side by side, so that more threads only wait for each other.
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
# In microseconds; read when TensorFlow is imported. Its own, 1 s to 32 s, suit a real service.
os.environ.setdefault("GCS_RETRY_CONFIG_INIT_DELAY_TIME_US", "20000")
os.environ.setdefault("GCS_RETRY_CONFIG_MAX_DELAY_TIME_US", "200000")


def pytest_collection_finish():
    """Spare garbage collection what stays until the end: imported modules and tests."""
    gc.freeze()


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """Make a folder once for all processes of pytest-xdist: shared(name, make) returns it."""
    base = tmp_path_factory.getbasetemp()
    root = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def made(name, make) -> Path:
        folder, done = root / name, root / f"{name}.done"
        with (root / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                make(folder)
                done.touch()
        return folder

    return made


@pytest.fixture(scope="session")
def digit_records(shared):
    """1,000 training, 120 validation and 120 test scans, 8x8x1."""
    from tests.small_records import digits
    from trainer.data.schema import load_dataset

    return load_dataset(str(shared("digits", lambda folder: digits(folder, (600, 400), 120))))


TRAINED = "--epochs=6 --learning_rate=0.002 --schedule=one_cycle --early_stopping_patience=3"
"""Options of the job `trained`."""


@pytest.fixture(scope="session")
def trained(shared, digit_records) -> Path:
    """The base_output_directory of a job that `trainer.task` has run to its end."""
    from tests import replicas

    def train(folder):
        flags = replicas.flags(digit_records, folder, TRAINED)
        replicas.run("trainer.task", flags, replicas.ALONE, folder / "replicas")

    return shared("trained", train)


def _export(folder, model, dataset, **options):
    from trainer.exported.export import export
    from trainer.models import open_model_for

    export(open_model_for(model, dataset, options).build(dataset), dataset, str(folder))


@pytest.fixture(scope="session")
def untrained_model(shared, digit_records):
    """URI of the SavedModel of a network for `digit_records`, as it is before training."""
    return str(shared("untrained", lambda folder: _export(folder, "small_cnn", digit_records)))


@pytest.fixture(scope="session")
def row_records(shared):
    """900 rows of a made-up table."""
    from tests import tables
    from trainer.data.schema import load_dataset

    return load_dataset(f"{shared('rows', lambda folder: tables.records(folder, 900))}/records")


@pytest.fixture(scope="session")
def row_model(shared, row_records):
    """URI of the SavedModel of a network for `row_records`, as it is before training."""
    options = {"model": "wide_and_deep", "dataset": row_records, "hidden_units": [16]}
    return str(shared("row-model", lambda folder: _export(folder, **options)))


@pytest.fixture(scope="session")
def drawings():
    """The plots of reports by their content; clear it to draw again."""
    return {}


@pytest.fixture
def equal_plots_drawn_once(drawings, monkeypatch):
    """Draw each of a report's plots once, which takes most of a report's time."""
    from trainer.drawing import plots

    def drawn_once(draw):
        def look_up(*arguments, **options):
            key = pickle.dumps((draw.__name__, arguments, options))
            if key not in drawings:
                drawings[key] = draw(*arguments, **options)
            return drawings[key]

        return look_up

    for name in ("draw_lines", "draw_curves", "draw_reliability"):
        monkeypatch.setattr(plots, name, drawn_once(getattr(plots, name)))


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Set a working folder and a home of the test's own; unset what configures Google Cloud."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in list(os.environ):
        if name.startswith(("GOOGLE_", "CLOUDSDK_", "VERTEX_")):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def commands_built_once():
    """Build the tree of commands once, which takes longer than most commands."""
    import typer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", functools.cache(typer.main.get_command))
        yield


@pytest.fixture
def command(capfd, commands_built_once):
    """Run a command line, its first argument split as by a shell; return code, output, errors."""
    from pipelines.commands import command_line

    def run(line, *more):
        code = command_line.run(command_line.app, [*shlex.split(line), *more])
        shown = capfd.readouterr()
        return code, shown.out, shown.err

    return run


@pytest.fixture
def succeed(command):
    """Run a command line that must end with exit code 0 and no errors; return its output."""

    def run(*arguments):
        code, output, errors = command(*arguments)
        assert (code, errors) == (0, ""), (arguments, output, errors)
        return output

    return run


@pytest.fixture
def refused(command):
    """Run a command line that must end in one line, by default with exit code 2; return it."""

    def run(*arguments, code=2):
        *ended, error = command(*arguments)
        assert (*ended, error.count("\n")) == (code, "", 1), (arguments, error)
        assert error.startswith("error: ")
        return error

    return run


def _folder_in(variable: str) -> Path:
    if not os.environ.get(variable):
        pytest.skip(f"{variable} is not set")
    return Path(os.environ[variable])


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data, or a skip where REAL_DATA_DIR is unset."""
    return _folder_in("REAL_DATA_DIR")


@pytest.fixture(scope="session")
def vertex_pages() -> Path:
    """The folder of Vertex AI's documentation as text, or a skip where VERTEX_PAGES is unset.

    Such as docs/docs.cloud.google.com/gemini-enterprise-agent-platform of the repository
    apstndb/gemini-enterprise-agent-platform-docs-mirror.
    """
    return _folder_in("VERTEX_PAGES")
