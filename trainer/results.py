"""What the chief leaves beside the model, read back."""

import csv
import dataclasses
import io
from typing import Any

import tensorflow as tf

from trainer import files
from trainer.dataset.schema import join
from trainer.errors import InputError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Results:
    """A finished training job's output.

    Attributes:
        model: URI of the SavedModel.
        metrics: content of metrics.json.
        history: rows of history.csv, an epoch each; what is a number is one.
    """

    model: str
    metrics: dict[str, Any]
    history: list[dict[str, Any]]

    def scalars(self) -> dict[str, float]:
        """The numbers of metrics.json; one in a section is named `section_name`."""
        flat: dict[str, Any] = {}
        for name, value in self.metrics.items():
            inner = value if isinstance(value, dict) else {"": value}
            flat.update({f"{name}_{key}".rstrip("_"): item for key, item in inner.items()})
        return {
            name: value
            for name, value in flat.items()
            if isinstance(value, (int, float)) and not isinstance(value, bool)
        }


def load(base_output_directory: str) -> Results:
    """Reads what a training job left in `base_output_directory`.

    Raises:
        InputError: the chief has not written metrics.json, which it does last of all.
    """
    path = join(base_output_directory, "metrics.json")
    metrics = files.read_json(path)
    if metrics is None:
        raise InputError(
            f"{path} is missing: the chief did not finish; look at its log for the reason"
        )
    try:
        with tf.io.gfile.GFile(join(base_output_directory, "history.csv")) as file:
            rows = list(csv.DictReader(io.StringIO(file.read())))
    except tf.errors.NotFoundError:
        rows = []
    return Results(
        model=join(base_output_directory, "model"),
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
