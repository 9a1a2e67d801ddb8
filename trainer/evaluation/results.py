"""Read the metrics and the history that the chief writes beside the model.

This needs no TensorFlow, so that a step that only copies metrics starts fast.
"""

import csv
import io
import json
import math
from typing import Any, NamedTuple

from trainer.data import storage
from trainer.data.schema import join
from trainer.errors import InputError


class Results(NamedTuple):
    """The metrics.json and the rows of history.csv, one per epoch, of a finished training job."""

    metrics: dict[str, Any]
    history: list[dict[str, float | None]]

    def scalars(self) -> dict[str, float]:
        """Return the numbers of metrics.json; a number in a section is named `section_name`."""
        flat = dict(self.metrics)
        for section, values in self.metrics.items():
            if isinstance(values, dict):
                flat |= {f"{section}_{name}": value for name, value in values.items()}
        return {name: value for name, value in flat.items() if type(value) in (int, float)}


def load(directory: str) -> Results:
    """Read the results of a training job from its base_output_directory.

    Raise InputError if metrics.json, which the chief writes last, is missing.
    """
    metrics = json.loads(_read(join(directory, "metrics.json")))
    return Results(metrics, parse_history(_read(join(directory, "history.csv"))))


def parse_history(text: str) -> list[dict[str, float | None]]:
    """Return the rows of history.csv, one per epoch."""
    rows = csv.DictReader(io.StringIO(text))
    return [{name: _parse_number(field) for name, field in row.items()} for row in rows]


def _parse_number(text: str) -> float | None:
    """Parse a field of history.csv; return None for an empty one, NaN and infinity."""
    value = float(text or "nan")
    return value if math.isfinite(value) else None


def _read(uri: str) -> str:
    try:
        return storage.read(uri).decode()
    except FileNotFoundError:
        raise InputError(f"{uri} is missing: the chief did not finish; see its log") from None
