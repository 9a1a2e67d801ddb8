"""Files that trainer/ writes to a bucket and reads from it, also when requests fail."""

import json

import pytest
import tensorflow as tf

from components.artifact_metadata import mark_as_html
from components.planning.registered_model import digest_dataset
from tests.refusals import refused
from tests.trainer.data.picture_folders import two_classes, write
from trainer.data import storage
from trainer.data.integrity import check_shards
from trainer.data.schema import load_dataset
from trainer.data.tables.csv_text import read_header
from trainer.data.write.record_options import RecordOptions
from trainer.data.write.writer import create_tfrecords
from trainer.engine import checkpoints
from trainer.exported import model_files, results
from vertex import checked_json
from vertex.errors import InputError


@pytest.fixture
def faulty(start_proxy):
    """A proxy in which every third request meets a fault."""
    return start_proxy(rate=0.33, seed=3)


def test_small_file_is_written_by_one_upload(proxy, server):
    storage.write_json("gs://bucket/direct/metrics.json", {"steps": 3})
    assert list(server.sizes("direct")) == ["metrics.json"]
    assert proxy.requests == 2  # A resumable upload: its start, and the content.
    assert json.loads(storage.read_text("gs://bucket/direct/metrics.json")) == {"steps": 3}
    assert storage.read_text("gs://bucket/direct/none") is None


def test_file_that_has_grown_is_read_to_its_end(proxy, server):
    uri = "gs://bucket/growing/evaluations.csv"
    server.put("growing/evaluations.csv", b"epoch\n1\n")
    assert tf.io.gfile.stat(uri).length == 8  # TensorFlow caches this for a while.
    server.put("growing/evaluations.csv", b"epoch\n1\n2\n")
    assert storage.read_text(uri) == "epoch\n1\n2\n"


def test_report_gets_the_content_type_of_html(faulty, server):
    storage.write_json("gs://bucket/shown/report.html", {})
    assert server.content_type("shown/report.html") != "text/html"
    for _ in range(3):
        mark_as_html("gs://bucket/shown/report.html")
    assert server.content_type("shown/report.html") == "text/html"
    assert json.loads(storage.read_text("gs://bucket/shown/report.html")) == {}
    error = refused(mark_as_html, "gs://bucket/shown/none")
    assert "setting the content type of gs://bucket/shown/none: 404" in error


def test_results_are_read_from_a_bucket(proxy, server):
    error = refused(results.load, "gs://bucket/left")
    assert "left/metrics.json is missing: the chief did not" in error
    metrics = checked_json.with_checksum({"steps": 3})
    server.put("left/metrics.json", json.dumps(metrics).encode())
    server.put("left/history.csv", b"epoch,loss\n1,0.5\n")
    assert results.load("gs://bucket/left").history == [{"epoch": 1.0, "loss": 0.5}]
    server.put("left/dataset.json", b"{}")
    assert digest_dataset("gs://bucket/left").startswith("44136fa3")


def test_digests_in_a_bucket_include_the_files_beside_the_model(proxy, server):
    server.put("made/model/saved_model.pb", b"graph")
    server.put("made/history.csv", b"epoch,loss\n1,0.5\n")
    model_files.write_digests("gs://bucket/made/model", "history.csv")
    model_files.check("gs://bucket/made/model")
    model_files.check_beside("gs://bucket/made/model", "history.csv")
    server.put("made/history.csv", b"epoch,loss\n1,0.6\n")
    error = refused(model_files.check_beside, "gs://bucket/made/model", "history.csv")
    assert "gs://bucket/made/history.csv is damaged" in error


def test_files_arrive_whole_when_requests_fail(faulty, server):
    texts = {f"faulty/{number}": f"{number} " * 1000 for number in range(4)}
    for name, text in texts.items():
        storage.write_text(f"gs://bucket/{name}", text)
    for name, text in texts.items():
        assert server.get(name).decode() == storage.read_text(f"gs://bucket/{name}") == text
    assert sum(faulty.faults.values()) > 3


def create(source, output):
    described = {"columns": [{"name": "a", "type": "numeric"}], "label": {"column": "b"}}
    table = described if source.startswith("csv:") else {}
    return create_tfrecords(RecordOptions(source=source, **table), str(output))


def assert_unreadable(name, call, *arguments):
    error = refused(call, *arguments)
    assert f"{name} can't be read: " in error
    assert "; run again" in error


@pytest.mark.slow
def test_unavailable_storage_is_an_error(faulty, server, tmp_path):
    photo = "gs://bucket/photos/a.jpg"
    server.put("photos/a.jpg", b"content")
    faulty.rate, faulty.kinds = 1.0, ("unavailable",)
    for faulty.refusal in (503, 401):
        assert_unreadable(photo, storage.read, photo)
    assert_unreadable(photo, storage.sha256, photo)
    assert_unreadable(photo, read_header, photo)
    for source in ("images:gs://bucket/photos", "csv:gs://bucket/t.csv", "csv:gs://bucket/t*.csv"):
        assert_unreadable(source.partition(":")[2], create, source, tmp_path / "out")
    faulty.rate = 0.0
    with pytest.raises(FileNotFoundError):
        storage.read("gs://bucket/photos/b.jpg")
    for name in ("t.csv", "t*.csv"):
        assert "no-such-bucket/t" in refused(create, f"csv:gs://no-such-bucket/{name}", tmp_path)


def test_unreadable_checkpoints_are_an_error(proxy, server):
    directory = "gs://bucket/checkpoints"
    assert checkpoints.find_newest(directory) is None
    state = {"model_checkpoint_path": "ckpt-7", "all_model_checkpoint_paths": "ckpt-7"}
    lines = [f"{name}: {json.dumps(value)}\n" for name, value in state.items()]
    server.put("checkpoints/checkpoint", "".join(lines).encode())
    with pytest.raises(RuntimeError, match=r"the checkpoints in .* can't be read"):
        checkpoints.find_newest(directory)


def test_later_of_two_writers_keeps_the_folder(proxy, server, tmp_path):
    """Cloud Storage has no locks; a note names the writer that may finish."""
    source, uri = two_classes(tmp_path / "in"), "gs://bucket/contested"
    later: list = []

    def interrupt(line):
        """Let another writer begin and end before the first shard is written."""
        if "reused" in line:
            later.append(write(source, uri, image_size=24))

    with pytest.raises(InputError, match=f"^{uri} is now written by .*; only one writer can use"):
        store = "gs://bucket/contested-store"
        options = {"image_size": 16, "encoding": "raw", "records_store": store}
        create_tfrecords(
            RecordOptions(source=f"images:{source}", **options), uri, progress=interrupt
        )
    # The note of a killed writer does not stop a later one.
    server.put("contested/.unfinished/writer.json", b"{}")
    again = write(source, uri, image_size=24)
    assert again == later[0] == load_dataset(uri)
    check_shards(again, [shard for split in again.splits.values() for shard in split.shards])
