"""Write a recipe for a table that nobody has described: `recipes new`."""

import json
import re
from pathlib import Path
from typing import Any

from pipelines import recipe
from trainer.data import storage
from trainer.data.schema import ROWS
from trainer.data.sources import parse_source
from trainer.data.tables.columns import Label, SplitBy, TableSchema
from trainer.data.tables.proposal import Proposal, propose
from trainer.errors import InputError

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_STEPS = 8000
"""Training steps of a table, whatever its size, within the limits of epochs."""
_CLASSES_DROPOUT = 0.3
"""Of a classification. With 0.1, bookings have an area under the curve lower by 0.01; a census,
trips and scans, by up to 0.003. For a number, 0.3 is too much: R2 of housing falls by 0.01."""
_REJECTED = "max_rejected_fraction"
_LARGE = 250_000
"""Rows that a table has of which only a sample was read."""


def write(name: str, source: str, label: str) -> tuple[Path, Proposal]:
    """Write recipes/NAME.toml; return its path, and what it proposes.

    Raise InputError for a name that is taken or unusable, and as `propose_for`.
    """
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{name!r} can't name a recipe: use lower-case letters, digits and underscores, and "
            "begin with a letter"
        )
    path = recipe.USER_DIRECTORY / f"{name}.toml"
    if name in recipe.list_names():
        raise InputError(f"there is a recipe {name!r} already; choose another name")
    proposal = propose_for(source, label)
    text = _format(name, source, label, proposal)
    path.parent.mkdir(exist_ok=True)
    with storage.catch_write_errors(str(path)):
        path.write_text(text, encoding="utf-8")
    return path, proposal


def propose_for(source: str, label: str) -> Proposal:
    """Return columns for a column of a table; raise InputError as `proposal.propose` does."""
    kind, location = parse_source(source)
    if kind.contents != ROWS:
        raise InputError(f"source={source!r} is not a table; use one, such as csv:FILE")
    # Opening checks that each file has the label.
    schema = TableSchema(columns=[], crosses=[], label=Label(column=label), split_by=SplitBy())
    opened: Any = kind(location, schema)  # type: ignore[call-arg]
    return propose(opened, f"source={source!r}", label)


def choose_options(proposal: Proposal) -> dict[str, Any]:
    """Return the options of wide_and_deep that suit a table of that size."""
    rows = proposal.rows if proposal.is_whole else max(_LARGE, proposal.rows)
    if all(column["type"] == "text" for column in proposal.columns):
        return {"model": "wide_and_deep", "epochs": 12, "early_stopping_patience": 3}
    batch_size = min(256, max(32, 2 ** round(rows / 100).bit_length() // 2))
    epochs = min(100, max(8, _STEPS * batch_size // rows))
    return {
        "model": "wide_and_deep",
        "model_options": {
            "hidden_units": [256, 128, 64],
            "dropout": 0.1 if proposal.label.get("type") == "numeric" else _CLASSES_DROPOUT,
        },
        "epochs": epochs,
        "batch_size": batch_size,
        "learning_rate": 0.002,
        "schedule": "cosine",
        "wide_learning_rate": 0.02,
        "early_stopping_patience": max(4, epochs // 4),
    }


def _format(name: str, source: str, label: str, proposal: Proposal) -> str:
    read = "all" if proposal.is_whole else "the first"
    is_number = proposal.label.get("type") == "numeric"
    lines = [
        f"# {label.capitalize()} of {source}",
        "#",
        f"# Proposed from {read} {proposal.rows:,} rows that no run tests on. Correct it: a code",
        "#   of digits is a number here, and only you know which columns are known when the model",
        "#   is asked.",
        f"# Command:    python -m pipelines run {name} --local",
        "",
        _assign("source", source),
        *(["# With log = true, equal ratios count as equal errors."] if is_number else []),
        _assign("label", proposal.label),
        "columns = [",
        *(f"  {_to_toml(column)}," for column in proposal.columns),
        "]",
        *(f"# Left out: {column} {reason}" for column, reason in proposal.left_out.items()),
        "",
        *(_assign(key, value) for key, value in choose_options(proposal).items()),
    ]
    if proposal.unlabeled > 0:
        share = round(min(1.0, proposal.unlabeled + 0.02), 2)
        lines += ["", "# Rows without a label can't be learned from.", _assign(_REJECTED, share)]
    return "\n".join(lines) + "\n"


def _assign(key: str, value: Any) -> str:
    return f"{key} = {_to_toml(value)}"


def _to_toml(value: Any) -> str:
    """Return a value in TOML, whose strings, numbers and lists are those of JSON."""
    if isinstance(value, dict):
        return "{ " + ", ".join(_assign(key, item) for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_to_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
