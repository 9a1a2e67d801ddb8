"""Read the metrics and the history that the chief writes beside the model.

This needs no TensorFlow, so that a step that only copies metrics starts fast.
"""

import csv
import io
import math
from typing import Any, NamedTuple

from trainer.data import storage
from trainer.data.storage import join
from trainer.exported import model_files
from vertex import checked_json
from vertex.errors import InputError

HISTORY = "history.csv"
METRICS = "metrics.json"
TRIAL = "trial.json"
"""The number and the values of a trial of a search, beside its results."""


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

    Raise InputError if a file is damaged, or metrics.json, which the chief writes last, is missing.
    """
    uri = join(directory, METRICS)
    try:
        metrics = checked_json.parse(_read(uri))
    except ValueError as error:
        raise _damage(uri, error) from None
    model_files.check_beside(join(directory, "model"), HISTORY)
    uri = join(directory, HISTORY)
    return Results(metrics, parse_history(_read(uri), uri))


def parse_history(content: bytes, uri: str) -> list[dict[str, float | None]]:
    """Return the rows of the history.csv at `uri`, one per epoch; raise InputError for damage."""
    try:
        rows = csv.DictReader(io.StringIO(content.decode()))
        return [{name: _parse_number(field) for name, field in row.items()} for row in rows]
    except (ValueError, TypeError) as error:  # TypeError: a row with too many fields.
        raise _damage(uri, error) from None


def _damage(uri: str, error: Exception) -> InputError:
    return InputError(f"{uri} is damaged ({error}); restore it, or train the model again")


def _parse_number(text: str) -> float | None:
    """Parse a field of history.csv; return None for an empty one, NaN and infinity."""
    value = float(text or "nan")
    return value if math.isfinite(value) else None


def _read(uri: str) -> bytes:
    try:
        return storage.read(uri)
    except FileNotFoundError:
        raise InputError(f"{uri} is missing: the chief did not finish; see its log") from None
