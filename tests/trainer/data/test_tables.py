"""Tables become records: every row is kept or named, statistics are of the training split."""

import errno
import gzip
import io
import os
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from tests import tables
from tests.refusals import refused
from tests.tables import one_number, read_rows, write, write_csv
from tests.trainer.data.picture_folders import content, read_examples, rejected
from trainer import process_pool
from trainer.data import records, storage
from trainer.data.read.reader import InputShare, read_evaluation_batches
from trainer.data.schema import Dataset
from trainer.data.tables import csv_text
from trainer.data.tables.columns import clean_text


def line_of(row: dict) -> int:
    return int(row["key"].partition(b":")[2])


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Dataset:
    return tables.records(tmp_path_factory.mktemp("table"))


def test_statistics_are_of_the_training_split(dataset):
    rows = {split: read_rows(dataset, split) for split in dataset.splits}
    miles = np.array([row["miles"] for row in rows["train"] if "miles" in row])
    feature = dataset.features[0]
    assert feature.statistics["mean"] == pytest.approx(np.log1p(miles).mean(), rel=1e-6)
    assert feature.statistics["deviation"] == pytest.approx(np.log1p(miles).std(), rel=1e-6)
    missing = {split: np.mean(["miles" not in row for row in part]) for split, part in rows.items()}
    assert feature.statistics["missing"] == pytest.approx(missing)
    quartiles = np.quantile(miles, [0.25, 0.5, 0.75])
    assert feature.settings["boundaries"] == pytest.approx(quartiles, rel=1e-5)
    payment = next(feature for feature in dataset.features if feature.name == "payment")
    values = [row["payment"].decode() for row in rows["train"]]
    assert payment.settings["values"][0] == "card"
    counts = {value: values.count(value) for value in payment.settings["values"]}
    assert payment.statistics["counts"] == counts


def test_label_is_a_comparison_of_columns_that_are_no_features(dataset):
    lines = tables.lines(1500)
    for row in read_rows(dataset):
        *_, tips, fare = lines[line_of(row) - 2].split(",")
        assert row["label"] == int(float(tips) > 0.2 * float(fare))
        assert "tips" not in row
    assert dataset.classes == ["small", "big"]


def test_records_are_the_bytes_of_protocol_buffers(dataset):
    with Path(dataset.shard_uri(dataset.splits["train"].shards[0])).open("rb") as file:
        for _, record in records.read_records(file):
            example = records.parse(record)
            assert records.serialize(example) == record
            kinds = {name: {type(value) for value in example[name]} for name in example}
            assert kinds == {"bytes": {bytes}, "floats": {float}, "ints": {int}} | {
                "key": {bytes},
                "label": {int},
            }


def test_unusable_rows_are_rejected_by_line_and_others_kept(tmp_path):
    bad = {
        5: ("x,1,card,,1,1,9", "miles is not a number: 'x'"),
        6: ("1_0,1,card,,1,1,9", "miles is not a number: '1_0'"),
        7: ("inf,1,card,,1,1,9", "miles is not a number: 'inf'"),
        8: ("-2,1,card,,1,1,9", "miles is below 0, but has log: '-2'"),
        9: ("1,24,card,,1,1,9", "hour is not a whole number from 0 to 23: '24'"),
        10: ("1,1,card,,1,,9", "no label, tips is missing"),
        11: ("1,1,card,,1,1", "row is ragged: 6 fields, the header has 7"),
        12: ('1,1,"ca"rd,,1,1,9', "row is quoted wrongly: ',' expected after '\"'"),
        13: ('1,1,"never closed,,1,1,9', "row is quoted wrongly: unexpected end of data"),
    }
    text = [tables.HEADER, *tables.lines(600)]
    for line, (row, _) in bad.items():
        text[line - 1] = row
    text[20] = ",,,,,1,9"
    text[21] = '3,4,"card, or\nnot",,"a ""b""",1,9'
    raw = "\r\n".join(text).encode() + b"\r\n1,1,\xff\xfe,,1,1,9"
    (tmp_path / "t.csv").write_bytes(b"\xef\xbb\xbf" + raw)
    message = refused(write, tmp_path / "t.csv", tmp_path / "out", max_rejected_fraction=0.01)
    assert re.search(r"10 of 601 rows .* t.csv:5: miles is not a number: 'x'; t.csv:6: ", message)
    assert not (tmp_path / "out" / "dataset.json").exists()
    written = write(tmp_path / "t.csv", tmp_path / "out", max_rejected_fraction=0.1)
    expected = {f"t.csv:{line}": reason for line, (_, reason) in bad.items()}
    expected[f"t.csv:{len(text) + 2}"] = "row is not UTF-8"  # One field holds a line end.
    reasons = {
        key: reason.partition(": correct")[0] for key, reason in rejected(written.uri).items()
    }
    assert reasons == expected
    kept = {row["key"]: row for row in read_rows(written)}
    assert len(kept) + len(expected) == len(text) == written.creation["given"]
    assert kept[b"t.csv:21"].keys() == {"label", "key"}
    assert kept[b"t.csv:22"]["payment"] == b"card, or\nnot"
    assert kept[b"t.csv:22"]["Zone Id"] == b'a "b"'


