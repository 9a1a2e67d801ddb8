"""Labels of images by a table beside them, labels.csv:

    file,price,patient
    1.jpg,120,a
    more/2.png,80.5,b

`file` is an image's path in the folder. The options `label` and `split_by` name other columns.
Tables come from elsewhere, too: the column may have another usual name, and a path that is not a
file's own is matched as path_matching.py says.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from trainer.data.file_listing import list_files
from trainer.data.images.class_folders import SUFFIXES, TABLE, ListedImage, is_hidden
from trainer.data.images.path_matching import match_paths
from trainer.data.schema import SPLITS
from trainer.data.source import AnyLabel, Rejection
from trainer.data.source_options import SourceOptions
from trainer.data.storage import exists, join
from trainer.data.tables.cells import to_texts
from trainer.data.tables.columns import TableSchema
from trainer.data.tables.csv_text import read_blocks
from trainer.data.tables.labels import parse_labels, store_labels
from trainer.data.tables.rows import Block
from trainer.data.tables.sniffing import read_header
from trainer.data.tables.splits import find_splits, find_starts, merge_samples, scan_times
from trainer.data.tables.table_source import check_header
from vertex.errors import InputError
from vertex.formats import listing

COLUMN = "file"
_COLUMNS = (
    f"{COLUMN} filename filepath path imagepath imagefile imagename image images photo picture img "
    "imageid id"
).split()
"""Names of the column, without case and separators; the first that a table has is taken."""
_FEW = 0.05
"""A table and a folder of which fewer rows and images match do not belong together."""


class _LabelRow(NamedTuple):
    key: str  # where it is in the table
    label: AnyLabel | None  # None if the row can't be used
    split: str
    reason: str  # why it can't be used


class LabelTable:
    """The labels.csv in `location`, a URI."""

    def __init__(self, location: str, schema: TableSchema, options: SourceOptions) -> None:
        self._location, self._uri = location, join(location, TABLE)
        self._schema, self._fractions = schema, options.split_fractions
        self._place = f"source={options.source!r}"
        if not exists(self._uri):
            raise InputError(
                f"{self._place}: label names a column of {TABLE}, but {self._uri} does "
                "not exist; write it, or leave label out if each class has a folder"
            )
        self._header = read_header(self._uri, schema.dialect, schema.needed)
        self._column = find_file_column(self._uri, self._header, schema.needed)
        check_header(self._uri, self._header, [self._column, *schema.needed])

    def check(self) -> None:
        """Raise InputError if few rows match a file; stop listing files once enough do."""
        rows, _ = self._read()
        matched = 0
        for listed in self._match(rows, []):
            matched += isinstance(listed, ListedImage)
            if matched > _FEW * len(rows):
                return

    def list_images(self) -> Iterator[ListedImage | Rejection]:
        """Yield all files but the table, then the rows without a file.

        First are the files whose paths are in the table, sorted by path, then the others. Raise
        InputError if few rows match a file.
        """
        rows, unusable = self._read()
        yield from self._match(rows, unusable)
        yield from unusable

    def _match(
        self, rows: dict[str, _LabelRow | None], unusable: list[Rejection]
    ) -> Iterator[ListedImage]:
        """Yield all files with their labels; add rows without a file to `unusable`."""
        others = {}
        for file in list_files(self._location):
            if file.path == TABLE:
                continue
            if row := rows.get(file.path):
                rows[file.path] = None
                yield ListedImage(file, *row[1:])
            else:
                others[file.path] = file
        found = self._match_others(rows, others, unusable)
        for path, file in others.items():
            row = found.get(path)
            yield (
                ListedImage(file, *row[1:])
                if row
                else ListedImage(file, None, "", f"not in {TABLE}")
            )

    def _match_others(
        self, rows: dict[str, _LabelRow | None], others: Collection[str], unusable: list[Rejection]
    ) -> dict[str, _LabelRow]:
        """Return the rows of the `others`, files without an equal path in the table, by path.

        `rows` are None where a file has been found. Add rows without a file of their own to
        `unusable`; raise InputError if few have one.
        """
        left = {path: row for path, row in rows.items() if row}
        taken = [path for path, row in rows.items() if not row]
        if taken and not left:
            return {}
        files = [path for path in (*taken, *others) if not any(map(is_hidden, path.split("/")))]
        meant = match_paths(list(left), files, self._location, SUFFIXES)
        found: dict[str, _LabelRow] = {}
        for path, row in left.items():
            match meant[path]:
                case []:
                    unusable.append(Rejection(row.key, f"there is no such file: {path!r}"))
                case [file] if file in found:
                    found[file] = found[file]._replace(label=None, reason=f"twice in {TABLE}")
                case [file] if file in others:
                    found[file] = row
                case [file]:
                    unusable.append(Rejection(row.key, f"another row has the same file: {file!r}"))
                case [first, second, *_]:
                    reason = f"its file is ambiguous: {path!r} may be {first!r} or {second!r}"
                    unusable.append(Rejection(row.key, reason))
        images = [path for path in files if path.lower().endswith(SUFFIXES)]
        matched = len(taken) + len(found)
        if matched > _FEW * min(len(rows), len(images)):
            return found
        if not rows:
            raise InputError(f"{self._place}: {TABLE} has no row with a {self._column}; add rows")
        if not images:
            raise InputError(f"{self._place} has no image ({', '.join(SUFFIXES)}); add images")
        in_table, in_folder = (", ".join(map(repr, [*names][:3])) for names in (rows, images))
        raise InputError(
            f"{self._place}: {matched:,} of {len(rows):,} rows of {TABLE} match one of "
            f"{len(images):,} images: column {self._column!r} has {in_table}, the folder "
            f"{in_folder}; write each image's path in the folder into the column"
        )

    def _read(self) -> tuple[dict[str, _LabelRow | None], list[Rejection]]:
        """Return the rows by the file that they name, and the unusable rows that name none.

        All are in memory, some 230 bytes each.
        """
        schema, starts = self._schema, None
        if schema.split_by.time:
            times = (scan_times(block, schema.split_by.time) for block in self._read_blocks())
            starts = find_starts(
                merge_samples(times), schema.split_by.time, self._fractions, schema.time_form
            )
        found: dict[str, _LabelRow | None] = {}
        unusable = []
        for block in self._read_blocks():
            read = block.read([self._column, *schema.needed])
            bad: dict[int, str] = {}
            labels = store_labels(parse_labels(schema.label, read.columns, bad)).to_pylist()
            splits = find_splits(
                schema, read.columns, read.halves[:, 1], self._fractions, starts, bad
            )
            unusable += [Rejection(f"{TABLE}:{line}", why) for line, why in read.rejections]
            for index, path in enumerate(to_texts(read.columns[self._column]).to_pylist()):
                key = f"{TABLE}:{read.numbers[index]}"
                split = SPLITS[splits[index]] if schema.split_by.name else ""
                if not path:
                    unusable.append(Rejection(key, f"no {self._column}"))
                elif index in bad:
                    found[path] = _LabelRow(key, None, "", bad[index])
                elif path in found:
                    found[path] = _LabelRow(key, None, "", f"twice in {TABLE}")
                else:
                    found[path] = _LabelRow(key, labels[index], split, "")
        return found, unusable

    def _read_blocks(self) -> Iterator[Block]:
        return read_blocks(self._uri, 0, self._header, self._schema.dialect)


def find_file_column(table: str, header: Sequence[str], needed: Collection[str]) -> str:
    """Return the column with images' paths: COLUMN, or the usual name that the header has.

    Raise InputError if there is none that is not `needed` for labels or splits.
    """
    if COLUMN in header or len(header) < 2:  # A single column has another separator.
        return COLUMN
    names = {re.sub(r"[\W_]", "", name.lower()): name for name in header if name not in needed}
    for name in _COLUMNS:
        if name in names:
            return names[name]
    raise InputError(
        f"{table} has no column {COLUMN!r} with each image's path in the folder, only "
        f"{listing(header, 200)}; rename the one that has them"
    )
