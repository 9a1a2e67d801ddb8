"""Photos and tables in a bucket become the records of local files; each photo is read once."""

import gzip
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from tests import tables
from tests.tables import values
from tests.trainer.data.beam_run import interpreter, run
from tests.trainer.data.picture_folders import (
    all_records,
    content,
    rejected,
    two_classes,
    write,
    write_pictures,
)
from trainer.data.write.split_plan import SAMPLE

COMPOSED = "cat/composed ümlaut.png"


@pytest.fixture(params=[pytest.param("classes", marks=pytest.mark.slow), "splits"])
def photos(request, tmp_path, server, proxy):
    """A folder with all kinds of files, also in the bucket; the files that must be read to plan."""
    folder = tmp_path / f"photos-{request.param}"
    root = folder
    if request.param == "splits":
        root = folder / "train"
        write_pictures(folder / "test" / "cat", 4, seed=1)
        write_pictures(folder / "test" / "dog", 4, seed=9)
    two_classes(root, 20)
    write_pictures(root / "dog" / "a" / "b", 2, seed=7)
    write_pictures(root / "dog" / "a.b", 2, seed=8)
    shutil.copy(root / "cat" / "007.png", root / "dog" / "same.png")
    shutil.copy(root / "cat" / "008.png", root / "cat" / "no ending")
    shutil.copy(root / "cat" / "009.png", root / COMPOSED)
    for name, data in {
        "cat/text.jpg": b"text",
        "cat/empty.png": b"",
        ".hidden/a.png": b"x",
        "a.png": b"x",
        "dog/notes": b"text",
        "dog/.DS_Store": b"x",
        "cat/photo.heic": b"heic",
    }.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(data)
    server.upload(folder, folder.name)
    inner = root.relative_to(tmp_path)
    proxy.composed.add(f"bucket/{inner}/{COMPOSED}")
    return folder, {f"{inner}/{name}" for name in ("cat/no ending", "dog/notes", COMPOSED)}


def test_bucket_gives_the_records_of_a_folder(photos, tmp_path, proxy, monkeypatch):
    # One process: others would import TensorFlow, too.
    monkeypatch.setattr("trainer.data.write.writer.available_cores", lambda: 1)
    folder, to_be_read = photos
    options = {"max_rejected_fraction": 0.2}
    made = write(f"images:gs://bucket/{folder.name}", tmp_path / "remote", **options)
    prefix = f"bucket/{folder.name}/"
    read = {name: n for name, n in proxy.downloads.items() if name.startswith(prefix)}
    here = write(folder, tmp_path / "local", **options)

    written, expected = content(tmp_path / "remote"), content(tmp_path / "local")
    del written["dataset.json"], expected["dataset.json"]
    assert written == expected
    remote, local = (
        json.loads(Path(records.uri, "dataset.json").read_text()) for records in (made, here)
    )
    for text in (remote, local):
        made_of = text["creation"]
        del text["sha256"], made_of["source"], made_of["fingerprint"], made_of["options"]["source"]
    assert remote == local
    assert made.creation["given"] == here.creation["given"] > 40
    assert made.creation["contradictions"]["count"] == 1

    reasons = rejected(made.uri)
    broken = {key for key, reason in reasons.items() if "not a JPEG" in reason}
    assert len(broken) == 2
    decoded = {f"{folder.name}/{key}" for key in all_records(made).keys() | broken}
    assert read.keys() == {f"bucket/{name}" for name in decoded | to_be_read}
    # Once to write, once for what a listing lacks, and a sample for the size of a record.
    assert sum(read.values()) == len(decoded) + len(to_be_read) + SAMPLE


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
        *("csv:{}/whole.csv", "csv:{}/parts/*/trips-[01].csv.gz", "parquet:{}/parts"),
        pytest.param("csv:{}/parts/", marks=pytest.mark.slow),
        pytest.param("parquet:{}/parts/**/*.parquet", marks=pytest.mark.slow),
    ],
)
def test_file_folder_or_pattern_has_the_rows_of_local_files(trips, start_proxy, tmp_path, source):
    start_proxy(rate=0.1, seed=1)
    dataset = tables.write("", tmp_path / "out", source=source.format("gs://bucket/trips"))
    assert values(dataset) == trips


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_workers_that_share_a_bucket_write_the_same_bytes(server, proxy, tmp_path):
    server.upload(two_classes(tmp_path / "photos", 40), "beam/photos")
    table = tables.write_csv(tmp_path / "trips.csv", tables.lines(600))
    sources = {
        "photos": {"source": "images:gs://bucket/beam/photos", "image_size": 12},
        "table": {"source": f"csv:{table}", **tables.DESCRIBED},
    }
    cases = [
        {
            "output": f"gs://bucket/beam/{name}-{engine}",
            "engine": engine,
            "options": {"shard_megabytes": 0.02, **options},
        }
        for name, options in sources.items()
        for engine in ("local", "beam", "dataflow")
    ]
    answers = run(interpreter(), tmp_path, cases, seconds=400)
    assert [answer.get("error") for answer in answers] == [None] * len(cases)
    for name in sources:
        local, beam, dataflow = (
            content(server.download(f"beam/{name}-{engine}", tmp_path / f"{name}-{engine}"))
            for engine in ("local", "beam", "dataflow")
        )
        assert sum(file.endswith(".tfrecord") for file in local) >= 3
        # Neither tasks nor staged files are left.
        assert beam == local
        assert dataflow == local