def test_marker_of_a_missing_value_is_one_if_the_column_lists_it(tmp_path):
    markers = ["?", " NA", "-999.0"]
    rows = [
        f"{markers[n % 3] if n % 2 else n},{'x' if n % 5 else 'NA'},{n % 2}" for n in range(240)
    ]
    table = write_csv(tmp_path / "t.csv", rows, "miles,place,late")
    columns = [{"name": "miles", "type": "numeric"}, {"name": "place", "type": "vocabulary"}]
    options = {"columns": columns, "crosses": [], "label": {"column": "late"}}
    message = refused(write, table, tmp_path / "out", **options)
    remedy = (
        """; if '?' and 'NA' in miles mean that the value is missing, add missing = ["?", "NA"]"""
    )
    assert remedy in message and message.endswith(" to it")
    for column in columns:
        column["missing"] = ["?", "NA", "-999"]
    parquet = tmp_path / "t.parquet"
    pa.parquet.write_table(pa.csv.read_csv(table), parquet)
    for source in (f"csv:{table}", f"parquet:{parquet}"):
        written = write("", tmp_path / source.partition(":")[0], source=source, **options)
        read = [row.keys() & {"miles", "place"} for row in read_rows(written)]
        assert sum("miles" in names for names in read) == 120
        assert sum("place" in names for names in read) == 192
        assert written.features[0].statistics["minimum"] >= 0
        assert written.features[1].settings["values"] == ["x"]


def test_class_without_usable_rows_changes_no_label(tmp_path):
    made = ["bad,zebra", *(f"{n},{'cash' if n % 2 else 'card'}" for n in range(60))]
    table = write_csv(tmp_path / "t.csv", made, "miles,payment")
    changes = one_number("miles", column="payment")
    dataset = write(table, tmp_path / "out", max_rejected_fraction=0.1, **changes)
    assert dataset.classes == ["card", "cash"]
    kept = read_rows(dataset)
    assert len(kept) == 60
    assert all(row["label"] == row["miles"] % 2 for row in kept)


def test_read_error_in_the_middle_of_a_table_is_one_line(tmp_path, monkeypatch):
    class Failing(io.FileIO):
        def read(self, size=-1):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    table = write_csv(tmp_path / "t.csv", tables.lines(50))
    monkeypatch.setattr(storage, "open_file", lambda uri, _: Failing(uri))
    assert "t.csv can't be read (Input/output error)" in refused(write, table, tmp_path / "out")


@pytest.mark.parametrize("step", [0.37, 3])
def test_label_column_of_a_quantity_is_refused(tmp_path, step):
    values = [n * step for n in range(40)]
    made = [f"{n},{value}" for n, value in enumerate(values * 5)]
    table = write_csv(tmp_path / "t.csv", made, "a,tips")
    changes = one_number("a", column="tips")
    message = refused(write, table, tmp_path / "out", **changes)
    assert "'tips' contains numbers, not classes: 40 different ones in 200 rows" in message
    assert all(word in message for word in ('"type": "numeric"', '"above": 1}', "quantiles"))
    assert write(table, tmp_path / "out", **one_number("a", column="tips", above=9))
    names = [clean_text(str(value)) for value in values]
    many = write_csv(tmp_path / "many.csv", made * 4, "a,tips")
    listed = one_number("a", column="tips", classes=names)
    assert write(many, tmp_path / "out", **listed).classes == names
    if step == 3:  # Of whole numbers, each in twenty rows, the classes need not be listed.
        assert write(many, tmp_path / "out", **changes).classes == names


