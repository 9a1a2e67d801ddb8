"""The examples that a model is most confidently wrong about, with their pictures or rows."""

import dataclasses
import io

import numpy as np
import PIL.Image
import tensorflow as tf

from trainer.dataset.schema import Dataset, Feature
from trainer.dataset.tabular.columns import DTYPES


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


def most_confident(
    dataset: Dataset,
    split: str,
    labels: np.ndarray,
    probabilities: np.ndarray,
    keys: list[bytes],
    count: int,
) -> list[Mistake]:
    """At most `count` mistakes, most confident first, equal ones in the records' order.

    Args:
        labels: int64 [n], in the order of the split's records.
        probabilities: float32 [n, classes].
        keys: n of them.
    """
    predicted = probabilities.argmax(axis=1)
    wrong = np.flatnonzero(predicted != labels)
    order = np.argsort(-probabilities[wrong, predicted[wrong]], kind="stable")
    positions = wrong[order[:count]].tolist()
    records = _records(dataset, split, positions)
    image = next((feature for feature in dataset.features if feature.kind == "image"), None)
    return [
        Mistake(
            key=keys[position].decode(errors="replace"),
            label=dataset.classes[labels[position]],
            predicted=dataset.classes[predicted[position]],
            confidence=float(probabilities[position, predicted[position]]),
            label_probability=float(probabilities[position, labels[position]]),
            picture=_decode(records[position], image) if image else None,
            row=_row(records[position], dataset) if dataset.is_table else {},
        )
        for position in positions
    ]


def _records(dataset: Dataset, split: str, positions: list[int]) -> dict[int, bytes]:
    """The records at these places of a split, read again from the shards that hold them."""
    found, first = {}, 0
    for shard in dataset.splits[split].shards:
        end = first + shard.examples
        wanted = {position - first for position in positions if first <= position < end}
        if wanted:
            records = tf.data.TFRecordDataset(dataset.shard_uri(shard)).take(max(wanted) + 1)
            for index, record in enumerate(records):
                if index in wanted:
                    found[first + index] = record.numpy()
        first = end
    return found


def _row(record: bytes, dataset: Dataset) -> dict[str, str]:
    """The values of a serialized example's columns, as a person writes them; "" is missing."""
    features = tf.train.Example.FromString(record).features.feature
    row = {}
    for column in dataset.features:
        if column.kind not in DTYPES:
            continue
        values = features.get(column.name, None)
        text = ""
        if values is not None and values.bytes_list.value:
            text = values.bytes_list.value[0].decode(errors="replace")
        elif values is not None:
            numbers = [*values.float_list.value, *values.int64_list.value]
            text = f"{numbers[0]:.7g}" if numbers else ""
        row[column.name] = text
    return row


def _decode(record: bytes, image: Feature) -> np.ndarray:
    """The image of a serialized example, uint8 [height, width, channels]."""
    example = tf.train.Example.FromString(record)
    content = example.features.feature[image.name].bytes_list.value[0]
    if image.encoding == "raw":
        return np.frombuffer(content, np.uint8).reshape(image.shape)
    with PIL.Image.open(io.BytesIO(content)) as picture:
        pixels = np.asarray(picture.convert("L" if image.shape[-1] == 1 else "RGB"))
    return pixels.reshape(*pixels.shape[:2], -1)
