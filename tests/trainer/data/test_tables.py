"""Tables become records: every row is kept or named, statistics are those of training alone."""

import errno
import gzip
import io
import json
import os
from pathlib import Path

import numpy as np
import pytest

from tests import tables
from tests.trainer.data.folders import content, rejected
from trainer.data.read.reader import InputShare, evaluation_batches
from trainer.data.schema import Dataset
from trainer.data.tables import rows
from trainer.data.tables.inputs import columns_of, row_values
from trainer.data.write import process_pool
from trainer.data.write import records as tfrecords
from trainer.data.write.writer import create_tfrecords
from trainer.errors import InputError


def write(table: Path | str, output: Path, **changes) -> Dataset:
    """Run create_tfrecords on a CSV file, or on `source`, without output."""
    return create_tfrecords(tables.options(table, **changes), str(output), progress=lambda _: None)


def of_one_column(name: str, **label) -> dict:
    """Options of a table with one column of numbers, and that label."""
    return {"columns": [{"name": name, "type": "numeric"}], "crosses": [], "label": label}


def examples(dataset: Dataset, split: str) -> list[dict]:
    """Rows as {name: value}, with label and key; without the columns that are missing."""
    found = []
    for shard in dataset.splits[split].shards:
        with Path(dataset.uri, shard.file).open("rb") as file:
            for _, record in tfrecords.read_records(file):
                example = tfrecords.parse(record)
                row = row_values(example, columns_of(dataset))
                row = {name: value for name, value in row.items() if value is not None}
                found.append({**row, "label": example["label"][0], "key": example["key"][0]})
    return found


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Dataset:
    return tables.records(tmp_path_factory.mktemp("table"))


def test_statistics_are_those_of_the_training_split_alone(dataset):
    train = examples(dataset, "train")
    miles = np.array([one["miles"] for one in train if "miles" in one])
    feature = dataset.features[0]
    assert feature.statistics["mean"] == pytest.approx(np.log1p(miles).mean(), rel=1e-6)
    assert feature.statistics["deviation"] == pytest.approx(np.log1p(miles).std(), rel=1e-6)
    assert feature.statistics["missing"]["train"] == pytest.approx(1 - len(miles) / len(train))
    assert feature.settings["boundaries"] == pytest.approx(
        np.quantile(miles, [0.25, 0.5, 0.75]), rel=1e-5
    )
    for split in ("validation", "test"):
        part = examples(dataset, split)
        assert feature.statistics["missing"][split] == pytest.approx(
            sum("miles" not in one for one in part) / len(part)
        )


def test_a_vocabulary_holds_the_commonest_values_of_training_in_order(dataset):
    feature = next(one for one in dataset.features if one.name == "payment")
    found = [one["payment"].decode() for one in examples(dataset, "train")]
    assert feature.settings["values"][0] == "card"
    assert feature.statistics["counts"] == {
        value: found.count(value) for value in feature.settings["values"]
    }


def test_labels_follow_the_comparison_and_tips_are_no_feature(dataset, tmp_path):
    by_line = dict(enumerate(tables.lines(1500), 2))
    for split in dataset.splits:
        for one in examples(dataset, split):
            *_, tips, fare = by_line[int(one["key"].decode().partition(":")[2])].split(",")
            assert one["label"] == int(float(tips) > 0.2 * float(fare))
            assert "tips" not in one
    assert dataset.classes == ["small", "big"]


def test_rows_that_do_not_fit_are_rejected_by_line_and_missing_values_are_kept(tmp_path):
    good = tables.lines(600)
    bad = {
        5: ("x,1,card,,1,1,9", "miles is not a number: 'x'"),
        6: ("1_0,1,card,,1,1,9", "miles is not a number: '1_0'"),
        7: ("inf,1,card,,1,1,9", "miles is not a number: 'inf'"),
        8: ("-2,1,card,,1,1,9", "miles is below 0, and has log: '-2'"),
        9: ("1,24,card,,1,1,9", "hour is not a whole number from 0 to 23: '24'"),
        10: ("1,1,card,,1,,9", "no label, tips is missing"),
        11: ("1,1,card,,1,1", "row is ragged: 6 fields, the header has 7"),
        12: ('1,1,"ca"rd,,1,1,9', "row is quoted wrongly: ',' expected after '\"'"),
        13: ('1,1,"never closed,,1,1,9', "row is quoted wrongly: unexpected end of data"),
    }
    text = [tables.HEADER, *good]
    for line, (row, _) in bad.items():
        text[line - 1] = row
    text[20] = ",,,,,1,9"
    text[21] = '3,4,"card, or\nnot",,"a ""b""",1,9'
    raw = "\r\n".join(text).encode() + b"\r\n1,1,\xff\xfe,,1,1,9"
    (tmp_path / "t.csv").write_bytes(b"\xef\xbb\xbf" + raw)
    written = write(tmp_path / "t.csv", tmp_path / "out", max_rejected_fraction=0.1)
    expected = {f"t.csv:{line}": reason for line, (_, reason) in bad.items()}
    expected[f"t.csv:{len(text) + 2}"] = "row is not UTF-8: convert"  # One field holds a line end.
    found = {key: reason.partition(" the file")[0] for key, reason in rejected(written.uri).items()}
    assert found == expected
    kept = [one for split in written.splits for one in examples(written, split)]
    assert len(kept) + len(expected) == len(text) == written.creation["given"]
    by_key = {one["key"]: one for one in kept}
    assert by_key[b"t.csv:21"].keys() == {"label", "key"}
    assert by_key[b"t.csv:22"]["payment"] == b"card, or\nnot"
    assert by_key[b"t.csv:22"]["Zone Id"] == b'a "b"'


