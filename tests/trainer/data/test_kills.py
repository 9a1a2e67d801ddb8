"""kill -9 at random moments, then the same command again: the bytes of a run never killed."""

import random
import signal
import time
from pathlib import Path

import psutil
import pytest

from tests import tables
from tests.trainer.data import killing
from tests.trainer.data.folders import content, picture, two_classes
from tests.trainer.data.killing import ALONE, POOL
from trainer.data.record_options import RecordOptions
from trainer.data.write.writer import create_tfrecords
from trainer.errors import InputError


def options_of(source: Path, size: int = 64) -> RecordOptions:
    return RecordOptions(
        source=f"images:{source}",
        image_size=size,
        max_rejected_fraction=0.1,
        shard_megabytes=0.05,
    )


def kill_after(shards: int, options: RecordOptions, output: Path) -> None:
    """Start to write, and kill the process once this number of shards is complete."""
    process = killing.start(options, output, ALONE)
    killing.wait_for(output, shards, process)
    process.kill()
    process.wait()


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """600 pictures, one of them broken."""
    folder = two_classes(tmp_path_factory.mktemp("kills") / "in", 300)
    (folder / "cat" / "broken.jpg").write_bytes(b"\xff\xd8\xff broken")
    return folder


@pytest.fixture(scope="module")
def expected(source, tmp_path_factory) -> dict[str, str]:
    """The bytes of a run never killed."""
    output = tmp_path_factory.mktemp("kills") / "out"
    killing.run(options_of(source), output)
    return content(output)


@pytest.mark.parametrize("threshold", [POOL, ALONE])
def test_killed_at_random_moments_and_run_again_gives_the_same_bytes(
    source, expected, tmp_path, threshold
):
    dice = random.Random(threshold)
    shards = sum(name.endswith(".tfrecord") for name in expected)
    moments = [dice.randrange(1, shards) for _ in range(4)]
    killing.kill_and_finish(
        options_of(source), tmp_path / "out", threshold, expected, moments, dice
    )


def test_a_table_killed_and_read_again_gives_the_same_bytes(tmp_path):
    rows = tables.lines(4000)
    rows.insert(1000, "1,2,3,4,5,6,7,8,9")
    table = tables.write_csv(tmp_path / "trips.csv", rows)
    trips = tables.options(table, shard_megabytes=0.02, max_rejected_fraction=0.1)
    killing.run(trips, tmp_path / "whole")
    expected = content(tmp_path / "whole")
    shards = sum(name.endswith(".tfrecord") for name in expected)
    assert shards > 10
    for threshold in (POOL, ALONE):
        output, moments = tmp_path / f"out{threshold}", [1, shards // 2]
        dice = random.Random(threshold)
        killing.kill_and_finish(trips, output, threshold, expected, moments, dice)


def test_a_killed_child_fails_the_run_and_the_next_one_carries_on(source, expected, tmp_path):
    options, output = options_of(source), tmp_path / "out"
    process = killing.start(options, output, POOL)
    killing.wait_for(output, 5, process)
    psutil.Process(process.pid).children()[0].kill()
    assert process.wait(timeout=120) == 1
    kept = {path: path.stat().st_mtime_ns for path in output.glob("*.tfrecord")}
    assert kept
    killing.run(options, output, POOL)
    assert content(output) == expected
    noted = sum(path.stat().st_mtime_ns == stamp for path, stamp in kept.items())
    assert noted >= len(kept) - 2, "whole shards were written again"


def test_a_second_writer_is_refused_and_told_who_writes(source, expected, tmp_path):
    output, flag = tmp_path / "out", tmp_path / "flag"
    waits = (
        "import pathlib, time\n"
        "from trainer.data.write import output\n"
        "remove_stale = output.remove_stale\n"
        "def waiting(writer):\n"
        "    remove_stale(writer)\n"
        f"    pathlib.Path('{flag}').touch()\n"
        "    time.sleep(100)\n"
        "output.remove_stale = waiting\n"
    )
    first = killing.start(options_of(source), output, ALONE, before=waits)
    try:
        while first.poll() is None and not flag.exists():
            time.sleep(0.01)
        words = rf"{output} is being written by process {first.pid} on .*source='images:{source}'"
        for size in (32, 64):
            with pytest.raises(InputError, match=words):
                create_tfrecords(options_of(source, size), str(output))
    finally:
        first.kill()
        first.wait()
    killing.run(options_of(source), output)
    assert content(output) == expected


def test_leftovers_of_other_options_and_other_content_are_not_trusted(source, expected, tmp_path):
    output = tmp_path / "out"
    for size in (63, 64, 65):
        kill_after(6, options_of(source, size), output)
    changed = two_classes(tmp_path / "in", 300)
    (changed / "cat" / "broken.jpg").write_bytes(b"\xff\xd8\xff broken")
    picture(12345).save(changed / "cat" / "001.png")
    kill_after(6, options_of(changed), output)
    killing.run(options_of(source), output)
    assert content(output) == expected


@pytest.mark.parametrize("moment", ["rejected.jsonl", "dataset.json", ".unfinished"])
def test_killed_while_finishing_and_run_again_gives_the_same_bytes(
    source, expected, tmp_path, moment
):
    killer = (
        "import os, signal\n"
        "from trainer.data import storage\n"
        "def dying(function):\n"
        "    def wrapped(uri, *rest):\n"
        f"        if uri.endswith('{moment}'): os.kill(os.getpid(), signal.SIGKILL)\n"
        "        return function(uri, *rest)\n"
        "    return wrapped\n"
        "storage.write_whole = dying(storage.write_whole)\n"
        "storage.remove_folder = dying(storage.remove_folder)\n"
    )
    output = tmp_path / "out"
    killed = killing.start(options_of(source), output, ALONE, before=killer)
    assert killed.wait(timeout=120) == -signal.SIGKILL
    killing.run(options_of(source), output)
    assert content(output) == expected
