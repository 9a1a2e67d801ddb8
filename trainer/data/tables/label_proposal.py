"""Propose what a column's label is: a number, a class or several labels."""

import collections
import contextlib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from trainer.data.tables.cells import SHOWN
from trainer.data.tables.columns import LISTS, fold_text
from trainer.data.tables.form_finder import are_lists, tell_words
from trainer.data.tables.number_forms import BOOLEANS, CLOCK, FORMATS, is_number, try_parse
from trainer.data.tables.table_sample import (
    MARKED,
    RARE,
    SEPARATORS,
    TableSample,
    Values,
    show_readings,
    tell_filler,
    tell_form,
)
from trainer.data.tables.values import parse_list
from vertex import formats
from vertex.errors import InputError

FEW_CLASSES, FEW_ROWS, MOST_CLASSES = 20, 5, 1000
"""More different whole numbers are a quantity; each class must have that many rows on average."""
_BOOLEANS = {*BOOLEANS, "yes", "y", "no", "n"}
_OTHER_SEPARATORS = ("/", "+", "&")
"""Texts between labels that are more often part of a name."""


def describe_label(opened: Any, place: str, label: str) -> dict[str, Any]:
    """Return a column of a table as a recipe's label; raise InputError as `propose`."""
    sample = TableSample(opened, label)
    sample.check(place)
    values = sample.read_values({})[label]
    return propose_label(f"{place}: label column {label!r}", values)[0]


def list_labels(opened: Any, place: str) -> dict[str, str]:
    """Return the columns that can be predicted, with the type of the label, the last first."""
    labels = {}
    for name, values in reversed(TableSample(opened, "").read_values({}).items()):
        with contextlib.suppress(InputError):
            described = propose_label(place, values)[0]
            count = _count_classes(values.names, described)
            labels[name] = described.get("type") or f"{count} classes"
    return labels


def propose_label(
    place: str, values: Values
) -> tuple[dict[str, Any], np.ndarray | None, list[str]]:
    """Return the label of a recipe, what `_explain` gets, and notes.

    `_explain` gets ranks of numbers, or 1 in the column of a row's class.
    """
    name, names, rows, found = values.name, values.names, len(values.present), values.found
    if len(names) < 2:
        only = f"only one value, {names[0]!r}" if names else "no value"
        raise InputError(f"{place} has {only}; there is nothing to learn")
    if "type" in values.entry:
        given = {key: value for key, value in values.entry.items() if key != "name"}
        return {"column": name, **given}, None, []
    if values.is_list:
        folded, told = _fold({part for text in names for part in text.split(SEPARATORS[0])})
        return {"column": name, "type": "multilabel", **folded}, None, told
    is_duration = found is not None and found.settings.get("format") == CLOCK
    if values.dates and not is_duration and len(names) > FEW_CLASSES:
        raise InputError(
            f"{place} contains dates, such as {names[0]!r}, which can't be predicted; name a "
            "column of numbers or classes"
        )
    if found and found.readings:
        readings = [{"type": "numeric", **reading} for reading in found.readings]
        raise InputError(
            f"{place} {show_readings(values.given, readings)}; add "
            f"{_show_entry(name, found.readings[0])} or another"
        )
    if found and not found.fits and len(names) > FEW_CLASSES:
        raise InputError(
            f"{place}: {found.notes[0]}; if that is right, add "
            f"{_show_entry(name, found.alternatives[0])}"
        )
    numbers, missing = values.numbers, {"missing": values.markers} if values.markers else {}
    notes = list(found.notes) if found and (numbers is not None or not found.fits) else []
    notes += tell_words(values.named_missing, values.given)
    if numbers is not None:
        assert found
        distinct = len(np.unique(numbers[~np.isnan(numbers)]))
        # One number is written in several ways, as 500 ml and 0.5 l.
        has_factors = len({*found.settings.get("units", {}).values()}) > 1
        is_quantity = has_factors or distinct < len(names) or not is_whole_numbers(numbers)
        if distinct > FEW_CLASSES or (distinct > 2 and is_quantity):
            notes += tell_filler(numbers)
            ranks = np.unique(numbers, return_inverse=True)[1].astype(float)
            return {"column": name, "type": "numeric", **found.settings}, ranks[:, None], notes
        notes = notes[len(found.notes) if found else 0 :]  # Those of numbers.
    if len(written := set(map(fold_text, names))) > 2 and written <= _BOOLEANS:
        raise InputError(
            f"{place} spells booleans in several ways, {', '.join(map(repr, names[:4]))}; use one"
        )
    several = _find_labels(place, names, values.given)
    if several:
        settings, labels = several
        folded, told = _fold(labels)
        return {"column": name, "type": "multilabel", **settings, **folded, **missing}, None, told
    ignore_case, told = _fold(names)
    notes += told
    count = _count_classes(names, ignore_case)
    unread = tell_form(values)
    if unread and count > FEW_CLASSES:
        raise InputError(
            f"{place} {unread[0]}; write numbers, or, if its {count:,} different texts are "
            f"classes, add {_show_entry(name, {'type': 'classes'})}"
        )
    if count > MOST_CLASSES or rows < FEW_ROWS * count:
        raise InputError(
            f"{place} has {count:,} different texts in {rows:,} rows, too many for classes; "
            "name a column of numbers, or of classes that have more rows"
            + "".join(f" ({note})" for note in notes[:1])
        )
    notes += unread
    separator = _find_separator(names, values.given, _OTHER_SEPARATORS)
    if separator and all(text.strip(separator) == text for text in names):
        notes.append(f"one of classes, or several labels with separator = {separator!r}?")
    counts = np.bincount(values.present)
    rarest = int(np.where(counts > 0, counts, rows).argmin())
    if counts[rarest] < RARE * rows:
        share = f"{counts[rarest] / rows:.1%} of the rows"
        notes.append(f"{values.distinct[rarest]!r} has only {share}")
    target = values.codes[:, None] == np.argsort(-values.counts, kind="stable")[:FEW_CLASSES]
    return {"column": name, **ignore_case, **missing}, target.astype(float), notes


