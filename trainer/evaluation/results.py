"""Read back what the chief leaves beside the model.

From a folder without TensorFlow, so that a step that only moves figures starts at once.
"""

import csv
import dataclasses
import io
import json
from typing import Any

from trainer.data import storage
from trainer.data.schema import join
from trainer.errors import InputError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Results:
    """A finished training job's figures.

    Attributes:
        metrics: content of metrics.json.
        history: rows of history.csv, an epoch each; what is a number is one.
    """

    metrics: dict[str, Any]
    history: list[dict[str, Any]]

    def scalars(self) -> dict[str, float]:
        """Return the numbers of metrics.json; one in a section is named `section_name`."""
        flat: dict[str, Any] = {}
        for name, value in self.metrics.items():
            if isinstance(value, dict):
                flat.update({f"{name}_{key}": inner for key, inner in value.items()})
            else:
                flat[name] = value
        return {
            name: value
            for name, value in flat.items()
            if isinstance(value, (int, float)) and not isinstance(value, bool)
        }


def load(directory: str) -> Results:
    """Reads what a training job left in `directory` (URI), its base_output_directory.

    Raises:
        InputError: the chief has not written metrics.json, which it does last of all.
    """
    metrics = _read(join(directory, "metrics.json"))
    rows = csv.DictReader(io.StringIO(_read(join(directory, "history.csv")), newline=""))
    return Results(
        metrics=json.loads(metrics),
        history=[{name: _number(text) for name, text in row.items()} for row in rows],
    )


def _read(uri: str) -> str:
    try:
        return storage.read(uri).decode()
    except FileNotFoundError:
        raise InputError(f"{uri} is missing: the chief did not finish; its log says why") from None


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
