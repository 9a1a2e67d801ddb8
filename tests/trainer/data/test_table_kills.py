"""A table's records, killed at random moments and made again: the bytes of a run never killed."""

import random

import pytest

from tests import tables
from tests.trainer.data import killing
from tests.trainer.data.folders import content
from tests.trainer.data.killing import ALONE, POOL
from trainer.data.record_options import RecordOptions


@pytest.fixture(scope="module")
def options(tmp_path_factory) -> RecordOptions:
    """Of 4,000 trips, and a row that has too many fields."""
    rows = tables.lines(4000)
    rows.insert(1000, "1,2,3,4,5,6,7,8,9")
    table = tables.write_csv(tmp_path_factory.mktemp("kills") / "trips.csv", rows)
    return tables.options(table, shard_megabytes=0.02, max_rejected_fraction=0.1)


@pytest.fixture(scope="module")
def expected(options, tmp_path_factory) -> dict[str, str]:
    """The bytes of a run never killed."""
    output = tmp_path_factory.mktemp("kills") / "out"
    killing.run(options, output)
    return content(output)


@pytest.mark.parametrize("threshold", [POOL, ALONE])
def test_a_table_killed_at_random_moments_and_read_again_gives_the_same_bytes(
    options, expected, tmp_path, threshold
):
    shards = sum(name.endswith(".tfrecord") for name in expected)
    assert shards > 10
    killing.kill_and_finish(
        options,
        tmp_path / "out",
        threshold,
        expected,
        moments=[1, shards // 2],
        dice=random.Random(threshold),
    )
