"""Read instances of prediction requests from images, CSV files and JSON lines."""

import base64
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any

from pipelines.recipe import Recipe
from trainer.data import storage
from trainer.data.images.class_folders import SUFFIXES
from trainer.data.sources import parse_source
from trainer.data.tables.columns import AUTO
from trainer.data.tables.dialect import PLAIN, Dialect, parse_dialect
from trainer.data.tables.table_source import check_header, missing_column
from vertex.errors import InputError
from vertex.formats import listing, suggest


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
        remedy = "; save the table as CSV in UTF-8" if listed else ""
        raise InputError(
            f"{file!r}: {recipe.name} takes files that end in {', '.join(kinds)}{remedy}"
        )
    try:
        content = storage.read(file)
    except OSError as error:
        why = error.strerror or error
        raise InputError(f"{file!r} can't be read ({why}); give the name of a file") from None
    if ending in SUFFIXES:
        yield file, {"b64": base64.b64encode(content).decode()}
    elif ending == ".csv":
        yield from _read_rows(file, _find_dialect(recipe), columns)
    else:
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise InputError(f"{file!r} is not UTF-8; save it as such") from None
        yield from _parse_lines(file, text)


def _find_dialect(recipe: Recipe) -> Dialect:
    """Return the dialect of the recipe's table, if that is in CSV files, too."""
    records = recipe.parameters.records
    kind, _ = parse_source(records.source)
    keys = getattr(kind, "dialect_keys", ())
    return parse_dialect(records.dialect) if "delimiter" in keys else PLAIN


def _read_rows(
    file: str, dialect: Dialect, columns: Sequence[str] | None
) -> Iterator[tuple[str, Any]]:
    """Yield the rows of a file in the dialect, or in UTF-8 with commas.

    As in a request, values of columns that it lacks are missing; a warning names these columns.
    Other columns than the model's are not used, and are named, too: a table often has a label.
    """
    from trainer.data.tables import csv_text, sniffing

    if dialect.skip_rows or dialect.footer_rows:  # This file need not have a title or a total.
        borders = ("skip_rows", "footer_rows")
        fields = {key: value for key, value in vars(dialect).items() if key not in borders}
        dialect = sniffing.sniff(file, fields).dialect
    try:
        header = sniffing.read_header(file, dialect, columns or ())
        present = _find_present(file, header, columns)
    except InputError as error:
        if dialect == PLAIN:
            raise
        try:
            header = csv_text.read_header(file)
        except InputError:
            raise error from None
        if not set(columns or ()) <= set(header):
            raise
        dialect, present = PLAIN, columns or header
    if absent := [name for name in columns or () if name not in present]:
        print(f"warning: {file} lacks the columns {listing(absent)}", file=sys.stderr)
    if unused := [name for name in header if name not in present]:
        print(f"{file}: columns that the model does not use: {listing(unused)}", file=sys.stderr)
    for block in csv_text.read_blocks(file, 0, header, dialect):
        rows = block.read(present)
        for line, reason in rows.rejections:
            raise InputError(f"{file}:{line}: {reason}; fix it")
        values = zip(*(rows.columns[name].to_pylist() for name in present), strict=True)
        for line, row in zip(rows.numbers, values, strict=True):
            named = zip(present, row, strict=True)
            yield f"{file}:{line}", {name: value or None for name, value in named}


def _find_present(file: str, header: Sequence[str], columns: Sequence[str] | None) -> Sequence[str]:
    """Return the columns that a file has; by default, all of its header.

    Raise InputError if it has none, one twice, or another name that looks like a misspelled one.
    """
    present = [name for name in columns or header if name in header]
    check_header(file, header, present)
    others = [name for name in header if name not in present]
    absent = [name for name in columns or () if name not in header]
    misspelled = [name for name in absent if suggest(name, others, otherwise="")]
    if wrong := misspelled or (not present and absent):
        raise missing_column(file, wrong[0], others)
    return present


def _parse_lines(file: str, text: str) -> Iterator[tuple[str, Any]]:
    # Not splitlines, which also splits at characters that JSON allows in text, such as U+2028.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield f"{file}:{number}", json.loads(line)
            except (ValueError, RecursionError) as error:
                raise InputError(f"{file}:{number} is not JSON ({error}); correct it") from None
