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

from tests.child_processes import ROOT, started
from tests.trainer.data.picture_folders import content
from trainer.data.write.record_options import RecordOptions

POOL, ALONE = "0", "1e9"
"""POOL_MIN_SECONDS decides between several processes and one; here each is wanted in turn."""

_WRITE = """
import json, sys
from trainer.data.write import writer
from trainer.data.write.record_options import RecordOptions
from vertex.errors import exit_on_input_error
options, output, threshold = sys.argv[1:]
writer.POOL_MIN_SECONDS = float(threshold)
with exit_on_input_error():
    writer.create_tfrecords(RecordOptions(**json.loads(options)), output)
"""


def writing(options: RecordOptions, output: Path, threshold: str = ALONE, before: str = ""):
    """Start to write records; `before` is Python that the process runs first."""
    arguments = [json.dumps(dataclasses.asdict(options)), str(output), threshold]
    command = [sys.executable, "-c", before + _WRITE, *arguments]
    return started(command, cwd=ROOT, stdout=subprocess.DEVNULL)


def run(
    options: RecordOptions, output: Path, threshold: str = ALONE, before: str = "", code: int = 0
) -> str:
    """Write records in a process that must end with `code`; return its errors."""
    with writing(options, output, threshold, before) as process:
        _, errors = process.communicate(timeout=240)
    assert process.returncode == code, errors
    return errors


def wait_for(output: Path, shards: int, process: subprocess.Popen) -> None:
    """Return when this number of shards is complete, or the process has ended."""
    while process.poll() is None and len(list(output.glob("*.tfrecord"))) < shards:
        time.sleep(0.002)


def kill_and_finish(
    options: RecordOptions, expected: dict[str, str], output: Path, threshold: str = ALONE
) -> None:
    """Kill the writing at four random moments, each a bit later than a shard, then let it finish.

    Check that any file with a shard's name has the bytes of `expected`, at any time and at the
    end, and that no process remains.
    """
    dice, kills = random.Random(threshold), 0
    total = sum(name.endswith(".tfrecord") for name in expected)
    assert total > 10
    for shards in [dice.randrange(1, total) for _ in range(4)]:
        with writing(options, output, threshold) as process:
            wait_for(output, shards, process)
            time.sleep(dice.uniform(0, 0.02))  # Anywhere within a shard, not only at its end.
            children = psutil.Process(process.pid).children() if process.poll() is None else []
        kills += process.returncode == -signal.SIGKILL
        _, alive = psutil.wait_procs(children, timeout=60)
        assert not alive, "a writing process outlived its parent"
        for shard in output.glob("*.tfrecord"):
            assert content(output)[shard.name] == expected[shard.name]
    run(options, output, threshold)
    assert kills > 0
    assert content(output) == expected
