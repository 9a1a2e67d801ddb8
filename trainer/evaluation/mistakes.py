"""The examples that a model is most confidently wrong about, with their pictures or rows."""

import dataclasses
import io
from typing import NamedTuple

import numpy as np
import PIL.Image
import tensorflow as tf

from trainer.data.schema import Dataset, Feature
from trainer.data.tables.inputs import columns_of, row_values
from trainer.data.write import records


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mistake:
    """A wrongly classified example.

    Attributes:
        key: where it came from.
        label, predicted: class names.
        confidence: probability of the predicted class.
        label_probability: that of the right one.
        picture: uint8 [height, width, channels]; None where examples have no image.
        row: values of a table's columns as text, by name; empty where examples are no rows.
    """

    key: str
    label: str
    predicted: str
    confidence: float
    label_probability: float
    picture: np.ndarray | None = dataclasses.field(default=None, compare=False, repr=False)
    row: dict[str, str] = dataclasses.field(default_factory=dict)


class _Candidate(NamedTuple):
    confidence: float
    label: int
    predicted: int
    label_probability: float
    record: bytes


class MostConfident:
    """Keeps the most confident mistakes of a split, which is given batch by batch."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._kept: list[_Candidate] = []

    def add(self, records: tf.Tensor, labels: np.ndarray, probabilities: np.ndarray) -> None:
        """Takes the next batch of the split.

        Args:
            records: serialized tf.train.Example, string [n].
            labels: int64 [n].
            probabilities: float32 [n, classes].
        """
        predicted, confidence = probabilities.argmax(axis=1), probabilities.max(axis=1)
        wrong = predicted != labels
        if len(self._kept) == self._count:
            wrong &= confidence > self._kept[-1].confidence
        places = np.flatnonzero(wrong)
        places = places[np.argsort(-confidence[places], kind="stable")[: self._count]]
        if not len(places):
            return
        for place, record in zip(places, tf.gather(records, places).numpy(), strict=True):
            label = labels[place]
            self._kept.append(
                _Candidate(
                    confidence=float(confidence[place]),
                    label=int(label),
                    predicted=int(predicted[place]),
                    label_probability=float(probabilities[place, label]),
                    record=record,
                )
            )
        self._kept.sort(key=lambda candidate: -candidate.confidence)
        del self._kept[self._count :]

    def mistakes(self, dataset: Dataset) -> list[Mistake]:
        """Return the mistakes, most confident first, equal ones in the order of the split."""
        image = next((feature for feature in dataset.features if feature.kind == "image"), None)
        return [
            Mistake(
                key=_key(candidate.record, dataset),
                label=dataset.classes[candidate.label],
                predicted=dataset.classes[candidate.predicted],
                confidence=candidate.confidence,
                label_probability=candidate.label_probability,
                picture=_decode(candidate.record, image) if image else None,
                row=_row(candidate.record, dataset) if dataset.is_table else {},
            )
            for candidate in self._kept
        ]


def _key(record: bytes, dataset: Dataset) -> str:
    """Return the key of a serialized example; "" where it has none."""
    name = next((feature.name for feature in dataset.features if feature.kind == "key"), "")
    features = tf.train.Example.FromString(record).features.feature
    values = features[name].bytes_list.value if name in features else []
    return values[0].decode(errors="replace") if values else ""


def _row(record: bytes, dataset: Dataset) -> dict[str, str]:
    """Return the values of a serialized example's columns, as a person writes them; "": missing."""
    values = row_values(records.parse(record), columns_of(dataset))
    return {name: "" if value is None else _written(value) for name, value in values.items()}


def _written(value: bytes | float | int) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else f"{value:.7g}"


def _decode(record: bytes, image: Feature) -> np.ndarray:
    """Return the image of a serialized example, uint8 [height, width, channels]."""
    example = tf.train.Example.FromString(record)
    content = example.features.feature[image.name].bytes_list.value[0]
    if image.encoding == "raw":
        return np.frombuffer(content, np.uint8).reshape(image.shape)
    with PIL.Image.open(io.BytesIO(content)) as picture:
        pixels = np.asarray(picture.convert("L" if image.shape[-1] == 1 else "RGB"))
    return pixels.reshape(*pixels.shape[:2], -1)
