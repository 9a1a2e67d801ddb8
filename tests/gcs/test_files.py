"""Files that trainer/ writes to a bucket are whole there, whatever happens on the way."""

import json

import pytest
import tensorflow as tf

from components.evaluate_model import set_content_type
from components.registry.trained_versions import dataset_digest
from tests.trainer.data.folders import two_classes
from trainer import files
from trainer.data import storage
from trainer.data.integrity import check_shards
from trainer.data.record_options import RecordOptions
from trainer.data.schema import load
from trainer.data.tables.rows import read_header
from trainer.data.write.writer import create_tfrecords
from trainer.errors import InputError
from trainer.evaluation import results
from trainer.training import checkpoint


@pytest.fixture
def faulty(start_proxy):
    """Every third request meets a fault."""
    return start_proxy(rate=0.33, seed=3)


def test_a_small_file_is_one_object_without_detours(proxy, server):
    files.write_json("gs://bucket/direct/metrics.json", {"steps": 3})
    assert list(server.sizes("direct")) == ["metrics.json"]
    assert proxy.requests == 2  # A resumable upload: its start, and the content.
    assert files.read_json("gs://bucket/direct/metrics.json") == {"steps": 3}
    assert files.read_text("gs://bucket/direct/none") is None


def test_a_file_that_another_process_makes_longer_meanwhile_is_read_to_its_end(proxy, server):
    uri = "gs://bucket/growing/evaluations.csv"
    server.put("growing/evaluations.csv", b"epoch\n1\n")
    assert tf.io.gfile.stat(uri).length == 8  # Which TensorFlow remembers for a while.
    server.put("growing/evaluations.csv", b"epoch\n1\n2\n")
    assert files.read_text(uri) == "epoch\n1\n2\n"


def test_a_report_is_one_that_a_browser_shows(faulty, server):
    files.write_json("gs://bucket/shown/report.html", {})
    assert server.content_type("shown/report.html") != "text/html"
    for _ in range(6):
        set_content_type("gs://bucket/shown/report.html", "text/html")
    assert server.content_type("shown/report.html") == "text/html"
    assert files.read_json("gs://bucket/shown/report.html") == {}
    with pytest.raises(
        InputError, match=r"setting the content type of gs://bucket/shown/none: 404"
    ):
        set_content_type("gs://bucket/shown/none", "text/html")


def test_results_are_read_from_a_bucket(proxy, server):
    with pytest.raises(InputError, match=r"left/metrics\.json is missing: the chief did not"):
        results.load("gs://bucket/left")
    server.put("left/metrics.json", b'{"steps": 3}')
    server.put("left/history.csv", b"epoch,loss\n1,0.5\n")
    assert results.load("gs://bucket/left").history == [{"epoch": 1.0, "loss": 0.5}]
    server.put("left/dataset.json", b"{}")
    assert dataset_digest("gs://bucket/left").startswith("44136fa3")


def test_files_arrive_whole_though_every_third_request_fails(faulty, server):
    for number in range(6):
        files.write_text(f"gs://bucket/faulty/{number}", f"{number} " * 1000)
    for number in range(6):
        assert server.get(f"faulty/{number}").decode() == f"{number} " * 1000
        assert files.read_text(f"gs://bucket/faulty/{number}") == f"{number} " * 1000
    assert sum(faulty.faults.values()) > 5


def test_storage_that_does_not_answer_is_no_reason_to_leave_a_picture_out(server, faulty):
    server.put("photos/a.jpg", b"content")
    faulty.rate, faulty.kinds = 1.0, ("unavailable",)
    for faulty.refusal in (503, 401):
        with pytest.raises(InputError, match=r"photos/a\.jpg can't be read: .*; run again"):
            storage.read("gs://bucket/photos/a.jpg")
    for way in (storage.sha256, read_header):
        with pytest.raises(InputError, match=r"photos/a\.jpg can't be read: .*; run again"):
            way("gs://bucket/photos/a.jpg")
    faulty.rate = 0.0
    with pytest.raises(FileNotFoundError):
        storage.read("gs://bucket/photos/b.jpg")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("images:gs://bucket/photos", r"gs://bucket/photos can't be read: .*; run again"),
        ("csv:gs://bucket/t.csv", r"gs://bucket/t.csv can't be read: .*; run again"),
        ("csv:gs://bucket/t*.csv", r"gs://bucket/t\*.csv can't be read: .*; run again"),
    ],
)
def test_a_bucket_that_is_refused_is_one_line(faulty, tmp_path, source, reason):
    faulty.rate, faulty.kinds, faulty.refusal = 1.0, ("unavailable",), 401
    with pytest.raises(InputError, match=reason):
        create_tfrecords(of_source(source), str(tmp_path / "out"))


@pytest.mark.parametrize("name", ["t.csv", "t*.csv"])
def test_a_bucket_that_is_not_there_is_one_line(proxy, tmp_path, name):
    uri = f"gs://no-such-bucket/{name}"
    with pytest.raises(InputError, match="no-such-bucket/t") as raised:
        create_tfrecords(of_source(f"csv:{uri}"), str(tmp_path / "out"))
    assert "\n" not in str(raised.value)


def of_source(source: str) -> RecordOptions:
    described = {"columns": [{"name": "a", "type": "numeric"}], "label": {"column": "b"}}
    return RecordOptions(source=source, **({} if source.startswith("images") else described))


def test_checkpoints_that_can_not_be_read_are_not_taken_for_none(proxy, server):
    directory = "gs://bucket/checkpoints"
    assert checkpoint.progress_in(directory).step == 0
    state = {"model_checkpoint_path": "ckpt-7", "all_model_checkpoint_paths": "ckpt-7"}
    lines = [f"{name}: {json.dumps(value)}\n" for name, value in state.items()]
    server.put("checkpoints/checkpoint", "".join(lines).encode())
    with pytest.raises(RuntimeError, match=r"the checkpoints in .* can't be read"):
        checkpoint.progress_in(directory)


def test_of_two_writers_of_a_folder_the_later_one_has_it(proxy, server, tmp_path):
    """Cloud Storage has no locks; a note says which of the two may finish."""
    source, uri = two_classes(tmp_path / "in"), "gs://bucket/contested"

    def options(size, **others):
        return RecordOptions(source=f"images:{source}", image_size=size, encoding="raw", **others)

    later: list = []

    def interrupted(line):
        """Lets another writer begin and end before the first shard is written."""
        if "taken over" in line:
            later.append(create_tfrecords(options(24), uri, progress=lambda _: None))

    with pytest.raises(InputError, match=f"^{uri} is now written by .*; only one can have"):
        store = "gs://bucket/contested-store"
        create_tfrecords(options(16, records_store=store), uri, progress=interrupted)
    # A writer that was killed leaves its note, which holds up none that comes after it.
    server.put("contested/.unfinished/writer.json", b"{}")
    again = create_tfrecords(options(24), uri, progress=lambda _: None)
    assert again == later[0] == load(uri)
    check_shards(again, [shard for split in again.splits.values() for shard in split.shards])