def test_a_class_of_unusable_rows_alone_moves_no_other(tmp_path):
    made = ["bad,zebra", *(f"{n},{'cash' if n % 2 else 'card'}" for n in range(60))]
    table = tables.write_csv(tmp_path / "t.csv", made, "miles,payment")
    changes = of_one_column("miles", column="payment")
    dataset = write(table, tmp_path / "out", max_rejected_fraction=0.1, **changes)
    assert dataset.classes == ["card", "cash"]
    kept = [one for split in dataset.splits for one in examples(dataset, split)]
    assert len(kept) == 60
    assert all(one["label"] == one["miles"] % 2 for one in kept)


def test_a_table_that_can_not_be_read_on_is_one_line(tmp_path, monkeypatch):
    table = tables.write_csv(tmp_path / "t.csv", tables.lines(50))

    class Failing(io.FileIO):
        def read(self, size=-1):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(rows.storage, "open_file", lambda uri, _: Failing(uri))
    with pytest.raises(InputError, match=r"t.csv can't be read \(Input/output error\)"):
        write(table, tmp_path / "out")


@pytest.mark.parametrize("kind", ["fraction", "whole"])
def test_a_label_column_of_a_quantity_is_refused(tmp_path, kind):
    values = [n * 0.37 if kind == "fraction" else 3 * n for n in range(40)]
    made = [f"{n},{value}" for n, value in enumerate(values * 5)]
    table = tables.write_csv(tmp_path / "t.csv", made, "a,tips")
    changes = of_one_column("a", column="tips")
    with pytest.raises(InputError) as raised:
        write(table, tmp_path / "out", **changes)
    message = str(raised.value)
    assert "'tips' holds numbers, not classes: 40 different ones in 200 rows" in message
    assert '"above": 1}' in message and "quantiles" in message
    names = sorted({str(value) for value in values}, key=float)
    assert write(table, tmp_path / "out", **{**changes, "label": {"column": "tips", "above": 9}})
    many = [row for row in made for _ in range(4)]
    table = tables.write_csv(tmp_path / "many.csv", many, "a,tips")
    changes["label"] = {"column": "tips", "classes": names}
    assert write(table, tmp_path / "out", **changes).classes == names


def test_many_classes_of_whole_numbers_are_classes(tmp_path):
    made = [f"{n},{n % 40}" for n in range(800)]
    table = tables.write_csv(tmp_path / "t.csv", made, "a,shop")
    assert len(write(table, tmp_path / "out", **of_one_column("a", column="shop")).classes) == 40


def test_too_many_bad_rows_fail_with_the_first_named(tmp_path):
    bad = ["x,1,card,,1,1,9"] * 30
    table = tables.write_csv(tmp_path / "t.csv", [*bad, *tables.lines(300)])
    with pytest.raises(InputError, match=r"30 of 330 rows .* t.csv:10, .*: miles is not a number"):
        write(table, tmp_path / "out")
    assert not (tmp_path / "out" / "dataset.json").exists()


def test_one_file_gzipped_ones_a_folder_and_a_pattern_hold_the_same_rows(tmp_path):
    made = tables.lines(400)
    tables.write_csv(tmp_path / "whole.csv", made)
    folder = tmp_path / "parts"
    tables.write_csv(folder / "a.csv", made[:150])
    shuffled = "hour,miles,payment,company,Zone Id,tips,fare"
    swapped = [",".join([b, a, *rest]) for a, b, *rest in (row.split(",") for row in made[150:])]
    part = "\n".join(["", "", shuffled, *swapped])  # Empty lines are no rows.
    (folder / "below").mkdir()
    (folder / "below" / "b.csv.gz").write_bytes(gzip.compress(part.encode()))
    found = []
    for number, source in enumerate((tmp_path / "whole.csv", folder, f"{folder}/**/*.csv*")):
        written = write(source, tmp_path / f"out{number}")
        read = [one for split in written.splits for one in examples(written, split)]
        names = {"miles": -1, "hour": None, "company": b""}
        found.append(
            sorted([one["label"], *(one.get(*name) for name in names.items())] for one in read)
        )
        assert any(one["key"].startswith(b"below/b.csv.gz:") for one in read) == (number > 0)
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 400


