"""Tables in a bucket become the records that the same files on this machine become."""

import gzip

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from tests import tables
from tests.tables import values

ROWS = 600


@pytest.fixture(scope="module")
def trips(server, tmp_path_factory) -> list[list]:
    """The rows of trips in one file, and in two of each kind; as written from one file here."""
    folder, made = tmp_path_factory.mktemp("trips"), tables.lines(ROWS)
    whole = tables.write_csv(folder / "whole.csv", made)
    server.put("trips/whole.csv", whole.read_bytes())
    server.put("trips/parts/_SUCCESS", b"")
    for number in range(2):
        half = tables.write_csv(folder / f"{number}.csv", made[number::2])
        name = f"trips/parts/day {number}/trips-{number}"
        server.put(f"{name}.csv.gz", gzip.compress(half.read_bytes()))
        pa.parquet.write_table(pa.csv.read_csv(half), folder / "half.parquet", row_group_size=99)
        server.put(f"{name}.parquet", (folder / "half.parquet").read_bytes())
    return values(tables.write(whole, folder / "out"))


@pytest.mark.parametrize(
    "source",
    [
        *("csv:{}/whole.csv", "csv:{}/parts/", "csv:{}/parts/*/trips-[01].csv.gz"),
        *("parquet:{}/parts", "parquet:{}/parts/**/*.parquet"),
    ],
)
def test_file_folder_or_pattern_has_the_rows_of_local_files(trips, start_proxy, tmp_path, source):
    start_proxy(rate=0.1, seed=1)
    dataset = tables.write("", tmp_path / "out", source=source.format("gs://bucket/trips"))
    assert values(dataset) == trips