def _find_labels(
    place: str, names: list[str], rows: Mapping[str, int]
) -> tuple[dict[str, Any], set[str]] | None:
    """Return the settings of several labels in a text, and the labels; None for one class."""
    if are_lists(rows):
        return {"format": LISTS}, {
            item for text in rows for item in try_parse(parse_list, text, [])
        }
    cut = [text for text in names if text[0] in "[{(" and not {*text}.isdisjoint(",'\"")]
    if sum(rows.get(text, 1) for text in cut) > MARKED * sum(rows.values()):
        raise InputError(
            f"{place} has texts that look like lists, but are in no known form, such as "
            f"{cut[0][:SHOWN]!r}; write ['a', 'b'] or a;b"
        )
    separator = _find_separator(names, rows, SEPARATORS)
    if not separator:
        return None
    labels = {part.strip() for text in names for part in text.split(separator)}
    return {} if separator == SEPARATORS[0] else {"separator": separator}, labels


def _count_classes(names: Collection[str], label: Mapping[str, Any]) -> int:
    return len(set(map(fold_text, names))) if label.get("ignore_case") else len(names)


def _fold(names: Collection[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the option that makes names one that differ in case and blanks, and a note."""
    by_folded = collections.defaultdict[str, list[str]](list)
    for text in sorted(names):
        by_folded[fold_text(text)].append(text)
    variants = {folded: same for folded, same in by_folded.items() if len(same) > 1}
    if not variants:
        return {}, []
    shown = (
        f"{', '.join(map(repr, same))} are read as {folded!r}" for folded, same in variants.items()
    )
    return {"ignore_case": True}, [formats.listing(shown)]


def _show_entry(name: str, settings: Mapping[str, Any]) -> str:
    """Return the option of `recipes new` that says how a column is read."""
    entry = {"name": name, **(settings or {"format": FORMATS[0]})}
    return f"--column {json.dumps(json.dumps(entry, ensure_ascii=False), ensure_ascii=False)}"


def _find_separator(names: list[str], rows: Mapping[str, int], separators: Sequence[str]) -> str:
    """Return the text between several labels; empty if a row has one class.

    Labels come back in other rows and combinations, and are not numbers.
    """
    for separator in separators:
        parts: collections.Counter[str] = collections.Counter()
        for text in names:
            parts.update({part.strip(): rows.get(text, 1) for part in text.split(separator)})
        several = sum(separator in text for text in names)
        numbers = sum(map(is_number, parts))
        is_cut = any(part[:1] in "[({" or part[-1:] in "])}" for part in parts if part)
        is_few = len(parts) <= min(len(names), MOST_CLASSES) and numbers <= 0.2 * len(parts)
        if several > 1 and is_few and not is_cut and parts.total() >= 2 * len(parts):
            return separator
    return ""


def is_whole_numbers(numbers: np.ndarray) -> bool:
    known = numbers[~np.isnan(numbers)]
    return bool((known == np.floor(known)).all())
