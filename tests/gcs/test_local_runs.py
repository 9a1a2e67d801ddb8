"""Runs on this machine whose artifacts are in a bucket."""

import datetime
import re
import uuid
from typing import NamedTuple
from unittest import mock

import pytest
from kfp import dsl

from pipelines.local import folders
from tests.pipelines.local.package_runs import compile_to, resume, run_package, states
from tests.refusals import refused
from vertex.errors import InputError


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return compile_to(tmp_path_factory.mktemp("build"), remote)


@pytest.fixture
def start(package, proxy, tmp_path):
    """Run the pipeline below a root of the test's own; return the result and what was shown."""
    unique_root = f"gs://bucket/{uuid.uuid4().hex}"

    def start(root=unique_root, runs="runs", name="", **parameters):
        return run_package(package, tmp_path / runs, parameters, root=root, name=name)

    return start


def folder_of(result):
    return result.summary["artifacts"].removeprefix("gs://bucket/")


def ends(result):
    """Return the states of the two tasks."""
    return [*states(result.summary).values()]


def test_artifacts_are_written_below_the_root(start, server):
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
    # The next run below this root reuses the records while they are intact.
    assert ends(start()[0]) == ["CACHED", "SUCCEEDED"]
    server.put(f"{folder_of(result)}/make-records/records/dataset.json", b"{}")
    assert ends(start()[0]) == ["SUCCEEDED", "SUCCEEDED"]


@pytest.mark.parametrize("records", [pytest.param("intact", marks=pytest.mark.slow), "damaged"])
def test_run_is_resumed_below_its_root(start, server, records):
    needed = uuid.uuid4().hex
    failed, shown = start(needs=needed)
    assert ends(failed) == ["SUCCEEDED", "FAILED"], shown
    server.put(needed, b"")
    if records == "damaged":
        server.put(f"{folder_of(failed)}/make-records/records/dataset.json", b"{}")
    resumed = resume(failed.directory)
    assert (resumed.state, folder_of(resumed)) == ("SUCCEEDED", folder_of(failed))
    assert ends(resumed) == ["CACHED" if records == "intact" else "SUCCEEDED", "SUCCEEDED"]
    assert "evaluate/report.html" in server.sizes(folder_of(failed))
    assert (resumed.directory / "report.html").read_text() == "<p>a report</p>"


@pytest.mark.slow
def test_run_below_the_same_root_on_another_machine_has_another_name(start, tmp_path, monkeypatch):
    assert folder_of(start(name="first")[0]).endswith("/first")
    reason = r"^a run 'first' already exists in gs://bucket/.*; give another --name$"
    assert re.search(reason, refused(start, runs="others", name="first"))
    assert list((tmp_path / "others").iterdir()) == []
    now = datetime.datetime(2031, 1, 2, 3, 4, 5)
    clock = mock.Mock(**{"datetime.now.return_value": now})
    monkeypatch.setattr(folders, "datetime", clock)
    one, other = start()[0], start(runs="others")[0]
    assert folder_of(other) == f"{folder_of(one)}-2"
    assert {path.name for path in (tmp_path / "others").glob("[!.]*")} == {
        "latest",
        other.directory.name,
    }


def test_component_that_writes_to_its_path_fails(start):
    result, shown = start(to_path=True)
    assert result.state == "FAILED"
    assert "make-records/records was written, but on this machine no bucket is mounted" in shown
    assert "change the component to write to artifact.uri" in shown


def test_unusable_root_leaves_nothing(start, tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"writing gs://nowhere/.*, of --pipeline-root: 404 "):
        start(root="gs://nowhere/runs")
    for name in ("STORAGE_EMULATOR_HOST", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "CLOUDSDK_CONFIG"):
        monkeypatch.setenv(name, str(tmp_path / "nobody"))
    reason = "no Google Cloud credentials; sign in: gcloud auth application-default"
    assert re.search(reason, refused(start))
    assert list((tmp_path / "runs").iterdir()) == []


component = dsl.component(base_image="example.com/image:1", install_kfp_package=False)


@component
def make_records(records: dsl.Output[dsl.Dataset], to_path: bool):
    import pathlib

    from google.cloud import storage

    if to_path:
        pathlib.Path(records.path).write_text("lost")
        return
    bucket, _, name = records.uri.removeprefix("gs://").partition("/")
    folder = storage.Client(project=None).bucket(bucket)
    folder.blob(f"{name}/dataset.json").upload_from_string(
        '{"splits": {"train": {"examples": 3}}, "rejected": {"count": 1}}'
    )


@component
def evaluate(
    records: dsl.Input[dsl.Dataset],
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
    needs: str,
) -> NamedTuple("Evaluated", [("accuracy", float)]):
    from google.cloud import storage

    client = storage.Client(project=None)
    bucket, _, name = records.uri.removeprefix("gs://").partition("/")
    assert client.bucket(bucket).blob(f"{name}/dataset.json").download_as_bytes()
    assert not needs or client.bucket(bucket).blob(needs).exists()
    report.uri += ".html"
    bucket, _, name = report.uri.removeprefix("gs://").partition("/")
    client.bucket(bucket).blob(name).upload_from_string("<p>a report</p>")
    metrics.log_metric("accuracy", 0.5)
    return (0.5,)


@dsl.pipeline(name="remote")
def remote(to_path: bool = False, needs: str = ""):
    records = make_records(to_path=to_path).set_caching_options(True).output
    evaluate(records=records, needs=needs).set_caching_options(False)
