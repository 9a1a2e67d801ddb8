"""Record writing as a process of its own, killed at random moments and started again."""

import dataclasses
import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from tests.trainer.data.folders import content
from trainer.data.record_options import RecordOptions
from trainer.data.write import writer

POOL, ALONE = "0", "1e9"
"""POOL_MIN_SECONDS decides between several processes and one; here each is wanted in turn."""

_WRITE = """
import json, sys
from trainer.data.write import writer
from trainer.data.record_options import RecordOptions
options, output, threshold = sys.argv[1:]
writer.POOL_MIN_SECONDS = float(threshold)
writer.create_tfrecords(RecordOptions(**json.loads(options)), output)
"""


def start(
    options: RecordOptions, output: Path, threshold: str, before: str = ""
) -> subprocess.Popen:
    """Starts to write records; `before` is Python that the process runs first."""
    arguments = [json.dumps(dataclasses.asdict(options)), str(output), threshold]
    return subprocess.Popen(
        [sys.executable, "-c", before + _WRITE, *arguments],
        cwd=Path(writer.__file__).parents[3],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def run(options: RecordOptions, output: Path, threshold: str = ALONE) -> None:
    """Writes records to the end."""
    assert start(options, output, threshold).wait(timeout=240) == 0


def wait_for(output: Path, shards: int, process: subprocess.Popen) -> None:
    """Return when this number of shards is complete, or the process has ended."""
    while process.poll() is None and len(list(output.glob("*.tfrecord"))) < shards:
        time.sleep(0.002)


def kill_and_finish(
    options: RecordOptions,
    output: Path,
    threshold: str,
    expected: dict[str, str],
    moments: list[int],
    dice: random.Random,
) -> None:
    """Kill the writing soon after each of `moments` (complete shards), then let it finish.

    Check that any file with a shard's name has the bytes of `expected`, at any time and at the
    end, and that no process remains.
    """
    kills = 0
    for shards in moments:
        process = start(options, output, threshold)
        try:
            wait_for(output, shards, process)
            time.sleep(dice.uniform(0, 0.02))  # Anywhere within a shard, not only at its end.
            children = psutil.Process(process.pid).children() if process.poll() is None else []
        finally:
            process.kill()
        kills += process.wait() == -signal.SIGKILL
        _, alive = psutil.wait_procs(children, timeout=60)
        assert not alive, "a writing process outlived its parent"
        for shard in output.glob("*.tfrecord"):
            assert content(output)[shard.name] == expected[shard.name]
    run(options, output, threshold)
    assert kills > 0
    assert content(output) == expected
