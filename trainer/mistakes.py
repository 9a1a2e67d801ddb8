"""The examples that a model is most confidently wrong about, with their pictures."""

import dataclasses
import io

import numpy as np
import PIL.Image
import tensorflow as tf

from trainer.dataset.schema import Dataset, Feature


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mistake:
    """A wrongly classified example.

    Attributes:
        key: where it came from.
        label, predicted: class names.
        confidence: probability of the predicted class.
        label_probability: that of the right one.
        picture: uint8 [height, width, channels]; None where examples have no image.
    """

    key: str
    label: str
    predicted: str
    confidence: float
    label_probability: float
    picture: np.ndarray | None = dataclasses.field(default=None, compare=False, repr=False)


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
    pictures = _pictures(dataset, split, positions)
    return [
        Mistake(
            key=keys[position].decode(errors="replace"),
            label=dataset.classes[labels[position]],
            predicted=dataset.classes[predicted[position]],
            confidence=float(probabilities[position, predicted[position]]),
            label_probability=float(probabilities[position, labels[position]]),
            picture=pictures.get(position),
        )
        for position in positions
    ]


def _pictures(dataset: Dataset, split: str, positions: list[int]) -> dict[int, np.ndarray]:
    """The images at these places of a split, read again from the shards that hold them."""
    image = next((feature for feature in dataset.features if feature.kind == "image"), None)
    if image is None:
        return {}
    pictures, first = {}, 0
    for shard in dataset.splits[split].shards:
        end = first + shard.examples
        wanted = {position - first for position in positions if first <= position < end}
        if wanted:
            records = tf.data.TFRecordDataset(dataset.shard_uri(shard)).take(max(wanted) + 1)
            for index, record in enumerate(records):
                if index in wanted:
                    pictures[first + index] = _decode(record.numpy(), image)
        first = end
    return pictures


def _decode(record: bytes, image: Feature) -> np.ndarray:
    """The image of a serialized example, uint8 [height, width, channels]."""
    example = tf.train.Example.FromString(record)
    content = example.features.feature[image.name].bytes_list.value[0]
    if image.encoding == "raw":
        return np.frombuffer(content, np.uint8).reshape(image.shape)
    with PIL.Image.open(io.BytesIO(content)) as picture:
        pixels = np.asarray(picture.convert("L" if image.shape[-1] == 1 else "RGB"))
    return pixels.reshape(*pixels.shape[:2], -1)
