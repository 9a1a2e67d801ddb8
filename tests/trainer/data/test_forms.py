"""A value means the same in records, requests, batch predictions, drift and the model's graph.

The texts are drawn: each column's in the form that its recipe names, with markers of missing values
and anything else among them.
"""

import csv
import datetime
import io
import math
import unicodedata

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
import tomlkit
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines import instance_files, recipe
from trainer.data.schema import Dataset, Feature
from trainer.data.tables.cells import parse_values
from trainer.data.tables.columns import Column, argument_names
from trainer.data.tables.inputs import MISSING, clean_columns
from trainer.evaluation.column_statistics import describe
from trainer.serving.instances import BadInstancesError
from trainer.serving.row_instances import RowInstances

CENTS = st.integers(-(10**9), 10**9)
MOMENTS = st.datetimes(datetime.datetime(1970, 1, 1), datetime.datetime(2068, 12, 31))


def grouped(cents: int, group: str, decimal: str, around: str = "{}") -> str:
    """Return an amount as a person writes it."""
    whole, part = divmod(abs(cents), 100)
    text = f"{whole:,}".replace(",", group) + f"{decimal}{part:02}"
    return ("-" if cents < 0 else "") + around.format(text)


def in_lakhs(cents: int) -> str:
    whole = f"{abs(cents) // 100}"
    head, tail = whole[:-3], whole[-3:]
    pairs = [head[max(0, end - 2) : end] for end in range(len(head), 0, -2)][::-1]
    return f"{'-' * (cents < 0)}{','.join([*pairs, tail])}.{abs(cents) % 100:02}"


def to_day(moment: datetime.datetime) -> datetime.date:
    return moment.date()


def to_minute(moment: datetime.datetime) -> datetime.datetime:
    return moment.replace(second=0, microsecond=0)


DATES = "%d/%m/%Y", "%m-%d-%y", "%d-%b-%Y", "%Y%m%d", "%d.%m.%Y %I:%M %p", "%Y年%m月%d日"
# Of each column: its settings, what draws a value, how it is written, and what it is.
FORMS = {
    "plain": ({"type": "numeric"}, CENTS, lambda n: f"{n / 100:.2f}", lambda n: n / 100),
    "us": (
        {"type": "numeric", "format": "1,234.56", "units": {"$": 1}},
        CENTS,
        lambda n: grouped(n, ",", ".", "${}"),
        lambda n: n / 100,
    ),
    "lakh": ({"type": "numeric", "format": "1,234.56"}, CENTS, in_lakhs, lambda n: n / 100),
    "german": (
        {"type": "bucketized", "boundaries": [0, 9], "format": "1.234,56", "units": {"€": 1}},
        CENTS,
        lambda n: grouped(n, ".", ",", "{} €"),
        lambda n: n / 100,
    ),
    "french": (
        {"type": "numeric", "format": "1 234,56"},
        CENTS,
        lambda n: grouped(n, "\u202f", ","),
        lambda n: n / 100,
    ),
    "billions": (
        {"type": "numeric", "units": {"B": 1e9, "M": 1e6}},
        st.integers(1, 999),
        lambda n: f"{n} {'B' if n % 2 else 'M'}",
        lambda n: n * (1e9 if n % 2 else 1e6),
    ),
    "range": (
        {"type": "numeric", "format": "1234.56"},
        st.integers(0, 999),
        lambda n: f"{n} - {n + 8}",
        lambda n: n + 4,
    ),
    "bound": (
        {"type": "numeric", "format": "1234.56", "bounds": "value"},
        st.integers(0, 999),
        lambda n: (f"<{n}", f"{n}+", f"{n}以上", f"{n} or less")[n % 4],
        float,
    ),
    "duration": (
        {"type": "numeric", "units": {"h": 60, "min": 1}},
        st.integers(0, 9999),
        lambda n: f"{n // 60}h {n % 60} min",
        float,
    ),
    "clock": (
        {"type": "numeric", "format": "1:23:45"},
        st.integers(0, 10**6),
        lambda n: f"{n // 3600:02}:{n // 60 % 60:02}:{n % 60:02}",
        float,
    ),
    "hour": ({"type": "identity", "buckets": 24}, st.integers(0, 23), str, float),
    "iso": ({"type": "date"}, MOMENTS, lambda day: day.strftime("%Y-%m-%d"), to_day),
    **{
        format: (
            {"type": "date", "format": format},
            MOMENTS,
            lambda moment, format=format: moment.strftime(format),
            to_minute if "%M" in format else to_day,
        )
        for format in DATES
    },
    "ordinal": (
        {"type": "date", "format": "%d %B %Y"},
        MOMENTS,
        lambda moment: moment.strftime("%dth %B %Y"),
        to_day,
    ),
    "seconds": (
        {"type": "date", "format": "seconds since 1970"},
        MOMENTS,
        lambda moment: str(int(moment.replace(tzinfo=datetime.UTC).timestamp())),
        lambda moment: moment.replace(microsecond=0),
    ),
    "name": ({"type": "hashed", "buckets": 99}, st.sampled_from(["Café", "8", "x y"]), str, str),
    "marks": (
        {"type": "vocabulary", "values": ["Café", "Ö"]},
        st.sampled_from(["Café", "Ö"]),
        lambda name: unicodedata.normalize("NFD", name),
        str,
    ),
    "text": ({"type": "text"}, st.text("abc é日,.!", min_size=1).filter(str.strip), str, str.strip),
}
MARKERS = ["n/a", "-999"]
COLUMNS = {name: Column(name=name, missing=MARKERS, **form[0]) for name, form in FORMS.items()}
ODD = [
    *MARKERS,
    "",
    " ",
    "nan",
    "7",
    "-3.5",
    "1,5",
    "1.234",
    "25.000",
    "(3)",
    "5-",
    "12/31/2020",
    "2024-02-30",
]
ANYTHING = st.one_of(st.sampled_from(ODD), st.text(max_size=12).filter(str.isprintable))


