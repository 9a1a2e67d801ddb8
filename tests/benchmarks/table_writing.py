"""Measure writing records of a CSV with chicago_taxi's columns: against pyarrow's parser alone,
against Parquet, and at ten times the rows.

    python -m tests.benchmarks.table_writing 1000000 10000000    # the table of docs/sources.md

CPU seconds of all processes count, not the clock's.
"""

import contextlib
import json
import sys
import tempfile
import threading
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from tests.benchmarks.measuring import Row, core_seconds, peak_megabytes, run, timed
from trainer.data.schema import load_dataset
from trainer.data.write import spill
from trainer.data.write.output import OutputFolder
from trainer.data.write.record_options import RecordOptions
from trainer.data.write.writer import create_tfrecords

ROWS = 1_000_000
CHUNK = 100_000
FEW_ROWS, MANY_ROWS = 300_000, 3_000_000
"""Enough rows for all processes to work."""
ROUNDS = 3

_CALL = "import sys; from tests.benchmarks import table_writing as t; t.{}(*sys.argv[1:])"
_RECIPE = Path(__file__).parents[2] / "pipelines" / "recipes" / "chicago_taxi.toml"
_COMPANIES = ["", "Taxi Affiliation Services", "Choice Taxi Association"]
_COMPANIES += ["Northwest Management LLC"]


def rows() -> list[Row]:
    """Compare rows a CPU second, and memory at 10x the rows."""
    with tempfile.TemporaryDirectory() as name:
        folder, code = Path(name), _CALL.format("write")
        many, columnar = _trips(folder / "many.csv", ROWS), folder / "many.parquet"
        few_peak, many_peak = (
            peak_megabytes(code, _trips(folder / f"{count}.csv", count), folder / f"{count}")
            for count in (FEW_ROWS, MANY_ROWS)
        )
        ours = min(timed(run, code, many, folder / "o")[1] for _ in range(ROUNDS))
        alone = min(timed(pyarrow.csv.read_csv, many)[1] for _ in range(ROUNDS))
        pyarrow.parquet.write_table(pyarrow.csv.read_csv(many), columnar)
        parquet = min(timed(run, code, columnar, folder / "p")[1] for _ in range(ROUNDS))

    def compared(what: str, one: float, other: float, goal: float) -> Row:
        return what, other / one, goal, f"{ROWS / one:,.0f} / {ROWS / other:,.0f} rows"

    peaks = f"{many_peak:,.0f} / {few_peak:,.0f} MB at {MANY_ROWS:,} / {FEW_ROWS:,} rows"
    return [
        compared("CSV to records / pyarrow.csv alone, rows a CPU second", ours, alone, 0.05),
        compared("Parquet to records / CSV to records, rows a CPU second", parquet, ours, 0.8),
        ("peak memory of writing, 10x the rows", many_peak / few_peak, 1.1, peaks),
    ]


def write(table: str, folder: str) -> None:
    """Write the records of trips."""
    recipe = tomllib.loads(_RECIPE.read_text())
    described = {name: recipe[name] for name in ("columns", "crosses", "label")}
    options = RecordOptions(source=f"{Path(table).suffix[1:]}:{table}", **described)
    create_tfrecords(options, folder, progress=lambda line: None)


def staged(table: str, folder: str) -> None:
    """Write the records of trips; write what each stage took and the most local disk as JSON."""
    this, begin = psutil.Process(), OutputFolder.begin
    marks: list[float] = []

    def mark(*arguments: Any) -> None:
        marks.append(sum(sum(one.cpu_times()[:2]) for one in [this, *this.children()]))
        begin(*arguments)

    most, is_over = 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not is_over.wait(0.2):
            spills = Path(tempfile.gettempdir()).glob(f"{spill._PREFIX}{this.pid}-*")
            most = max(most, sum(map(_bytes_in, [*spills, Path(folder)])))

    OutputFolder.begin = mark  # type: ignore[method-assign]
    thread = threading.Thread(target=watch)
    thread.start()
    write(table, folder)
    is_over.set()
    thread.join()
    records = sum(split.bytes for split in load_dataset(folder).splits.values())
    figures = {"plan": marks[0], "write": core_seconds() - marks[0]}
    figures |= {"records": records, "disk": most}
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

    def text(values: list[str]) -> list[str]:
        return [values[one] for one in number(0, len(values))]

    latitude, longitude, tract = (41.6, 42.1, 9), (-87.9, -87.5, 9), (17031010000, 17031990000)
    columns: dict[str, list] = {
        "trip_miles": drawn(0, 20, 1),
        "fare": drawn(3, 60, 2),
        "trip_seconds": number(60, 4000),
        "pickup_latitude": drawn(*latitude),
        "pickup_longitude": drawn(*longitude),
        "dropoff_latitude": drawn(*latitude),
        "dropoff_longitude": drawn(*longitude),
        "trip_start_hour": number(0, 24),
        "trip_start_day": number(1, 8),
        "trip_start_month": number(1, 13),
        "payment_type": text(["Cash", "Credit Card", "Unknown"]),
        "company": text(_COMPANIES),
        "pickup_census_tract": number(*tract),
        "dropoff_census_tract": number(*tract),
        "pickup_community_area": number(1, 78),
        "dropoff_community_area": number(1, 78),
        "tips": drawn(0, 10, 2),
    }
    return pa.table(columns)


def _bytes_in(folder: Path) -> int:
    """Return the bytes of the files in a folder from which others are being removed."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


if __name__ == "__main__":
    for count in map(int, sys.argv[1:]):
        with tempfile.TemporaryDirectory() as name:
            table, out = _trips(Path(name) / "trips.csv", count), Path(name) / "out"
            peak = peak_megabytes(_CALL.format("staged"), table, out)
            found = json.loads((out / "figures.json").read_text())
        print(
            f"{count:,} rows: {found['plan']:.1f} s of CPU to read, parse and encode, "
            f"{found['write']:.1f} s to sort and write; records {found['records'] / 1e6:,.0f} MB; "
            f"peak memory {peak:,.0f} MB; "
            f"most local disk {found['disk'] / found['records']:.2f} of the records",
            flush=True,
        )