def test_rows_of_a_remote_table_are_named_by_its_files(tmp_path):
    folder = tmp_path / "trips"
    tables.write_csv(folder / "a.csv", [*tables.lines(300), "1,2"])
    # Whatever the case of its ending.
    text = "\n".join([tables.HEADER, *tables.lines(300, seed=1), "1,2"])
    (folder / "B.CSV.GZ").write_bytes(gzip.compress(text.encode()))
    dataset = write(f"file://{folder}", tmp_path / "out")
    assert set(rejected(dataset.uri)) == {"a.csv:302", "B.CSV.GZ:302"}
    dataset = write(f"file://{folder}/a.csv", tmp_path / "one")
    assert set(rejected(dataset.uri)) == {"a.csv:302"}


def test_equal_rows_lie_in_one_split_and_columns_do_not_move_rows(tmp_path):
    made = tables.lines(200)
    written = write(tables.write_csv(tmp_path / "t.csv", made * 5), tmp_path / "out")
    places: dict[str, set[str]] = {}
    for split in written.splits:
        for one in examples(written, split):
            line = int(one["key"].decode().partition(":")[2])
            places.setdefault((made * 5)[line - 2], set()).add(split)
    assert all(len(splits) == 1 for splits in places.values())
    assert sum(part.examples for part in written.splits.values()) == 1000
    fewer = write(tmp_path / "t.csv", tmp_path / "fewer", columns=tables.COLUMNS[:2], crosses=[])
    for split in written.splits:
        assert {one["key"] for one in examples(fewer, split)} == {
            one["key"] for one in examples(written, split)
        }


def test_many_processes_and_an_interrupted_run_end_in_the_same_bytes(tmp_path, monkeypatch):
    table = tables.write_csv(tmp_path / "t.csv", tables.lines(3000))
    alone = write(table, tmp_path / "alone")
    monkeypatch.setattr(rows, "BLOCK_BYTES", 10_000)
    monkeypatch.setattr(process_pool, "START_SECONDS", 0.0)
    monkeypatch.setattr(process_pool, "available_cores", lambda: 2)
    # Parse nothing here while they start.
    monkeypatch.setattr(process_pool.Processes, "ready", property(lambda one: one.count > 0))
    write(table, tmp_path / "together")
    first = alone.features[0].statistics
    second = json.loads((tmp_path / "together/dataset.json").read_text())["features"][0]
    assert second["statistics"] == first
    before = content(tmp_path / "together")
    (tmp_path / "together/dataset.json").unlink()
    (tmp_path / "together" / alone.splits["train"].shards[0].file).unlink()
    write(table, tmp_path / "together")
    assert content(tmp_path / "together") == before
    shards = {name: data for name, data in content(tmp_path / "alone").items() if "tfrec" in name}
    assert shards.items() <= before.items()


def test_rows_cut_between_blocks_stay_whole(tmp_path, monkeypatch):
    made = [f'1,{n % 24},"card\n{n}",,{n},1,9' for n in range(300)]
    table = tables.write_csv(tmp_path / "t.csv", made)
    found = []
    for size in (50, 997, 10**6):
        monkeypatch.setattr(rows, "BLOCK_BYTES", size)
        found.append(
            [
                (block.first_line + line, row)
                for block in rows.read_blocks(str(table), 0)
                for line, row in rows.split_rows(block.text)
            ]
        )
    assert found[0] == found[1] == found[2]
    assert [row.decode() for _, row in found[0]] == [tables.HEADER, *made]
    assert [line for line, _ in found[0]] == [1, *range(2, 602, 2)]


def test_a_label_column_gives_its_values_as_classes_in_order(tmp_path):
    made = [row.rsplit(",", 2)[0] for row in tables.lines(300)]
    graded = [f"{row},{grade}" for row, grade in zip(made, [10, 9, 2] * 100, strict=True)]
    header = "miles,hour,payment,company,Zone Id,grade"
    table = tables.write_csv(tmp_path / "t.csv", graded, header)
    written = write(table, tmp_path / "out", label={"column": "grade"})
    assert written.classes == ["2", "9", "10"]
    totals = [sum(n) for n in zip(*(s.class_counts for s in written.splits.values()), strict=True)]
    assert totals == [100, 100, 100]
    for one in examples(written, "train"):
        line = int(one["key"].decode().partition(":")[2])
        assert written.classes[one["label"]] == graded[line - 2].rpartition(",")[2]


def test_numbers_of_any_size_are_encoded_without_nan_or_infinity(tmp_path):
    made = [f"{n % 9}e-41,{n % 5 - 2}.5e38,7,,{n % 2}" for n in range(200)]
    names = ["tiny", "huge", "constant", "empty"]
    table = tables.write_csv(tmp_path / "t.csv", made, ",".join([*names, "kind"]))
    columns = [{"name": name, "type": "numeric", "quantiles": 4} for name in names]
    dataset = write(table, tmp_path / "out", columns=columns, crosses=[], label={"column": "kind"})
    for inputs, _, _ in evaluation_batches(dataset, "train", InputShare(batch_size=8)):
        assert np.isfinite(inputs["numbers"]).all()
