"""A bucket whose photos change: its fingerprint, and records that reuse unchanged shards."""

import uuid

import pytest

from tests.trainer.data.folders import SIZE, picture
from trainer.data.record_options import RecordOptions
from trainer.data.write.fingerprint import fingerprint
from trainer.data.write.writer import create_tfrecords


@pytest.fixture
def photos(server, proxy, tmp_path):
    """A folder of the bucket with two classes, and a function that adds pictures to one."""
    folder = f"photos-{uuid.uuid4().hex[:8]}"

    def add(name, numbers):
        for number in numbers:
            picture(number).save(tmp_path / "one.png")
            server.put(f"{folder}/{name}/{number:04}.png", (tmp_path / "one.png").read_bytes())

    add("cat", range(60))
    add("dog", range(1000, 1060))
    return folder, add


def test_fingerprint_follows_the_content_of_the_bucket(server, photos):
    folder, add = photos
    images = f"images:gs://bucket/{folder}"
    first = fingerprint(images, "")
    assert first.files == 120
    add("cat", range(60))
    assert fingerprint(images, "") == first
    add("cat", [60])
    assert fingerprint(images, "").digest != first.digest
    server.put(f"{folder}/a-1.csv", b"x\n1\n")
    server.put(f"{folder}/a-2.csv", b"x\n2\n")
    for place, files in (("", 2), ("/a-1.csv", 1), ("/a-*.csv", 2)):
        assert fingerprint(f"csv:gs://bucket/{folder}{place}", "").files == files, place


@pytest.mark.slow
def test_unchanged_shards_are_reused_in_the_bucket(server, photos):
    folder, add = photos

    uri = f"gs://bucket/{folder}"
    options = {"image_size": SIZE, "encoding": "raw", "shard_megabytes": 0.02}
    options = RecordOptions(source=f"images:{uri}", records_store=f"{uri}-store", **options)

    def write(name):
        lines = []
        dataset = create_tfrecords(options, f"{uri}-{name}", progress=lines.append)
        shards = [shard for split in dataset.splits.values() for shard in split.shards]
        return {shard.sha256 for shard in shards}, [line for line in lines if "reused" in line]

    first, _ = write("first")
    add("cat", range(60, 63))
    second, (line,) = write("second")
    assert first < second
    assert f"{len(first)} shards reused" in line
    assert line.endswith("with 3 images")
    sizes = server.sizes(f"{folder}-second")
    assert len([name for name in sizes if name.endswith(".tfrecord")]) == len(second)
    assert not [name for name in sizes if "partial" in name or "unfinished" in name]
