"""The log of create_tfrecords says what a person should know before trusting the figures."""

import random

from tests import tables
from trainer.data.write.writer import create_tfrecords

NUMBER = tables.one_number("size", column="kind")


def log(folder, rows, header="size,kind", **changes):
    """Write a table; return the last lines of the log, after the summary."""
    lines: list[str] = []
    table = tables.write_csv(folder / "t.csv", rows, header)
    options = tables.options(table, **{**NUMBER, **changes})
    create_tfrecords(options, str(folder / "out"), progress=lines.append)
    summary = next(n for n, line in enumerate(lines) if "; records: " in line)
    return lines[summary + 1 :]


def made(count, seed=0):
    generator = random.Random(seed)
    return [f"{generator.random():.9f},{generator.choice('ab')}" for _ in range(count)]


def test_class_that_a_split_lacks_is_named(tmp_path):
    rows = [
        f"{row},{split}" for row in made(40) for split in ("train", "train", "validation", "test")
    ]
    rows += ["1,c d,train", "2,e,train", "3,f,train", "4,g,train", "5,h,test"]
    assert log(tmp_path, rows, "size,kind,split", split_by={"column": "split"}) == [
        "warning: classes 'c d', 'e', 'f' and 1 more have no row in the test split: they are "
        "not evaluated",
        "warning: classes 'c d', 'e', 'f' and 2 more have no row in the validation split: the best "
        "epoch is chosen without them",
        "warning: class 'h' has no row in the training split: it can't be learned",
    ]


def test_rejected_rows_are_counted_by_reason(tmp_path):
    rows = made(600)
    rows[7:7] = ["1,a,2", "1,a,2,3"]
    rows[300:300] = ["x,a", "1,", "y,a"]
    assert log(tmp_path, rows, max_rejected_fraction=0.1) == [
        "create_tfrecords: 5 of 605 rows were rejected (0.8%): 2 row is ragged (first: t.csv:9), "
        "2 size is not a number (first: t.csv:302), 1 no label, kind is missing (first: t.csv:303)"
    ]
    assert log(tmp_path / "clean", made(600)) == []


def test_copies_that_move_the_splits_are_said(tmp_path):
    rows = made(2000) + ["1.5,a"] * 1000
    (line,) = log(tmp_path, rows)
    assert line == (
        "warning: train, validation and test have 87/6/7% of the rows instead of 80/10/10%: 999 of "
        "3,000 rows are duplicates, which stay in one split"
    )
    # Equal rows alone are no reason for a warning.
    assert log(tmp_path / "twice", made(2000) * 2) == []


def test_groups_that_move_the_splits_are_said(tmp_path):
    rows = [f"{row},{number % 60 if number % 2 else 7}" for number, row in enumerate(made(2000))]
    (line,) = log(tmp_path, rows, "size,kind,patient", split_by={"group": "patient"})
    assert "instead of 80/10/10%: the groups of 'patient' differ in size, and each is" in line
