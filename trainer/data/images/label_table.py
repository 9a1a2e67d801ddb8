"""Labels of images by a table beside them, labels.csv:

    file,price,patient
    1.jpg,120,a
    more/2.png,80.5,b

`file` is an image's path in the folder. The options `label` and `split_by` name other columns.
"""

from collections.abc import Iterator

from trainer.data.file_listing import list_files
from trainer.data.images.class_folders import TABLE, Listed
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
from trainer.errors import InputError

COLUMN = "file"


class LabelTable:
    """The labels.csv in `location`, a URI."""

    def __init__(self, location: str, schema: TableSchema, options: SourceOptions) -> None:
        self._location, self._uri = location, join(location, TABLE)
        self._schema, self._fractions = schema, options.split_fractions
        if not exists(self._uri):
            raise InputError(
                f"source={options.source!r}: label names a column of {TABLE}, but {self._uri} does "
                "not exist; write it, or leave label out if each class has a folder"
            )
        needed = [COLUMN, *schema.needed]
        self._header = read_header(self._uri, schema.dialect, needed)
        check_header(self._uri, self._header, needed)

    def list_images(self) -> Iterator[Listed | Rejection]:
        """Yield all files but the table, sorted by path; then its rows without a file."""
        rows, unusable = self._read()
        for file in list_files(self._location):
            if file.path == TABLE:
                continue
            _, label, split, reason = rows.pop(file.path, ("", None, "", f"not in {TABLE}"))
            yield Listed(file, label, split, reason)
        for path, (key, *_) in rows.items():
            unusable.append(Rejection(key, f"there is no file {path!r}"))
        yield from unusable

    def _read(self) -> tuple[dict[str, tuple[str, AnyLabel | None, str, str]], list[Rejection]]:
        """Return each row's key, label, split and reason to reject it, by file; rows without one.

        All are in memory, some 230 bytes each.
        """
        schema, starts = self._schema, None
        if schema.split_by.time:
            times = (scan_times(block, schema.split_by.time) for block in self._read_blocks())
            starts = find_starts(merge_samples(times), schema.split_by.time, self._fractions)
        found: dict[str, tuple[str, AnyLabel | None, str, str]] = {}
        unusable = []
        for block in self._read_blocks():
            read = block.read([COLUMN, *schema.needed])
            bad: dict[int, str] = {}
            labels = store_labels(parse_labels(schema.label, read.columns, bad)).to_pylist()
            splits = find_splits(
                schema.split_by, read.columns, read.halves[:, 1], self._fractions, starts, bad
            )
            unusable += [Rejection(f"{TABLE}:{line}", why) for line, why in read.rejections]
            for index, path in enumerate(to_texts(read.columns[COLUMN]).to_pylist()):
                key = f"{TABLE}:{read.numbers[index]}"
                split = SPLITS[splits[index]] if schema.split_by.name else ""
                if not path:
                    unusable.append(Rejection(key, f"no {COLUMN}"))
                elif index in bad:
                    found[path] = (key, None, "", bad[index])
                elif path in found:
                    found[path] = (key, None, "", f"twice in {TABLE}")
                else:
                    found[path] = (key, labels[index], split, "")
        return found, unusable

    def _read_blocks(self) -> Iterator[Block]:
        return read_blocks(self._uri, 0, self._header, self._schema.dialect)
