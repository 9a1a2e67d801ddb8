"""Check the input of a batch prediction against the model."""

import codecs
import csv
import itertools
import re
from collections.abc import Sequence

from components.planning.prediction_options import format_of
from trainer.data import storage
from trainer.data.file_listing import list_files
from trainer.data.schema import IMAGES, ROWS, Dataset
from trainer.data.tables.columns import list_columns
from vertex.errors import InputError
from vertex.formats import listing

_LONGEST_HEADER = 100_000
_ROWS = ROWS, f"has {ROWS}"
_FORMATS = {"file-list": (IMAGES, "lists files"), "csv": _ROWS, "bigquery": _ROWS}
"""For formats of only one kind of contents: what a model must take, and what the input has."""
_FITTING = {IMAGES: "a .txt file that lists image files", ROWS: "bq://PROJECT.DATASET.TABLE, .csv"}


def check(input: str, dataset: Dataset | None) -> None:
    """Raise InputError for an input that is missing, or that the model can't take.

    The header of a CSV file is compared with the columns of `dataset`, which the model was trained
    on; None if the model does not record it.
    """
    kind = format_of(input)
    first = "" if kind == "bigquery" else _find_first_file(input)
    if dataset is None:
        return
    needed, what = _FORMATS.get(kind, (dataset.contents, ""))
    if needed != dataset.contents:
        raise InputError(
            f"input={input!r} {what}, and the model takes {dataset.contents}; give "
            f"{_FITTING[dataset.contents]}, .jsonl or .tfrecord files"
        )
    if kind == "csv":
        _check_header(first, [column.name for column in list_columns(dataset)])


def _find_first_file(input: str) -> str:
    try:
        first = next(list_files(input, matching=True), None)
    except OSError:
        first = None
    if first is None:
        raise InputError(f"input={input!r}: there is no such file; give a file or a pattern")
    bucket, slash, _ = input.removeprefix("gs://").partition("/")
    file = f"gs://{bucket}{slash}{first.path}" if storage.is_object(input) else first.path
    try:
        storage.size(file)  # Refuses a folder and a named pipe.
    except OSError as error:
        why = error.strerror or error
        raise InputError(f"input: {file!r} can't be read ({why}); give files") from None
    return file


def _check_header(file: str, columns: Sequence[str]) -> None:
    remedy = "Vertex AI reads CSV in UTF-8 with commas: convert it, or give .jsonl"
    with storage.open_file(file, "rb") as content:
        head = content.read(_LONGEST_HEADER)
    try:
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(head)
    except UnicodeDecodeError:
        raise InputError(f"{file} is not UTF-8; {remedy}") from None
    line = text.partition("\n")[0]
    other = re.search("[;\t|]", line)
    if len(columns) > 1 and "," not in line and other:
        raise InputError(f"{file} has {other[0]!r} between its columns; {remedy}")
    if "\0" in text or "\r" in line.rstrip("\r"):
        raise InputError(f"{file} is in UTF-16, or its lines end in CR; {remedy}")
    try:
        header = next(csv.reader([line]), [])
    except csv.Error as error:
        raise InputError(f"{file} is not a table in CSV ({error}); give .csv or .jsonl") from None
    pairs = itertools.zip_longest(map(_quote, header), map(_quote, columns), fillvalue="none")
    for number, (found, needed) in enumerate(pairs, 1):
        if found != needed:
            raise InputError(
                f"{file}: column {number} is {found} instead of {needed}; batch prediction sends "
                f"rows without names: write exactly {listing(columns)}, in this order, text in "
                "double quotes, or give .jsonl"
            )


def _quote(name: str) -> str:
    return repr(name[:100])
