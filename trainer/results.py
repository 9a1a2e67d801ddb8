"""What the chief leaves beside the model, read back.

Through the file system, where Vertex AI mounts buckets at /gcs/, so that a step that
only moves figures starts without TensorFlow.
"""

import csv
import dataclasses
import json
from pathlib import Path
from typing import Any

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
        """The numbers of metrics.json; one in a section is named `section_name`."""
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
    """Reads what a training job left in `directory`, its base_output_directory.

    Raises:
        InputError: the chief has not written metrics.json, which it does last of all.
    """
    path = Path(directory, "metrics.json")
    try:
        metrics = json.loads(path.read_text(encoding="utf-8"))
        with Path(directory, "history.csv").open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except FileNotFoundError as error:
        raise InputError(
            f"{error.filename} is missing: the chief did not finish; its log says why"
        ) from None
    return Results(
        metrics=metrics,
        history=[{name: _number(text) for name, text in row.items()} for row in rows],
    )


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
