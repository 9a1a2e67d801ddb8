"""Writing records of a CSV with chicago_taxi's columns: against pyarrow's parser alone, against
Parquet, and at ten times the rows.

    python -m tests.benchmarks.table_writing 1000000 10000000    # the table of docs/sources.md

CPU seconds of all processes count, not the clock's. The bytes of a record are compared with those
of a tf.train.Example with a feature a column.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import tomllib

from tests.benchmarks.records_writing import _core_seconds, peak_megabytes
from trainer.data.record_options import RecordOptions
from trainer.data.schema import load
from trainer.data.write import output, spill
from trainer.data.write.records import frame, parse, read_records, serialize
from trainer.data.write.writer import create_tfrecords

ROWS = 1_000_000
CHUNK = 100_000
FEW_ROWS, MANY_ROWS = 300_000, 3_000_000
"""Enough rows for all processes to work."""

ROUNDS = 3

_ALONE = """
import sys
from tests.benchmarks import table_writing
table_writing.write(*sys.argv[1:])
"""
_RECIPE = Path(__file__).parents[2] / "pipelines" / "recipes" / "chicago_taxi.toml"


_PAYMENTS = ["Cash", "Credit Card", "Unknown"]
_COMPANIES = [
    "",
    "Taxi Affiliation Services",
    "Choice Taxi Association",
    "Northwest Management LLC",
]


def rows() -> list[tuple[str, float, float, str]]:
    """(what, ratio, goal, figures)."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        many = _trips(folder / "many.csv", ROWS)
        peaks = []
        for count in (FEW_ROWS, MANY_ROWS):
            table = _trips(folder / f"{count}.csv", count)
            peaks.append(peak_megabytes(_ALONE, table, folder / f"records-{count}"))
        ours = min(_cpu(lambda: _run(many, folder / "o")) for _ in range(ROUNDS))
        alone = min(_cpu(lambda: pyarrow.csv.read_csv(many)) for _ in range(ROUNDS))
        columnar = folder / "many.parquet"
        pyarrow.parquet.write_table(pyarrow.csv.read_csv(many), columnar)
        parquet = min(_cpu(lambda: _run(columnar, folder / "p")) for _ in range(ROUNDS))
        packed, single = _record_bytes(folder / f"records-{FEW_ROWS}")
    return [
        (
            "CSV to records / pyarrow.csv alone, rows a CPU second",
            alone / ours,
            0.05,
            f"{ROWS / ours:,.0f} / {ROWS / alone:,.0f} rows",
        ),
        (
            "Parquet to records / CSV to records, rows a CPU second",
            ours / parquet,
            0.8,
            f"{ROWS / parquet:,.0f} / {ROWS / ours:,.0f} rows",
        ),
        (
            "bytes of a record with a feature a column / of ours",
            single / packed,
            2.0,
            f"{single:.0f} / {packed:.0f} bytes",
        ),
        (
            "peak memory of writing, 10x the rows",
            peaks[1] / peaks[0],
            1.1,
            f"{peaks[1]:,.0f} / {peaks[0]:,.0f} MB at {MANY_ROWS:,} / {FEW_ROWS:,} rows",
        ),
    ]


def write(table: str, folder: str) -> None:
    """Write the records of trips."""
    recipe = tomllib.loads(_RECIPE.read_text())
    described = {name: recipe[name] for name in ("columns", "crosses", "label")}
    options = RecordOptions(source=f"{Path(table).suffix[1:]}:{table}", **described)
    create_tfrecords(options, folder, progress=lambda line: None)


def staged(table: str, folder: str) -> None:
    """Write the records of trips; print what each stage took, and the most local disk, as JSON."""
    import psutil

    this, remove_stale = psutil.Process(), output.remove_stale
    marks: list[float] = []

    def mark(*arguments: Any) -> None:
        marks.append(sum(sum(one.cpu_times()[:2]) for one in [this, *this.children()]))
        remove_stale(*arguments)

    most, is_over = 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not is_over.wait(0.2):
            places = [
                *Path(tempfile.gettempdir()).glob(f"{spill._PREFIX}{this.pid}-*"),
                Path(folder),
            ]
            most = max(most, sum(map(_bytes_in, places)))

    output.remove_stale = mark
    thread = threading.Thread(target=watch)
    thread.start()
    write(table, folder)
    is_over.set()
    thread.join()
    whole = _core_seconds()
    records = sum(split.bytes for split in load(folder).splits.values())
    figures = {"plan": marks[0], "write": whole - marks[0], "records": records, "disk": most}
    Path(folder, "figures.json").write_text(json.dumps(figures))


