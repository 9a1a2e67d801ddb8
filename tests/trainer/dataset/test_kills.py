"""kill -9 at random moments, then the same command again: the bytes of a run never killed."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.trainer.dataset.folders import content, picture, two_classes
from trainer.dataset import writer

# POOL_PAYS_SECONDS decides between one process and several; here each is wanted in turn.
RUN = """
import sys
from trainer.dataset import writer
from trainer.dataset.options import RecordOptions
source, output, threshold, size = sys.argv[1:]
writer.POOL_PAYS_SECONDS = float(threshold)
options = RecordOptions(
    source=source, image_size=int(size), max_rejected_fraction=0.1, shard_megabytes=0.05
)
writer.create_tfrecords(options, output)
"""
POOL, ALONE = "0", "1e9"


def start(source: Path, output: Path, threshold: str, size: int = 64) -> subprocess.Popen:
    arguments = [f"images:{source}", str(output), threshold, str(size)]
    return subprocess.Popen(
        [sys.executable, "-c", RUN, *arguments],
        cwd=Path(writer.__file__).parents[2],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def run(source: Path, output: Path, threshold: str, size: int = 64) -> None:
    assert start(source, output, threshold, size).wait(timeout=60) == 0


def wait_for(output: Path, shards: int, process: subprocess.Popen) -> None:
    """Returns when so many shards are whole, or the process has ended."""
    while process.poll() is None and len(list(output.glob("*.tfrecord"))) < shards:
        time.sleep(0.002)


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
    run(source, output, ALONE)
    return content(output)


@pytest.mark.parametrize("threshold", [POOL, ALONE])
def test_killed_at_random_moments_and_run_again_gives_the_same_bytes(
    source, expected, tmp_path, threshold
):
    dice = random.Random(threshold)
    output = tmp_path / "out"
    names = [name for name in expected if name.endswith(".tfrecord")]
    kills = 0
    for _ in range(4):
        process = start(source, output, threshold)
        wait_for(output, dice.randrange(1, len(names)), process)
        time.sleep(dice.uniform(0, 0.02))  # Anywhere within a shard, not only at its end.
        children = psutil.Process(process.pid).children() if process.poll() is None else []
        process.send_signal(signal.SIGKILL)
        kills += process.wait() == -signal.SIGKILL
        _, alive = psutil.wait_procs(children, timeout=5)
        assert not alive, "a writing process outlived its parent"
        for shard in output.glob("*.tfrecord"):
            assert content(output)[shard.name] == expected[shard.name]
        assert kills == 0 or output.exists()
    run(source, output, threshold)
    assert kills > 0
    assert content(output) == expected


def test_a_killed_child_fails_the_run_and_the_next_one_carries_on(source, expected, tmp_path):
    output = tmp_path / "out"
    process = start(source, output, POOL)
    wait_for(output, 5, process)
    psutil.Process(process.pid).children()[0].kill()
    assert process.wait(timeout=30) == 1
    kept = {path: path.stat().st_mtime_ns for path in output.glob("*.tfrecord")}
    assert kept
    run(source, output, POOL)
    assert content(output) == expected
    noted = sum(path.stat().st_mtime_ns == stamp for path, stamp in kept.items())
    assert noted >= len(kept) - 2, "whole shards were written again"


def test_leftovers_of_other_options_and_other_content_are_not_trusted(source, expected, tmp_path):
    output = tmp_path / "out"
    for size in (63, 64, 65):
        process = start(source, output, ALONE, size)
        wait_for(output, 6, process)
        process.kill()
        process.wait()
    changed = two_classes(tmp_path / "in", 300)
    (changed / "cat" / "broken.jpg").write_bytes(b"\xff\xd8\xff broken")
    picture(12345).save(changed / "cat" / "001.png")
    process = start(changed, output, ALONE)
    wait_for(output, 6, process)
    process.kill()
    process.wait()
    run(source, output, ALONE)
    assert content(output) == expected


@pytest.mark.parametrize("moment", ["rejected.jsonl", "dataset.json", ".unfinished"])
def test_killed_while_finishing_and_run_again_gives_the_same_bytes(
    source, expected, tmp_path, moment
):
    killer = (
        "import os, signal\n"
        "from trainer.dataset import storage\n"
        "def dying(function):\n"
        "    def wrapped(uri, *rest):\n"
        f"        if uri.endswith('{moment}'): os.kill(os.getpid(), signal.SIGKILL)\n"
        "        return function(uri, *rest)\n"
        "    return wrapped\n"
        "storage.write_whole = dying(storage.write_whole)\n"
        "storage.remove_folder = dying(storage.remove_folder)\n"
    )
    arguments = [f"images:{source}", str(tmp_path / "out"), ALONE, "64"]
    killed = subprocess.run(
        [sys.executable, "-c", killer + RUN, *arguments],
        cwd=Path(writer.__file__).parents[2],
        env=os.environ,
        stdout=subprocess.DEVNULL,
    )
    assert killed.returncode == -signal.SIGKILL
    run(source, tmp_path / "out", ALONE)
    assert content(tmp_path / "out") == expected
