"""A block of rows to values, digests, labels and statistics: what every core does at once."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from trainer.data.sources import DIGEST_BYTES, digest
from trainer.data.tables.columns import COMPARISONS, Column, Label, TableSchema
from trainer.data.tables.rows import BadRowError, Block, rows, split
from trainer.data.tables.statistics import ColumnStatistics
from trainer.data.write.records import Values
from trainer.data.write.split_plan import drawn_ranks

MAX_FLOAT = float(np.finfo(np.float32).max)


@dataclasses.dataclass
class ParsedBlock:
    """What one block holds.

    Attributes:
        digests: `DIGEST_BYTES` of each row that can be used, one behind the other.
        labels: their classes, as text.
        stored: each row's bytes for the spill.
        rejections: (line, reason) of the others.
        statistics: of every column.
        split_rows: how many rows fall into each split.
    """

    digests: bytes
    labels: list[str]
    stored: list[bytes]
    rejections: list[tuple[int, str]]
    statistics: list[ColumnStatistics]
    split_rows: list[int]


@dataclasses.dataclass(frozen=True)
class BlockParser:
    """Parses the blocks of files whose headers are known; picklable, for other processes.

    Attributes:
        headers: of each file, the names in it.
        fractions: shares of the splits.
    """

    schema: TableSchema
    headers: list[tuple[str, ...]]
    fractions: Sequence[float]

    def write(
        self, task: tuple[int, Block], report: Callable[[int], None]
    ) -> tuple[int, ParsedBlock]:
        """Parse a numbered block, the unit of work of trainer.data.write.process_pool."""
        number, block = task
        return number, self.parse(block)

    def parse(self, block: Block) -> ParsedBlock:
        header = self.headers[block.file]
        lines, raw, fields, rejections = [], [], [], []
        for offset, row in rows(block.text):
            try:
                found = split(row)
                if len(found) != len(header):
                    raise BadRowError(
                        f"is ragged: {len(found)} fields, the header has {len(header)}"
                    )
            except BadRowError as error:
                rejections.append((block.first_line + offset, f"row {error}"))
                continue
            lines.append(block.first_line + offset)
            raw.append(row)
            fields.append(found)
        bad: dict[int, str] = {}
        texts = dict(zip(header, zip(*fields, strict=True), strict=True)) if fields else {}
        values = {
            column.name: _values(column, texts.get(column.name, ()), bad)
            for column in self.schema.columns
        }
        labels = _labels(self.schema.label, texts, len(fields), bad)
        rejections += [(lines[index], reason) for index, reason in bad.items()]
        kept = np.array([index for index in range(len(raw)) if index not in bad], int)
        digests = b"".join(digest(raw[index]) for index in kept)
        halves = np.frombuffer(digests, ">u8").reshape(-1, DIGEST_BYTES // 8)
        ranks = drawn_ranks(halves[:, 1], self.fractions)
        statistics = []
        for column in self.schema.columns:
            one = ColumnStatistics(column)
            given = values[column.name]
            chosen = [given[i] for i in kept] if isinstance(given, list) else given[kept]
            one.add(chosen, ranks, halves[:, 0])
            statistics.append(one)
        return ParsedBlock(
            digests=digests,
            labels=[labels[index] for index in kept],
            stored=[b"%d:%d:%s" % (block.file, lines[index], raw[index]) for index in kept],
            rejections=sorted(rejections),
            statistics=statistics,
            split_rows=np.bincount(ranks, minlength=3).tolist(),
        )


def features_of(row: bytes, header: Sequence[str], columns: Sequence[Column]) -> Values:
    """The features of a row that has been parsed before; missing values have none."""
    texts = dict(zip(header, split(row), strict=True))
    values: dict[str, bytes | int | float | list[int] | list[float]] = {}
    for column in columns:
        text = texts[column.name].strip()
        if column.dtype == "string":
            if text:
                values[column.name] = text.encode()
        elif text and not math.isnan(number := float(text)):
            values[column.name] = int(number) if column.dtype == "int64" else number
    return values


def _values(column: Column, texts: Sequence[str], bad: dict[int, str]) -> Any:
    """A column's values: numbers as float64 [n], NaN where missing; else texts.

    Rows whose value does not fit are noted in `bad`, by their index.
    """
    if column.dtype == "string":
        return [text.strip() for text in texts]
    numbers = _numbers(column.name, texts, bad)
    if column.type == "identity":
        with np.errstate(invalid="ignore"):
            fits = (numbers == np.floor(numbers)) & (numbers >= 0) & (numbers < column.buckets)
        for index in np.flatnonzero(~fits & ~np.isnan(numbers)).tolist():
            bad.setdefault(
                index,
                f"{column.name} is not a whole number from 0 to {column.buckets - 1}: "
                f"{texts[index][:40]!r}",
            )
            numbers[index] = np.nan
    if column.log:
        for index in np.flatnonzero(numbers < 0).tolist():
            bad.setdefault(index, f"{column.name} is below 0, and has log: {texts[index][:40]!r}")
    return numbers


def _numbers(name: str, texts: Sequence[str], bad: dict[int, str]) -> np.ndarray:
    """Texts as float64 [n]; empty ones and "nan" are NaN."""
    try:
        numbers = np.array([float(text) if text else math.nan for text in texts], np.float64)
        doubtful: Sequence[int] = np.flatnonzero(np.abs(numbers) > MAX_FLOAT).tolist()
        if any("_" in text for text in texts):
            doubtful = range(len(texts))
    except ValueError:
        numbers, doubtful = np.full(len(texts), math.nan), range(len(texts))
    for index in doubtful:
        text = texts[index].strip()
        try:
            number = float(text) if text else math.nan
            if "_" in text or abs(number) > MAX_FLOAT:
                raise ValueError
            numbers[index] = number
        except ValueError:
            bad.setdefault(index, f"{name} is not a number: {text[:40]!r}")
            numbers[index] = math.nan
    return numbers


def _labels(
    label: Label, texts: Mapping[str, Sequence[str]], count: int, bad: dict[int, str]
) -> list[str]:
    """Each row's class; rows without one are noted in `bad`."""
    if not count:
        return []
    if not label.comparison:
        found = [text.strip() for text in texts[label.column]]
        for index, text in enumerate(found):
            if not text:
                bad.setdefault(index, f"no label, {label.column} is missing")
            elif label.classes and text not in label.classes:
                bad.setdefault(index, f"label {label.column} is not one of classes: {text[:40]!r}")
        return found
    sides = [_numbers(name, texts[name], bad) for name in label.columns]
    for name, side in zip(label.columns, sides, strict=True):
        for index in np.flatnonzero(np.isnan(side)).tolist():
            bad.setdefault(index, f"no label, {name} is missing")
    bound = label.threshold * sides[1] if len(sides) > 1 else label.threshold
    with np.errstate(invalid="ignore"):
        holds = COMPARISONS[label.comparison](sides[0], bound)
    return [label.classes[int(one)] for one in holds]