def _trips(path: Path, count: int) -> Path:
    """Write a CSV whose rows are some 140 bytes, as those of Chicago's trips are."""
    with path.open("wb") as file:
        for number in range(0, count, CHUNK):
            header = pyarrow.csv.WriteOptions(include_header=not number, quoting_style="none")
            trips = _drawn(number, min(CHUNK, count - number))
            pyarrow.csv.write_csv(trips, file, header)
    return path


def _drawn(seed: int, count: int) -> pa.Table:
    generator = np.random.default_rng(seed)

    def drawn(low: float, high: float, digits: int) -> list[float]:
        return generator.uniform(low, high, count).round(digits).tolist()

    def number(low: int, high: int) -> list[int]:
        return generator.integers(low, high, count).tolist()

    columns: dict[str, list] = {
        "trip_miles": drawn(0, 20, 1),
        "fare": drawn(3, 60, 2),
        "trip_seconds": number(60, 4000),
        "pickup_latitude": drawn(41.6, 42.1, 9),
        "pickup_longitude": drawn(-87.9, -87.5, 9),
        "dropoff_latitude": drawn(41.6, 42.1, 9),
        "dropoff_longitude": drawn(-87.9, -87.5, 9),
        "trip_start_hour": number(0, 24),
        "trip_start_day": number(1, 8),
        "trip_start_month": number(1, 13),
        "payment_type": [_PAYMENTS[one] for one in number(0, len(_PAYMENTS))],
        "company": [_COMPANIES[one] for one in number(0, len(_COMPANIES))],
        "pickup_census_tract": number(17031010000, 17031990000),
        "dropoff_census_tract": number(17031010000, 17031990000),
        "pickup_community_area": number(1, 78),
        "dropoff_community_area": number(1, 78),
        "tips": drawn(0, 10, 2),
    }
    return pa.table(columns)


def _bytes_in(folder: Path) -> int:
    """The bytes of the files in a folder while others are removed from it."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def _cpu(function: Callable) -> float:
    """CPU seconds of a call, those of its child processes included."""
    started = _core_seconds()
    function()
    return _core_seconds() - started


def _run(table: Path, folder: Path) -> None:
    subprocess.run([sys.executable, "-c", _ALONE, str(table), str(folder)], check=True)


def _record_bytes(folder: Path) -> tuple[float, float]:
    """The mean bytes of a record, and of one with a feature a column."""
    # It imports TensorFlow, which the writing goes without.
    from trainer.data.tables.inputs import columns_of, row_values

    dataset = load(str(folder))
    shard = dataset.splits["test"].shards[0]
    single = packed = 0
    with (folder / shard.file).open("rb") as file:
        for _, record in read_records(file):
            example = parse(record)
            row = row_values(example, columns_of(dataset))
            given = {name: value for name, value in row.items() if value is not None}
            given |= {"key": example["key"][0], "label": example["label"][0]}
            packed += len(frame(record))
            single += len(frame(serialize(given)))
    return packed / shard.examples, single / shard.examples


if __name__ == "__main__":
    for count in map(int, sys.argv[1:]):
        with tempfile.TemporaryDirectory() as name:
            table = _trips(Path(name) / "trips.csv", count)
            code = _ALONE.replace(".write", ".staged")
            peak = peak_megabytes(code, table, Path(name) / "out")
            found = json.loads((Path(name) / "out" / "figures.json").read_text())
        print(
            f"{count:,} rows: {found['plan']:.1f} s of CPU to read, parse and encode, "
            f"{found['write']:.1f} s to sort and write; records {found['records'] / 1e6:,.0f} MB; "
            f"peak memory {peak:,.0f} MB; "
            f"most local disk {found['disk'] / found['records']:.2f} of the records",
            flush=True,
        )
