"""A bucket whose photos change: records reuse unchanged shards."""

import pytest

from tests.trainer.data.picture_folders import SIZE, two_classes, write_pictures
from trainer.data.record_options import RecordOptions
from trainer.data.write.writer import create_tfrecords


@pytest.mark.slow
def test_unchanged_shards_are_reused_in_the_bucket(server, proxy, tmp_path):
    folder, uri = "fresh", "gs://bucket/fresh"
    server.upload(two_classes(tmp_path / "photos", 60), folder)
    options = {"image_size": SIZE, "encoding": "raw", "shard_megabytes": 0.02}
    options = RecordOptions(source=f"images:{uri}", records_store=f"{uri}-store", **options)

    def write(name):
        lines = []
        dataset = create_tfrecords(options, f"{uri}-{name}", progress=lines.append)
        shards = [shard for split in dataset.splits.values() for shard in split.shards]
        return {shard.sha256 for shard in shards}, [line for line in lines if "reused" in line]

    first, _ = write("first")
    write_pictures(tmp_path / "new" / "cat" / "new", 3, seed=9)
    server.upload(tmp_path / "new", folder)
    second, (line,) = write("second")
    assert first < second
    assert f"{len(first)} shards reused" in line
    assert line.endswith("with 3 images")
    sizes = server.sizes(f"{folder}-second")
    assert len([name for name in sizes if name.endswith(".tfrecord")]) == len(second)
    assert not [name for name in sizes if "partial" in name or "unfinished" in name]
