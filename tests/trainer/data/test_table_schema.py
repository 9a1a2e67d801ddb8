"""Mistakes in the description of a table are named before anything is read."""

import gzip
import re
import tarfile
import zipfile

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from PIL import Image

from tests import tables
from tests.refusals import refused
from tests.tables import one_number, write, write_csv
from vertex.errors import InputError

NUMBER = {"name": "miles", "type": "numeric"}
HASHED = {"name": "company", "type": "hashed"}
TEXT = {"name": "comment", "type": "text"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"columns": []}, "columns=[] gives the model nothing"),
        ({"columns": ["miles"]}, "columns='miles' is not a JSON object"),
        ({"columns": [{"type": "numeric"}]}, "columns[0]: 'name' is missing"),
        ({"columns": [{"name": "a"}]}, "type='' is not a type of column; known: bucketized"),
        ({"columns": [{"name": "a", "type": "numerc"}]}, "did you mean 'numeric'?"),
        ({"columns": [NUMBER, NUMBER]}, "columns: 'miles' is listed twice"),
        ({"columns": [{**NUMBER, "lgo": True}]}, "a numeric column takes no 'lgo'; did you mean"),
        ({"columns": [{**NUMBER, "buckets": 3}]}, "a numeric column takes no 'buckets'"),
        ({"columns": [{**NUMBER, "quantiles": 1.5}]}, "quantiles=1.5 is not a whole number"),
        ({"columns": [{**NUMBER, "quantiles": 1}]}, "puts all values into one bucket"),
        ({"columns": [{**NUMBER, "quantiles": 10**9}]}, "quantiles=1000000000 is out of range: it"),
        ({"columns": [{**HASHED, "buckets": 2**31}]}, "buckets=2147483648 is out of range: it mu"),
        ({"columns": [{**NUMBER, "boundaries": [2, 1]}]}, "[2.0, 1.0] must be in ascending order"),
        ({"columns": [{"name": "a", "type": "bucketized"}]}, "needs boundaries or quantiles"),
        ({"columns": [{"name": "a", "type": "hashed"}]}, "buckets is missing"),
        (one_number("tips", **tables.LABEL), "would see the answer"),
        ({"crosses": [{"columns": ["hour", "x"]}]}, "'x' is not one of columns"),
        ({"crosses": [{"columns": ["hour"]}]}, "must name two or more different columns"),
        ({"crosses": [{"columns": ["hour", "payment"], "n": 1}]}, "a cross takes no 'n'"),
        (
            {"columns": [*tables.COLUMNS, TEXT], "crosses": [{"columns": ["hour", "comment"]}]},
            "'comment' is a text, which has no categories to cross; take it out, or make it a",
        ),
        ({"columns": [{**TEXT, "size": 9}]}, "a text column takes no 'size'"),
        ({"columns": [{**TEXT, "words": 0}]}, "words=0 is out of range: it must be at least 1"),
        (
            {"crosses": [{"columns": ["hour", "payment"], "embedding": -1}]},
            "embedding=-1 is out of",
        ),
        (
            {"crosses": [{"columns": ["hour", "payment"], "buckets": 2**31}]},
            "it must be at most 21",
        ),
        ({"label": {}}, "label={} names no column"),
        ({"label": {"column": "tips", "abov": 1}}, "label takes no 'abov'; did you mean 'above'?"),
        ({"label": {"column": "tips", "above": "fare"}}, "label: above='fare' is not a finite"),
        ({"label": {"column": "tips", "above": 1, "below": 2}}, "are two comparisons"),
        ({"label": {"column": "tips", "times_column": "fare"}}, "times_column needs a comparison"),
        ({"label": {"column": "tips", "above": 1, "classes": ["a"]}}, "has 2 classes"),
        ({"label": {"column": "tips", "type": "number"}}, "label: type='number' is not one of"),
        (
            {"label": {"column": "tips", "log": True}},
            'log does not fit type=\'classes\'; leave it out, or set "type": "numeric"',
        ),
        (
            {"label": {"column": "tips", "type": "numeric", "above": 1}},
            'above does not fit type=\'numeric\'; leave it out, or set "type": "classes"',
        ),
        (
            {"label": {"column": "tips", "type": "multilabel", "above": 1}},
            "above does not fit type='multilabel'; leave it out",
        ),
        ({"label": {"type": "multilabel"}}, "or in indicators, columns of 0 and 1; name either"),
        (
            {"label": {"type": "multilabel", "indicators": ["hour", "x"]}},
            "'hour' is also one of columns",
        ),
        (
            {"label": {"column": "tips", "indicators": ["x", "y"]}},
            'indicators does not fit type=\'classes\'; leave it out, or set "type": "multilabel"',
        ),
        ({"label": {"type": "multilabel", "indicators": ["x"]}}, "['x']: list two or more"),
        ({"source": "digits"}, "but source='digits' has neither; use another, such as csv"),
    ],
)
def test_invalid_schema_is_refused(changes, message):
    assert message in refused(tables.options, "x.csv", **changes)


def test_whole_float_counts_as_integer():
    columns = [{"name": "a", "type": "identity", "buckets": 3.0}]
    assert tables.options("x.csv", columns=columns, crosses=[]).columns[0]["buckets"] == 3


