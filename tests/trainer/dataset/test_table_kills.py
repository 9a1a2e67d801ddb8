"""A table's records, killed at random moments and made again: the bytes of a run never killed."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import tables
from tests.trainer.dataset.folders import content
from trainer.dataset import writer

RUN = """
import sys
from tests.tables import options
from trainer.dataset import writer
table, output, threshold = sys.argv[1:]
writer.POOL_PAYS_SECONDS = float(threshold)
writer.create_tfrecords(options(table, shard_megabytes=0.02, max_rejected_fraction=0.1), output)
"""
POOL, ALONE = "0", "1e9"


def start(table: Path, output: Path, threshold: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", RUN, str(table), str(output), threshold],
        cwd=Path(writer.__file__).parents[2],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Path:
    """4,000 trips, and a row that has too many fields."""
    rows = tables.lines(4000)
    rows.insert(1000, "1,2,3,4,5,6,7,8,9")
    return tables.write_csv(tmp_path_factory.mktemp("kills") / "trips.csv", rows)


@pytest.fixture(scope="module")
def expected(table, tmp_path_factory) -> dict[str, str]:
    output = tmp_path_factory.mktemp("kills") / "out"
    assert start(table, output, ALONE).wait(timeout=120) == 0
    return content(output)


@pytest.mark.parametrize("threshold", [POOL, ALONE])
def test_a_table_killed_at_random_moments_and_read_again_gives_the_same_bytes(
    table, expected, tmp_path, threshold
):
    dice = random.Random(threshold)
    output = tmp_path / "out"
    shards = [name for name in expected if name.endswith(".tfrecord")]
    assert len(shards) > 10
    kills = 0
    for least in (1, len(shards) // 2):
        process = start(table, output, threshold)
        try:
            while process.poll() is None and len(list(output.glob("*.tfrecord"))) < least:
                time.sleep(0.002)
            time.sleep(dice.uniform(0, 0.02))  # Anywhere within a shard.
        finally:
            process.kill()
        kills += process.wait() != 0
        for shard in output.glob("*.tfrecord"):
            assert content(output)[shard.name] == expected[shard.name]
    assert start(table, output, threshold).wait(timeout=120) == 0
    assert kills > 0
    assert content(output) == expected
