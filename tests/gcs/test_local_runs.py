"""Runs on this machine whose artifacts are in a bucket."""

import io
import uuid

import pytest
from rich.console import Console

from pipelines.commands import command_line
from pipelines.local.execution import run
from pipelines.local.resumption import resume
from tests.gcs.remote_pipeline import compile_to
from trainer.errors import InputError


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return compile_to(tmp_path_factory.mktemp("build") / "remote.yaml")


@pytest.fixture
def start(package, proxy, tmp_path):
    """Runs the pipeline below a root of the test's own: the result, what was shown."""
    root = f"gs://bucket/{uuid.uuid4().hex}"

    def call(root=root, **parameters):
        shown = io.StringIO()
        result = run(
            package,
            recipe="remote",
            parameters=parameters,
            runs_directory=tmp_path / "runs",
            console=Console(file=shown, width=200),
            root=root,
        )
        return result, shown.getvalue()

    return call


def states(result):
    return [task["state"] for task in result.summary["tasks"]]


def folder_of(result):
    return result.summary["artifacts"].removeprefix("gs://bucket/")


def test_artifacts_are_objects_below_the_root_and_the_report_is_here_too(start, server):
    result, shown = start()
    assert result.state == "SUCCEEDED", shown
    assert sorted(server.sizes(folder_of(result))) == [
        "evaluate/report.html",
        "make-records/records/dataset.json",
        "remote.yaml",
    ]
    assert (result.directory / "report.html").read_text() == "<p>a report</p>"
    assert result.summary["dataset"] == {"examples": {"train": 3}, "rejected": 1}
    assert result.summary["metrics"] == {"accuracy": 0.5}
    assert f"artifacts {result.summary['artifacts']}" in shown
    # The next run takes records over while they are whole, under this root alone.
    again, _ = start()
    assert states(again) == ["CACHED", "SUCCEEDED"]
    server.put(f"{folder_of(result)}/make-records/records/dataset.json", b"{}")
    damaged, _ = start()
    assert states(damaged) == ["SUCCEEDED", "SUCCEEDED"]


def test_a_run_below_a_root_is_resumed_there(start, server):
    needed = uuid.uuid4().hex
    failed, shown = start(needs=needed)
    assert states(failed) == ["SUCCEEDED", "FAILED"], shown
    server.put(needed, b"")
    resumed = resume(failed.directory)
    assert (resumed.state, folder_of(resumed)) == ("SUCCEEDED", folder_of(failed))
    assert states(resumed) == ["CACHED", "SUCCEEDED"]
    assert "evaluate/report.html" in server.sizes(folder_of(failed))
    assert (resumed.directory / "report.html").read_text() == "<p>a report</p>"


def test_records_gone_from_the_bucket_are_written_again_on_resuming(start, server):
    needed = uuid.uuid4().hex
    failed, _ = start(needs=needed)
    server.put(needed, b"")
    server.put(f"{folder_of(failed)}/make-records/records/dataset.json", b"{}")
    resumed = resume(failed.directory)
    assert states(resumed) == ["SUCCEEDED", "SUCCEEDED"]


def test_a_component_that_writes_to_the_mount_fails_instead_of_losing_its_data(start):
    result, shown = start(to_path=True)
    assert result.state == "FAILED"
    assert "make-records/records was written, but on this machine no bucket is mounted" in shown
    assert "change the component to write to artifact.uri" in shown


def test_a_root_without_a_bucket_is_one_line_and_leaves_nothing(start, tmp_path):
    with pytest.raises(InputError, match=r"writing gs://nowhere/.*, of --pipeline-root: 404 "):
        start(root="gs://nowhere/runs")
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_root_without_credentials_is_one_line_and_leaves_nothing(start, tmp_path, monkeypatch):
    for name in ("STORAGE_EMULATOR_HOST", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "CLOUDSDK_CONFIG"):
        monkeypatch.setenv(name, str(tmp_path / "nobody"))
    with pytest.raises(
        InputError, match=r"no Google Cloud credentials; sign in: gcloud auth application-default"
    ):
        start()
    assert list((tmp_path / "runs").iterdir()) == []


def test_the_environment_alone_sends_no_local_run_to_a_bucket(monkeypatch, tmp_path, capsys):
    given = {}

    def run_locally(package, *, root, **others):
        given.update(root=root)
        raise InputError("enough")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VERTEX_PIPELINE_ROOT", "gs://elsewhere/runs")
    monkeypatch.setattr("pipelines.local.execution.run", run_locally)
    command = ["run", "digits", "--local"]
    assert command_line.run(command_line.app, command) == 2
    assert given == {"root": ""}
    assert command_line.run(command_line.app, [*command, "--pipeline-root=gs://bucket/runs"]) == 2
    assert given == {"root": "gs://bucket/runs"}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--pipeline-root=/tmp/runs"], "is not a folder in Cloud Storage"),
        (["--pipeline-root=gs://bucket/runs", "--in-containers"], "leave one of them out"),
    ],
)
def test_a_root_that_can_not_be_is_one_line(flags, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command_line.run(command_line.app, ["run", "digits", "--local", *flags]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