@pytest.mark.parametrize(
    ("header", "rows", "changes", "message"),
    [
        (tables.HEADER + ",hour", [], {}, "column 'hour' appears twice in the header"),
        (tables.HEADER, [], {}, "t.csv' has no rows that can be used"),
        ("a,b", [], one_number("a", column="b"), "t.csv' has no rows that can be used"),
        ("a,b", [], one_number("a", column="b", classes=["c", "d"]), "has no rows that can be"),
        (tables.HEADER, ["1,1,card,,1,0,9"] * 50, {}, "class 'big' has no usable rows"),
    ],
)
def test_table_that_does_not_fit_its_schema_is_refused(tmp_path, header, rows, changes, message):
    table = write_csv(tmp_path / "t.csv", rows, header)
    assert message in refused(write, table, tmp_path / "out", **changes)


def test_damaged_or_empty_table_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    assert "no non-empty file" in refused(write, tmp_path / "empty", tmp_path / "out")
    (tmp_path / "t.csv").write_text("\n\n")
    message = refused(write, tmp_path / "t.csv", tmp_path / "out")
    assert "t.csv is empty: it has no header; use a table with a header" in message
    (tmp_path / "t.csv").write_text(f"{tables.HEADER}\r1,1,card,,1,0,9\r")
    assert "lines that end in CR alone; add dialect = {" in refused(
        write, tmp_path / "t.csv", tmp_path / "out"
    )
    (tmp_path / "t.csv").write_bytes(b"\x1a\x03\x04\x14\0\x08\xe9")
    message = refused(write, tmp_path / "t.csv", tmp_path / "out")
    assert "t.csv is not text; save its table as CSV" in message
    cut = gzip.compress("\n".join([tables.HEADER, *tables.lines(100)]).encode())[:-50]
    (tmp_path / "t.csv.gz").write_bytes(cut)
    message = refused(write, tmp_path / "t.csv.gz", tmp_path / "out")
    assert re.search(r"t.csv.gz can't be read \(.+\); fix it, or download it again", message)


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        ("csv", "parquet", "{0} is a Parquet file; use parquet:{0}"),
        ("csv", "xlsx", "{0} is an Excel workbook; use excel:{0}"),
        ("csv", "png", "{0} is an image; use images:FOLDER"),
        ("csv", "tar.gz", "{0} is a tar archive; extract the table from it"),
        ("parquet", "csv", "{0} is text, not Parquet; use csv:{0}"),
        ("parquet", "gz", "{0} is a compressed file; decompress it, or use csv:{0} if it contains"),
        ("parquet", "zip", "{0} is a ZIP archive; extract the table from it, or use csv:{0} if it"),
        ("parquet", "jpeg", "{0} is an image; use images:FOLDER"),
    ],
)
def test_file_of_another_format_is_named(tmp_path, kind, content, message):
    table, file = write_csv(tmp_path / "t.csv", tables.lines(50)), tmp_path / "given"
    if content == "parquet":
        pa.parquet.write_table(pa.csv.read_csv(table), file)
    elif content in ("zip", "xlsx"):
        member = "t.csv" if content == "zip" else "[Content_Types].xml"
        zipfile.ZipFile(file, "w").write(table, member)
    elif content == "tar.gz":
        with tarfile.open(file, "w:gz") as archive:
            archive.add(table)
    elif content in ("png", "jpeg"):
        Image.new("RGB", (9, 9)).save(file, content)
    else:
        text = table.read_bytes()
        file.write_bytes(gzip.compress(text) if content == "gz" else text)
    error = refused(write, "", tmp_path / "out", source=f"{kind}:{file}")
    assert message.format(file) in error


HEADER = "miles,place,payment\n"
ZURICH = "1,Zürich,card\n"
BERN = "".join(f"{n},Bern,{'cash' if n % 2 else 'card'}\n" for n in range(60))


@pytest.mark.parametrize(
    ("encoding", "text", "words"),
    [
        ("latin-1", ZURICH, r"t.csv:2: row is not UTF-8: correct it or, .* set dialect, such as"),
        ("latin-1", ZURICH * 3 + BERN, r"is not in UTF-8; add dialect = \{ encoding = \"cp1252"),
        ("latin-1", "mïles", r"may be in cp1252, 'mïles.*or in cp1257, .*; choose one"),
        (
            "utf-16-le",
            "\ufeff",
            r"is in UTF-16, not in utf-8; add dialect = \{ encoding = \"utf-16-le\" \}",
        ),
        (
            "utf-16-be",
            "\ufeff",
            r"is in UTF-16, not in utf-8; add dialect = \{ encoding = \"utf-16-be\" \}",
        ),
    ],
)
def test_encoding_other_than_utf_8_is_named(tmp_path, encoding, text, words):
    whole = text + HEADER if "mïles" in words else HEADER + text
    (tmp_path / "t.csv").write_bytes(whole.encode(encoding))
    with pytest.raises(InputError, match=words):
        write(tmp_path / "t.csv", tmp_path / "out", **one_number("miles", column="payment"))