def test_file_folder_and_pattern_hold_the_same_rows(tmp_path):
    made = tables.lines(400)
    whole = write_csv(tmp_path / "whole.csv", made)
    whole.write_bytes(gzip.compress(whole.read_bytes()))  # The name need not say so.
    folder = tmp_path / "parts"
    write_csv(folder / "a.csv", made[:150])
    swapped = [",".join([b, a, *rest]) for a, b, *rest in (row.split(",") for row in made[150:])]
    # Empty lines are no rows.
    part = "\n".join(["", "", "hour,miles,payment,company,Zone Id,tips,fare", *swapped])
    (folder / "below").mkdir()
    (folder / "below" / "b.csv.gz").write_bytes(gzip.compress(part.encode()))
    rows = []
    for number, source in enumerate((tmp_path / "whole.csv", folder, f"{folder}/**/*.csv*")):
        read = read_rows(write(source, tmp_path / f"out{number}"))
        missing = {"miles": -1, "hour": None, "company": b""}
        rows.append(
            sorted(
                [row["label"], *(row.get(*column) for column in missing.items())] for row in read
            )
        )
        assert any(row["key"].startswith(b"below/b.csv.gz:") for row in read) == (number > 0)
    assert rows[0] == rows[1] == rows[2]
    assert len(rows[0]) == 400


def test_rows_of_a_remote_table_are_named_by_its_files(tmp_path):
    folder = tmp_path / "trips"
    write_csv(folder / "a.csv", [*tables.lines(300), "1,2"])
    # Whatever the case of its ending.
    text = "\n".join([tables.HEADER, *tables.lines(300, seed=1), "1,2"])
    (folder / "B.CSV.GZ").write_bytes(gzip.compress(text.encode()))
    dataset = write(f"file://{folder}", tmp_path / "out")
    assert set(rejected(dataset.uri)) == {"a.csv:302", "B.CSV.GZ:302"}
    dataset = write(f"file://{folder}/a.csv", tmp_path / "one")
    assert set(rejected(dataset.uri)) == {"a.csv:302"}


def test_split_depends_on_the_whole_row_not_on_columns_used(tmp_path):
    made = tables.lines(200) * 5
    written = write(write_csv(tmp_path / "t.csv", made), tmp_path / "out")
    rows = {split: read_rows(written, split) for split in written.splits}
    texts = [{made[line_of(row) - 2] for row in part} for part in rows.values()]
    assert sum(map(len, texts)) == len(set(made)), "equal rows are in two splits"
    assert sum(map(len, rows.values())) == 1000
    fewer = write(tmp_path / "t.csv", tmp_path / "fewer", columns=tables.COLUMNS[:2], crosses=[])
    for split, part in rows.items():
        assert {row["key"] for row in read_rows(fewer, split)} == {row["key"] for row in part}


def test_rows_of_a_group_are_in_one_split(tmp_path):
    made = [row for row in tables.lines(3000) if row.split(",")[3]]
    companies = {line: row.split(",")[3] for line, row in enumerate(made, start=2)}
    described = {"split_by": {"group": "company"}, "split_fractions": [0.6, 0.2, 0.2]}
    written = write(write_csv(tmp_path / "t.csv", made), tmp_path / "out", **described)
    groups = {
        split: {companies[line_of(row)] for row in read_rows(written, split)}
        for split in written.splits
    }
    assert sum(map(len, groups.values())) == 40 and all(groups.values())
    assert len(groups["train"]) > len(groups["test"])
    # Other rows of the groups fall into the same splits.
    others = [f'1,2,card," {companies[line]} ",1,{line % 7},9' for line in companies]
    again = write(write_csv(tmp_path / "o.csv", others), tmp_path / "again", **described)
    for split, names in groups.items():
        assert {row["company"].decode() for row in read_rows(again, split)} == names


