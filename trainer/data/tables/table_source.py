"""Base classes of sources that are tables, in files or elsewhere."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from trainer.data import storage
from trainer.data.file_listing import is_pattern, list_files
from trainer.data.schema import ROWS
from trainer.data.source import SourceKind
from trainer.data.source_options import SourceOptions
from trainer.data.storage import join
from trainer.data.tables.columns import TableSchema
from trainer.data.tables.dialect import Sniffed, parse_dialect
from trainer.data.tables.schema_parser import parse_schema
from vertex.errors import InputError
from vertex.formats import choices, suggest

if TYPE_CHECKING:
    from trainer.data.tables.rows import Block


class TableKind(SourceKind):
    """Base class of sources of rows; an instance reads a table block by block."""

    contents = ROWS
    name: str
    location: str
    names: list[str]  # names of its files; keys begin with them
    details: dict[str, Any]
    dialect_keys: ClassVar[tuple[str, ...]] = ()
    """Keys of the option `dialect` that describe its files."""

    @classmethod
    def check_options(cls, options: SourceOptions) -> list[str]:
        schema = parse_schema(options)
        for key in options.dialect:
            if key not in cls.dialect_keys:
                hint = suggest(key, cls.dialect_keys) if cls.dialect_keys else "; leave it out"
                raise InputError(f"dialect: source={options.source!r} takes no {key!r}{hint}")
        return schema.label.classes

    @classmethod
    def sniff(cls, place: str, given: Mapping[str, Any] | None = None) -> Sniffed:
        """Return the dialect that the first file has, and what a person should know about it.

        Raise InputError if there are two readings, between which a value in `given` can decide: it
        has the form of the option `dialect`.
        """
        return Sniffed(parse_dialect(given or {}), [])

    @classmethod
    def open(cls: Any, place: str, options: SourceOptions) -> Any:
        return cls(place, parse_schema(options))

    def blocks(self, file: int) -> Iterator[Block]:
        """Yield the rows of the file with this index; raise InputError if it can't be read.

        Sources whose rows are Arrow's yield `trainer.data.tables.batches.ArrowBlock`.
        """
        raise NotImplementedError

    def read_all(self) -> Iterator[Block]:
        """Yield the rows of all files, as `blocks` does."""
        for file in range(len(self.names)):
            yield from self.blocks(file)


class FileReader(TableKind):
    """Base class of tables in a file, a folder of files, or the files that match a pattern."""

    place = "URI"

    def __init__(self, location: str, schema: TableSchema, files: int | None = None) -> None:
        self._uris = self.list_files(location)[:files]
        self._dialect, self._needed = schema.dialect, schema.needed
        self.name = location.rstrip("/").rpartition("/")[2] or location
        self.names = _short_names(self._uris)
        # Empty for a remote table, which is not read again.
        self.location = "" if storage.is_remote(location) else location.partition("*")[0]
        self.details: dict[str, Any] = {"files": len(self._uris)}
        self._headers = [self._read_header(uri) for uri in self._uris]
        for uri, header in zip(self._uris, self._headers, strict=True):
            check_header(uri, header, schema.needed)

    @classmethod
    def find_classes(cls, place: str, options: SourceOptions) -> list[str]:
        cls(place, parse_schema(options), files=1)
        return []

    def _read_header(self, uri: str) -> tuple[str, ...]:
        raise NotImplementedError

    @classmethod
    def list_files(cls, location: str) -> list[str]:
        """Return the URIs of a table's files; raise InputError if there is none."""
        if is_pattern(location):
            uris = [uri for uri in storage.list_matching(location) if not storage.is_folder(uri)]
        elif storage.is_folder(location):
            uris = [
                join(location, file.path)
                for file in list_files(location)
                if file.path.lower().endswith(cls.endings)
                # Hidden files, and those that Excel writes while it has a workbook open.
                and not re.search(r"(^|/)(\.|~\$)", file.path)
            ]
        elif storage.exists(location):
            uris = [location]
        else:
            raise InputError(
                f"source: {location} does not exist; use a file, a folder of files, "
                f"or a pattern such as trips-*{cls.endings[0]}"
            )
        # Skip empty files: jobs leave them as markers in object stores.
        uris = sorted(uri for uri in uris if storage.size(uri))
        if not uris:
            hint = f"; for files of other names use a pattern, such as {location}/*.txt"
            raise InputError(
                f"source: no non-empty file at {location} ends in {choices(cls.endings)}"
                f"{hint if storage.is_folder(location) else ''}"
            )
        return uris


def check_header(table: str, header: Sequence[str], needed: Sequence[str]) -> None:
    """Raise InputError if a header lacks a needed column or has it twice."""
    if not any(header):
        raise InputError(f"{table} is empty: it has no header; use a table with a header")
    for name in needed:
        if name not in header:
            raise missing_column(table, name, header)
        if header.count(name) > 1:
            raise InputError(f"{table}: column {name!r} appears twice in the header; rename one")


def missing_column(table: str, name: str, header: Sequence[str]) -> InputError:
    """Return the error for a table whose header lacks a column."""
    return InputError(f"{table} has no column {name!r}{suggest(name, header)}")


def _short_names(uris: list[str]) -> list[str]:
    """Return the paths relative to the innermost folder that contains all files."""
    # Not commonpath, which turns gs://bucket into gs:/bucket; shorten the prefix to a folder.
    folders = [uri[: uri.rfind("/") + 1] for uri in uris]
    start = os.path.commonprefix(folders).rfind("/") + 1  # noqa: RUF071
    return [uri[start:] for uri in uris]
