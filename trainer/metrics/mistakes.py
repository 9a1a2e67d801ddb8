"""Collect the most confident mistakes of a model, with their images or rows."""

import dataclasses
import io
from typing import Any

import numpy as np
import PIL.Image
import tensorflow as tf

from trainer.data import records
from trainer.data.schema import Dataset, Feature
from trainer.data.tables.columns import list_columns
from trainer.data.tables.inputs import row_values


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mistake:
    """A wrongly classified example."""

    key: str  # key in its source
    label: str
    predicted: str
    confidence: float  # probability of the predicted class
    label_probability: float  # probability of the true class
    # Pixels, uint8 [height, width, channels]; None for a table.
    picture: np.ndarray | None = dataclasses.field(default=None, compare=False, repr=False)
    # Values of a table's columns as text, by name; empty for images.
    row: dict[str, str] = dataclasses.field(default_factory=dict)


class MostConfident:
    """The `count` most confident mistakes of a split, collected batch by batch."""

    def __init__(self, count: int) -> None:
        self._count = count
        # Confidence, label, predicted class, probability of the label, record.
        self._kept: list[tuple[float, int, int, float, bytes]] = []

    def add(self, records: tf.Tensor, labels: np.ndarray, probabilities: np.ndarray) -> None:
        """Add a batch: serialized tf.train.Examples [n], int64 [n], float32 [n, classes]."""
        predicted, confidence = probabilities.argmax(axis=1), probabilities.max(axis=1)
        wrong = predicted != labels
        if len(self._kept) == self._count:
            wrong &= confidence > self._kept[-1][0]
        rows = np.flatnonzero(wrong)
        rows = rows[np.argsort(-confidence[rows], kind="stable")[: self._count]]
        label_probability = probabilities[rows, labels[rows]]
        figures = (confidence[rows], labels[rows], predicted[rows], label_probability)
        columns = [*(values.tolist() for values in figures), tf.gather(records, rows).numpy()]
        self._kept += zip(*columns, strict=True)
        self._kept.sort(key=lambda kept: -kept[0])
        del self._kept[self._count :]

    def list_mistakes(self, dataset: Dataset) -> list[Mistake]:
        """Return the mistakes, the most confident first; ties are in stored order."""
        kinds = {feature.kind: feature for feature in dataset.features}
        mistakes = []
        for confidence, label, predicted, label_probability, record in self._kept:
            example = records.parse(record)
            row = row_values(example, list_columns(dataset))
            mistakes.append(
                Mistake(
                    key=_format_value(example[kinds["key"].name][0]),
                    label=dataset.classes[label],
                    predicted=dataset.classes[predicted],
                    confidence=confidence,
                    label_probability=label_probability,
                    picture=_decode(example, kinds["image"]) if "image" in kinds else None,
                    row={name: _format_value(value) for name, value in row.items()},
                )
            )
        return mistakes


def _format_value(value: bytes | float | int | None) -> str:
    """Format a value for the report; "" for a missing one."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return "" if value is None else f"{value:.7g}"


def _decode(example: dict[str, list[Any]], image: Feature) -> np.ndarray:
    """Decode the image of an example, uint8 [height, width, channels]."""
    content = example[image.name][0]
    if image.encoding == "raw":
        return np.frombuffer(content, np.uint8).reshape(image.shape)
    with PIL.Image.open(io.BytesIO(content)) as picture:
        pixels = np.asarray(picture.convert("L" if image.shape[-1] == 1 else "RGB"))
    return pixels.reshape(*pixels.shape[:2], -1)