def test_row_without_a_group_or_a_split_is_rejected(tmp_path):
    parts = ["train", "val", "Test_Set", "train"] * 100
    made = [f"{row},{part}" for row, part in zip(tables.lines(400), parts, strict=True)]
    header = f"{tables.HEADER},part"
    few = [f"{tables.lines(1)[0]},{part}" for part in ("", "tset")]
    table = write_csv(tmp_path / "t.csv", [*made, *few], header)
    written = write(table, tmp_path / "out", split_by={"column": "part"})
    assert [split.examples for split in written.splits.values()] == [200, 100, 100]
    reasons = rejected(written.uri)
    assert reasons == {
        "t.csv:402": "part is not train, validation or test: ''",
        "t.csv:403": "part is not train, validation or test: 'tset'",
    }
    table = write_csv(tmp_path / "g.csv", [*tables.lines(400), "1,2,card,,,1,9"])
    written = write(table, tmp_path / "grouped", split_by={"group": "Zone Id"})
    assert rejected(written.uri) == {"g.csv:402": "no group, Zone Id is missing"}


def test_column_of_splits_needs_each_of_them(tmp_path):
    made = [f"{row},train" for row in tables.lines(100)]
    table = write_csv(tmp_path / "t.csv", made, f"{tables.HEADER},part")
    reason = refused(write, table, tmp_path / "out", split_by={"column": "part"})
    assert "none of its 100 rows has test in 'part', the column of split_by; add some" in reason
    reason = refused(write, table, tmp_path / "out", split_by={"column": "prt"})
    assert "t.csv has no column 'prt'; did you mean 'part'?" in reason


def test_processes_and_an_interrupted_run_write_the_same_bytes(tmp_path, monkeypatch):
    table = write_csv(tmp_path / "t.csv", tables.lines(3000))
    alone = write(table, tmp_path / "alone")
    monkeypatch.setattr(csv_text, "BLOCK_BYTES", 10_000)
    monkeypatch.setattr(process_pool, "START_SECONDS", 0.0)
    monkeypatch.setattr(process_pool, "available_cores", lambda: 2)
    # Parse nothing here while they start.
    monkeypatch.setattr(process_pool.Processes, "ready", property(lambda pool: pool.count > 0))
    together = write(table, tmp_path / "together")
    assert together.features[0].statistics == alone.features[0].statistics
    before = content(tmp_path / "together")
    (tmp_path / "together/dataset.json").unlink()
    (tmp_path / "together" / alone.splits["train"].shards[0].file).unlink()
    write(table, tmp_path / "together")
    assert content(tmp_path / "together") == before
    shards = {name: data for name, data in content(tmp_path / "alone").items() if "tfrec" in name}
    assert shards.items() <= before.items()


def test_rows_cut_between_blocks_stay_whole(tmp_path, monkeypatch):
    made = [f'1,{n % 24},"card\n{n}",,{n},1,9' for n in range(300)]
    table = write_csv(tmp_path / "t.csv", made)
    texts = [tables.HEADER, *made]
    for size in (50, 997, 10**6):
        monkeypatch.setattr(csv_text, "BLOCK_BYTES", size)
        errors = [
            (block.first_line + line, row.decode())
            for block in csv_text.read_blocks(str(table), 0)
            for line, row in csv_text.split_rows(block.text)
        ]
        assert errors == list(zip([1, *range(2, 602, 2)], texts, strict=True)), size


def test_label_column_gives_its_values_as_sorted_classes(tmp_path):
    made = [row.rsplit(",", 2)[0] for row in tables.lines(300)]
    graded = [f"{row},{grade}" for row, grade in zip(made, [10, 9, 2] * 100, strict=True)]
    table = write_csv(tmp_path / "t.csv", graded, "miles,hour,payment,company,Zone Id,grade")
    written = write(table, tmp_path / "out", label={"column": "grade"})
    assert written.classes == ["2", "9", "10"]
    counts = np.sum([split.class_counts for split in written.splits.values()], axis=0)
    assert counts.tolist() == [100, 100, 100]
    for row in read_rows(written, "train"):
        assert written.classes[row["label"]] == graded[line_of(row) - 2].rpartition(",")[2]