def dataset_of(column: Column) -> Dataset:
    feature = Feature(
        name=column.name, kind=column.type, dtype=column.dtype, settings=column.settings()
    )
    return Dataset(
        uri="", name="", features=[feature], classes=[], splits={}, rejected={}, creation={}
    )


def read_as_records(column: Column, texts: list[str]) -> list:
    """Return each value as in the records, None where it is missing, "bad" where it is refused."""
    bad: dict[int, str] = {}
    values = parse_values(column, pa.array(texts, pa.string()), bad)
    found = values.tolist() if isinstance(values, np.ndarray) else values.to_pylist()
    read = [None if value == "" or value != value else value for value in found]
    return ["bad" if index in bad else value for index, value in enumerate(read)]


def read_as_request(column: Column, value: object) -> object:
    """Return a value of a request as the model gets it, after the model's own cleaning."""
    features = dataset_of(column).features
    (argument,) = argument_names([column.name]).values()
    try:
        (part,) = RowInstances({argument: column.dtype}, features).parse([[value]]).parts
    except BadInstancesError:
        return "bad"
    return clean(column, part.inputs[argument])


def clean(column: Column, raw: np.ndarray) -> object:
    dataset = dataset_of(column)
    tensor = tf.constant(raw.tolist(), tf.as_dtype(column.dtype))
    (value,) = clean_columns({column.name: tensor}, dataset)[column.name].numpy().tolist()
    if column.dtype == "string":
        return value.decode() or None
    return None if value != value or value == MISSING[column.dtype] else value


def is_same(first: object, second: object) -> bool:
    if isinstance(first, float) and isinstance(second, (int, float)):
        return math.isclose(np.float32(first), np.float32(second), rel_tol=1e-6)
    return first == second


def values_of(name: str) -> st.SearchStrategy:
    return st.lists(FORMS[name][1], min_size=1, max_size=5)


@pytest.mark.parametrize("name", FORMS)
@settings(max_examples=8, deadline=None, derandomize=True)
@given(data=st.data())
def test_values_in_the_form_of_a_column_are_what_a_person_reads(name, data):
    column, (_, _, write, mean) = COLUMNS[name], FORMS[name]
    drawn = data.draw(values_of(name))
    texts = [write(value) for value in drawn]
    for text, value, read in zip(texts, drawn, read_as_records(column, texts), strict=True):
        expected = mean(value)
        expected = expected.isoformat() if isinstance(expected, datetime.date) else expected
        assert is_same(read, expected), (text, read)


@pytest.mark.parametrize("name", FORMS)
@settings(max_examples=8, deadline=None, derandomize=True)
@given(data=st.data())
def test_a_text_is_read_alike_everywhere(name, data):
    column, write = COLUMNS[name], FORMS[name][2]
    texts = [write(value) for value in data.draw(values_of(name))]
    texts += data.draw(st.lists(ANYTHING, max_size=5))
    records = read_as_records(column, texts)
    for text, read in zip(texts, records, strict=True):
        assert is_same(read, read_as_request(column, text)), text
        if (
            column.dtype == "string"
            and read != "bad"
            and text == unicodedata.normalize("NFC", text)
        ):
            # The SavedModel itself, asked without a server.
            assert clean(column, np.array([text.encode()], object)) == read, text
        if column.type == "date" and read not in ("bad", None):
            assert read_as_request(column, read) == read
    usable = [MISSING[column.dtype] if read is None else read for read in records if read != "bad"]
    if column.dtype == "string":
        usable = [str(value).encode() for value in usable]
    kind = object if column.dtype == "string" else column.dtype
    (feature,) = dataset_of(column).features
    if usable:
        missing = describe(feature, np.array(usable, kind)).statistics["missing"]["train"]
        assert missing == sum(read is None for read in records) / len(usable)


@settings(max_examples=5, deadline=None, derandomize=True)
@given(data=st.data())
def test_a_file_of_requests_is_read_as_the_records(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("file")
    entries = [{"name": name, "missing": MARKERS, **form[0]} for name, form in FORMS.items()]
    given = {"source": "csv:t.csv", "model": "wide_and_deep", "label": {"column": "y"}}
    text = tomlkit.dumps({**given, "columns": entries})
    folder.joinpath("forms.toml").write_text(text, encoding="utf-8")
    rows = [{name: FORMS[name][2](data.draw(FORMS[name][1])) for name in FORMS} for _ in range(3)]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(FORMS), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    folder.joinpath("asked.csv").write_text(text.getvalue(), encoding="utf-8")
    read = instance_files.read(recipe.load("forms", folder), str(folder / "asked.csv"))
    for row, (_, instance) in zip(rows, read, strict=True):
        for name, column in COLUMNS.items():
            (record,) = read_as_records(column, [row[name]])
            assert is_same(record, read_as_request(column, instance[name])), name
