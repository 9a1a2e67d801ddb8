"""kill -9 at random moments, then the same command again: the bytes of a run never killed."""

import dataclasses
import signal
import time

import psutil
import pytest

from tests import tables
from tests.refusals import refused
from tests.trainer.data import killing
from tests.trainer.data.killing import ALONE, POOL
from tests.trainer.data.picture_folders import content, picture, two_classes
from trainer.data.write.record_options import RecordOptions
from trainer.data.write.writer import create_tfrecords

BROKEN = b"\xff\xd8\xff broken"


def write_photos(folder):
    """Write 300 pictures and a broken one."""
    two_classes(folder, 150)
    (folder / "cat" / "broken.jpg").write_bytes(BROKEN)
    return folder


@pytest.fixture(scope="module")
def photos(shared) -> RecordOptions:
    source = f"images:{shared('kills', write_photos)}"
    small = {"image_size": 64, "shard_megabytes": 0.025}
    return RecordOptions(source=source, max_rejected_fraction=0.1, **small)


@pytest.fixture(scope="module")
def trips(tmp_path_factory) -> RecordOptions:
    """Options of a table of 4,000 rows and a ragged one."""
    rows = tables.lines(4000)
    rows.insert(1000, "1,2,3,4,5,6,7,8,9")
    table = tables.write_csv(tmp_path_factory.mktemp("trips") / "trips.csv", rows)
    return tables.options(table, shard_megabytes=0.02, max_rejected_fraction=0.1)


@pytest.fixture(scope="module")
def expected(photos, shared) -> dict[str, str]:
    """The bytes of the photos' records by a run never killed."""
    return content(shared("never-killed", lambda folder: killing.run(photos, folder)))


@pytest.mark.parametrize(
    ("source", "threshold"),
    [
        ("trips", ALONE),
        pytest.param("photos", POOL, marks=pytest.mark.slow),
        pytest.param("photos", ALONE, marks=pytest.mark.slow),
        pytest.param("trips", POOL, marks=pytest.mark.slow),
    ],
)
def test_killed_run_repeated_writes_the_same_bytes(request, tmp_path, source, threshold):
    options = request.getfixturevalue(source)
    if source == "photos":
        whole = request.getfixturevalue("expected")
    else:
        killing.run(options, tmp_path / "whole")
        whole = content(tmp_path / "whole")
    killing.kill_and_finish(options, whole, tmp_path / "out", threshold)


@pytest.mark.slow
def test_killed_child_fails_the_run_but_loses_no_shard(photos, expected, tmp_path):
    output = tmp_path / "out"
    with killing.writing(photos, output, POOL) as process:
        killing.wait_for(output, 5, process)
        psutil.Process(process.pid).children()[0].kill()
        assert process.wait(timeout=120) == 1
    kept = {path: path.stat().st_mtime_ns for path in output.glob("*.tfrecord")}
    assert kept
    killing.run(photos, output, POOL)
    assert content(output) == expected
    noted = sum(path.stat().st_mtime_ns == stamp for path, stamp in kept.items())
    assert noted >= len(kept) - 2, "whole shards were written again"


def test_second_writer_is_refused_and_names_the_first(photos, expected, tmp_path):
    output, flag = tmp_path / "out", tmp_path / "flag"
    waits = (
        "import pathlib, time\n"
        "from trainer.data.write.output import OutputFolder\n"
        "begin = OutputFolder.begin\n"
        "def waiting(*arguments):\n"
        "    begin(*arguments)\n"
        f"    pathlib.Path('{flag}').touch()\n"
        "    time.sleep(100)\n"
        "OutputFolder.begin = waiting\n"
    )
    with killing.writing(photos, output, before=waits) as first:
        while first.poll() is None and not flag.exists():
            time.sleep(0.01)
        for size in (32, 64):
            options = dataclasses.replace(photos, image_size=size)
            message = refused(create_tfrecords, options, str(output))
            assert f"{output} is being written by process {first.pid} on " in message
            assert f"source='{photos.source}'" in message
    killing.run(photos, output)
    assert content(output) == expected


def test_shards_of_other_options_or_content_are_not_kept(photos, expected, tmp_path):
    output = tmp_path / "out"
    changed = write_photos(tmp_path / "in")
    picture(12345).save(changed / "cat" / "001.png")
    changes = [*({"image_size": size} for size in (63, 64, 65)), {"source": f"images:{changed}"}]
    for change in changes:
        with killing.writing(dataclasses.replace(photos, **change), output) as process:
            killing.wait_for(output, 6, process)
    killing.run(photos, output)
    assert content(output) == expected


@pytest.mark.parametrize(
    "moment",
    [
        "dataset.json",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("rejected.jsonl", ".unfinished")),
    ],
)
def test_run_killed_while_finishing_repeats_to_the_same_bytes(photos, expected, tmp_path, moment):
    killer = (
        "import os, signal\n"
        "from trainer.data import storage\n"
        "def dying(function):\n"
        "    def wrapped(uri, *rest):\n"
        f"        if uri.endswith('{moment}'): os.kill(os.getpid(), signal.SIGKILL)\n"
        "        return function(uri, *rest)\n"
        "    return wrapped\n"
        "storage.write_atomically = dying(storage.write_atomically)\n"
        "storage.remove_folder = dying(storage.remove_folder)\n"
    )
    killing.run(photos, tmp_path / "out", before=killer, code=-signal.SIGKILL)
    killing.run(photos, tmp_path / "out")
    assert content(tmp_path / "out") == expected