def test_label_nan_is_sorted_after_numbers(tmp_path):
    made = [f"{number},{grade}" for number, grade in enumerate(["3", "nan", "1", "2", "x"] * 40)]
    table = write_csv(tmp_path / "t.csv", made, "a,grade")
    written = write(table, tmp_path / "out", **one_number("a", column="grade"))
    assert written.classes == ["1", "2", "3", "nan", "x"]


def test_numbers_of_any_size_become_finite_inputs(tmp_path):
    made = [f"{n % 9}e-41,{n % 5 - 2}.5e38,7,,{n % 2}" for n in range(200)]
    names = ["tiny", "huge", "constant", "empty"]
    table = write_csv(tmp_path / "t.csv", made, ",".join([*names, "kind"]))
    columns = [{"name": name, "type": "numeric", "quantiles": 4} for name in names]
    dataset = write(table, tmp_path / "out", columns=columns, crosses=[], label={"column": "kind"})
    for inputs, _, _ in read_evaluation_batches(dataset, "train", InputShare(batch_size=8)):
        assert np.isfinite(inputs["numbers"]).all()


@pytest.mark.parametrize(
    ("values", "bounds"),
    [
        # Zero has one of ten buckets, the others share nine.
        ([max(0, n - 900) for n in range(1000)], range(1, 100, 11)),
        # No more values than buckets: each has its own.
        ([0] * 900 + [1, 2, 5] * 20, (1, 2, 5)),
        (range(1000), range(100, 1000, 100)),
    ],
)
def test_frequent_value_has_one_bucket(tmp_path, values, bounds):
    made = [f"{value},{n % 2},{n}" for n, value in enumerate(values)]
    table = write_csv(tmp_path / "t.csv", made, "a,y,n")
    columns = [{"name": "a", "type": "numeric", "quantiles": 10}]
    options = {"columns": columns, "crosses": [], "label": {"column": "y"}}
    dataset = write(table, tmp_path / "out", **options, split_fractions=[0.98, 0, 0.02])
    # Without the rows of the test.
    assert dataset.features[0].settings["boundaries"] == pytest.approx(list(bounds), abs=8)


def test_number_to_predict_is_a_float_with_the_statistics_of_the_training_split(tmp_path):
    table = write_csv(tmp_path / "t.csv", tables.lines(600))
    dataset = write(table, tmp_path / "out", label={"column": "fare", "type": "numeric"})
    fares = {n: float(line.rpartition(",")[2]) for n, line in enumerate(tables.lines(600), 2)}
    rows = read_rows(dataset)
    assert {line_of(row): row["label"] for row in rows} == pytest.approx(fares)
    assert dataset.classes == []
    assert sum(split.examples for split in dataset.splits.values()) == 600
    train = np.array([row["label"] for row in read_rows(dataset, "train")])
    statistics = dataset.feature("label").statistics
    expected = {"mean": train.mean(), "deviation": train.std(), "maximum": train.max()}
    assert {name: statistics[name] for name in expected} == pytest.approx(expected, rel=1e-6)
    _, labels, _ = next(iter(read_evaluation_batches(dataset, "test", InputShare(batch_size=8))))
    assert labels.dtype == "float32"


def test_row_without_a_number_to_predict_is_rejected(tmp_path):
    made = [f"{n},{n % 50}" for n in range(400)]
    table = write_csv(tmp_path / "t.csv", [*made, "1,", "1,dear", "1,-2", "1,1e999"], "a,price")
    label = {"column": "price", "type": "numeric", "log": True}
    dataset = write(table, tmp_path / "out", **one_number("a", **label))
    assert dataset.rejected["count"] == 4
    assert set(dataset.rejected["reasons"]) == {
        "no label, price is missing",
        "price is not a number",
        "price is below 0, but has log",
    }
    assert dataset.feature("label").statistics["mean"] < 4  # of the logarithms


def test_number_to_predict_must_have_two_values(tmp_path):
    table = write_csv(tmp_path / "t.csv", [f"{n},7" for n in range(90)], "a,price")
    message = refused(
        write, table, tmp_path / "out", **one_number("a", column="price", type="numeric")
    )
    assert "'price' has only one value in the training rows, 7; there is nothing to" in message


