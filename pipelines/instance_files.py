"""Read instances of prediction requests from images, CSV files and JSON lines."""

import base64
import csv
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any

from pipelines.recipe import Recipe
from trainer.data import storage
from trainer.data.images.class_folders import SUFFIXES
from trainer.data.tables.columns import AUTO
from trainer.data.tables.table_source import missing_column
from trainer.errors import InputError


def read(
    recipe: Recipe, file: str, columns: Sequence[str] | None = None
) -> Iterator[tuple[str, Any]]:
    """Yield the name and the value of each instance in a file, local or gs://.

    `columns` are those that the model takes of a table; default: those of the recipe or, if it
    lists none, all that the file has.

    Raises InputError if the file can't be read, or the recipe's model does not take its format.
    """
    ending = PurePath(file).suffix.lower()
    listed = recipe.parameters.records.columns
    if columns is None and listed != AUTO:
        columns = [column["name"] for column in listed]
    kinds = (".csv", ".jsonl") if listed else (*SUFFIXES, ".jsonl")
    if ending not in kinds:
        raise InputError(f"{file!r}: {recipe.name} takes files that end in {', '.join(kinds)}")
    try:
        storage.size(file)  # Refuses a named pipe, whose end may never come.
        content = storage.read(file)
    except OSError as error:
        why = error.strerror or error
        raise InputError(f"{file!r} can't be read ({why}); give the name of a file") from None
    if ending in SUFFIXES:
        yield file, {"b64": base64.b64encode(content).decode()}
        return
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{file!r} is not UTF-8; save it as such") from None
    if ending == ".jsonl":
        yield from _parse_lines(file, text)
        return
    try:
        yield from _parse_rows(file, text, columns)
    except csv.Error as error:
        raise InputError(f"{file} is not a table in CSV ({error}); write it again") from None


def _parse_rows(file: str, text: str, columns: Sequence[str] | None) -> Iterator[tuple[str, Any]]:
    reader = csv.DictReader(io.StringIO(text, newline=""))
    # As create_tfrecords reads a header.
    header = reader.fieldnames = [name.strip() for name in reader.fieldnames or []]
    if not any(header):
        raise InputError(f"{file} is empty: it has no header; use a table with a header")
    columns = header if columns is None else columns
    for name in columns:
        if name not in header:
            raise missing_column(file, name, header)
    for row in reader:
        position = f"{file}:{reader.line_num}"
        if None in row or None in row.values():
            raise InputError(f"{position} does not have the header's {len(header)} fields; fix it")
        yield position, {name: row[name] or None for name in columns}


def _parse_lines(file: str, text: str) -> Iterator[tuple[str, Any]]:
    # Not splitlines, which also splits at characters that JSON allows in text, such as U+2028.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield f"{file}:{number}", json.loads(line)
            except (ValueError, RecursionError) as error:
                raise InputError(f"{file}:{number} is not JSON ({error}); correct it") from None
