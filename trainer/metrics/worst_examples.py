"""Collect the examples that a model answers worst, with their images or rows."""

import dataclasses
import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import PIL.Image
import tensorflow as tf

from trainer.data import records
from trainer.data.schema import Dataset, Feature
from trainer.data.tables.columns import list_columns
from trainer.data.tables.inputs import row_values

SHOWN = 500
"""Number of characters of a value that the report shows."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorstExample:
    """An example that a model answers badly."""

    key: str  # key in its source
    figures: dict[str, Any]  # its label, its answer, ..., as they were added
    # Pixels, uint8 [height, width, channels]; None for a table.
    picture: np.ndarray | None = dataclasses.field(default=None, compare=False, repr=False)
    # Values of a table's columns as text, by name; empty for images.
    row: dict[str, str] = dataclasses.field(default_factory=dict)


class WorstExamples:
    """The `count` worst examples of a split, collected batch by batch."""

    def __init__(self, count: int) -> None:
        self._count = count
        # How bad each is, its figures, its record.
        self._kept: list[tuple[float, dict[str, Any], bytes]] = []

    def add(
        self, records: tf.Tensor, badness: np.ndarray, figures: Mapping[str, np.ndarray]
    ) -> None:
        """Add a batch of serialized tf.train.Examples [n].

        Args:
            badness: float [n]; examples with 0 or less are not bad.
            figures: arrays [n], by name.
        """
        bad = badness > (self._kept[-1][0] if len(self._kept) == self._count else 0)
        rows = np.flatnonzero(bad)
        rows = rows[np.argsort(-badness[rows], kind="stable")[: self._count]]
        named = [{name: values[row].item() for name, values in figures.items()} for row in rows]
        chosen = tf.gather(records, rows).numpy()
        self._kept += zip(badness[rows].tolist(), named, chosen, strict=True)
        self._kept.sort(key=lambda kept: -kept[0])
        del self._kept[self._count :]

    def list_examples(self, dataset: Dataset) -> list[WorstExample]:
        """Return the examples, the worst first; ties are in stored order."""
        kinds = {feature.kind: feature for feature in dataset.features}
        listed = []
        for _, figures, record in self._kept:
            example = records.parse(record)
            row = row_values(example, list_columns(dataset))
            listed.append(
                WorstExample(
                    key=_format_value(example[kinds["key"].name][0]),
                    figures=figures,
                    picture=_decode(example, kinds["image"]) if "image" in kinds else None,
                    row={name: _shorten(_format_value(value)) for name, value in row.items()},
                )
            )
        return listed


def _format_value(value: bytes | float | int | None) -> str:
    """Format a value for the report; "" for a missing one."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return "" if value is None else f"{value:.7g}"


def _shorten(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def _decode(example: dict[str, list[Any]], image: Feature) -> np.ndarray:
    """Decode the image of an example, uint8 [height, width, channels]."""
    content = example[image.name][0]
    if image.encoding == "raw":
        return np.frombuffer(content, np.uint8).reshape(image.shape)
    with PIL.Image.open(io.BytesIO(content)) as picture:
        pixels = np.asarray(picture.convert("L" if image.shape[-1] == 1 else "RGB"))
    return pixels.reshape(*pixels.shape[:2], -1)