TAGS = {"columns": [{"name": "a", "type": "numeric"}], "crosses": []}


def test_several_labels_are_a_number_for_each_class(tmp_path):
    given = ["x;y", "y", "", " z ;x;x", "y;z"]
    made = [f"{n},{given[n % 5]}" for n in range(400)]
    table = write_csv(tmp_path / "t.csv", made, "a,tags")
    label = {"column": "tags", "type": "multilabel"}
    dataset = write(table, tmp_path / "out", **TAGS, label=label)
    assert dataset.classes == ["x", "y", "z"] and dataset.feature("label").shape == [3]
    expected = [[1, 1, 0], [0, 1, 0], [0, 0, 0], [1, 0, 1], [0, 1, 1]]
    rows = [(line_of(row), example["label"]) for row, example in read_pairs(dataset)]
    assert dict(rows) == {n + 2: expected[n % 5] for n in range(400)}
    counts = dataset.feature("label").statistics["by_split"]
    assert {name: sum(split[name] for split in counts.values()) for name in "xyz"} == {
        "x": 160, "y": 240, "z": 160,
    }  # fmt: skip
    assert sum(split.examples for split in dataset.splits.values()) == 400
    _, labels, _ = next(iter(read_evaluation_batches(dataset, "test", InputShare(batch_size=8))))
    assert labels.shape == (8, 3)
    lists = pa.table({"a": range(400), "tags": [given[n % 5].split(";") for n in range(400)]})
    pa.parquet.write_table(lists, tmp_path / "t.parquet")
    source = {"source": f"parquet:{tmp_path / 't.parquet'}"}
    same = write(table, tmp_path / "lists", **TAGS, label=label, **source)
    assert [example["label"] for _, example in read_pairs(same)].count([0, 0, 0]) == 80
    columns = [[n, *expected[n % 5]] for n in range(400)]
    columns = [",".join(map(str, row)) for row in [*columns, [1, 1, 2, 0]]]
    table = write_csv(tmp_path / "indicators.csv", columns, "a,x,y,z")
    label = {"type": "multilabel", "indicators": ["x", "y", "z"]}
    same = write(table, tmp_path / "indicators", **TAGS, label=label)
    assert list(same.rejected["reasons"]) == ["label y is neither 0 nor 1"]
    assert {line_of(row): example["label"] for row, example in read_pairs(same)} == dict(rows)


def read_pairs(dataset: Dataset):
    for split in dataset.splits:
        for example in read_examples(dataset, split):
            yield {"key": example["key"][0]}, example


def test_label_that_no_row_has_is_refused(tmp_path):
    table = write_csv(tmp_path / "t.csv", [f"{n},x;y" for n in range(100)], "a,tags")
    label = {"column": "tags", "type": "multilabel", "classes": ["x", "y", "z"]}
    message = refused(write, table, tmp_path / "out", **TAGS, label=label)
    assert "label column 'tags': no usable row has 'z'" in message
    label["classes"] = ["x", "z"]
    assert "is not in classes: 'y'" in refused(write, table, tmp_path / "out", **TAGS, label=label)
    table = write_csv(tmp_path / "t.csv", [f"{n},x" for n in range(100)], "a,tags")
    del label["classes"]
    message = refused(write, table, tmp_path / "out", **TAGS, label=label)
    assert "has only one value, 'x'; a classifier needs two or more" in message


def test_classes_that_differ_in_case_width_and_a_full_stop_are_one(tmp_path):
    written = ["Yes", "ｙｅｓ.", "YES", "No", "NO.", "N/A"]  # noqa: RUF001
    rows = [f"{n},{written[n % 6]}" for n in range(300)]
    label = {"column": "y", "ignore_case": True, "missing": ["n/a"]}
    table = write_csv(tmp_path / "t.csv", rows, "a,y")
    options = {**one_number("a"), "label": label, "max_rejected_fraction": 0.2}
    dataset = write(table, tmp_path / "out", **options)
    assert dataset.classes == ["no", "yes"]
    assert np.bincount([row["label"] for row in read_rows(dataset)]).tolist() == [100, 150]
