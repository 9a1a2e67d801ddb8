"""Inputs of a model, as records hold them: a class for each kind of examples.

Training and evaluation read it from batches of records, clients send it to a SavedModel.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from trainer.data.images import preprocessing
from trainer.data.schema import IMAGES, Dataset, Feature
from trainer.data.tables import inputs
from trainer.data.tables.columns import argument_names, list_columns

Function = Callable[[Any], Any]

MAX_JPEGS = 32
"""Largest number of JPEGs that one call decodes."""


class ImageInputs:
    """Images, uint8 [n, height, width, channels], unscaled."""

    scored_at_once = 256
    """Number of examples in a batch of the evaluation."""
    max_piece: int | None
    """Largest number of examples that one call decodes; None: as many as there are."""

    def __init__(self, dataset: Dataset) -> None:
        self._image, self._label = dataset.feature("image"), dataset.feature("label")
        self.max_piece = MAX_JPEGS if self._image.encoding == "jpeg" else None
        self._resize_method = dataset.creation.get("options", {}).get("resize_method", "bilinear")

    def parse(self, serialized: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Decode serialized tf.Examples (string [n]) to inputs and labels [n]."""
        features = tf.io.parse_example(
            serialized,
            {
                self._image.name: tf.io.FixedLenFeature([], tf.string),
                self._label.name: tf.io.FixedLenFeature(self._label.shape, self._label.dtype),
            },
        )
        return decode_images(features[self._image.name], self._image), features[self._label.name]

    def symbolic(self) -> Any:
        """Return the inputs as Keras tensors without values."""
        import keras

        return keras.KerasTensor((None, *self._image.shape), dtype=self._image.dtype)

    def signatures(self, predict: Function) -> dict[str, tuple[Function, Any]]:
        """Return the functions of a SavedModel, and what they take, from that of its network."""
        image = self._image

        def predict_bytes(encoded: tf.Tensor) -> Any:
            images = tf.map_fn(
                lambda file: preprocessing.decode_and_resize(
                    file, image.shape, self._resize_method
                ),
                encoded,
                fn_output_signature=tf.TensorSpec(image.shape, tf.uint8),
            )
            return predict(images)

        def predict_examples(examples: tf.Tensor) -> Any:
            feature = {image.name: tf.io.FixedLenFeature([], tf.string)}
            stored = tf.io.parse_example(examples, feature)[image.name]
            return predict(decode_images(stored, image))

        pixels = tf.TensorSpec([None, *image.shape], tf.uint8, name=image.name)
        return {
            "serving_default": (predict, pixels),
            "serving_bytes": (predict_bytes, _string_spec("image_bytes")),
            "serving_examples": (predict_examples, _string_spec("examples")),
        }


class RowInputs:
    """The columns of a table as `inputs.Encoder` encodes them; methods as in ImageInputs."""

    scored_at_once = 4096
    max_piece = None

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def parse(self, serialized: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        key = repr(self._dataset.features)
        if key not in _parsers:
            _parsers[key] = self._build_parser()
        return _parsers[key](serialized)

    def symbolic(self) -> Any:
        import keras

        numbers = inputs.number_count(self._dataset)
        ids = len(inputs.list_categories(self._dataset))
        symbolic = {
            "numbers": keras.KerasTensor((None, numbers), dtype="float32"),
            "ids": keras.KerasTensor((None, ids), dtype="int32"),
        }
        if texts := inputs.list_texts(self._dataset):
            width = sum(text.width for text in texts)
            symbolic["words"] = keras.KerasTensor((None, width), dtype="int32")
        return symbolic

    def signatures(self, predict: Function) -> dict[str, tuple[Function, Any]]:
        dataset, columns = self._dataset, list_columns(self._dataset)
        encode = inputs.Encoder(dataset)
        names = argument_names(column.name for column in columns)

        def predict_raw(raw: dict[str, tf.Tensor]) -> Any:
            return predict(encode(inputs.clean_columns(raw, dataset)))

        def predict_columns(arguments: dict[str, tf.Tensor]) -> Any:
            return predict_raw({name: arguments[names[name]] for name in names})

        def predict_examples(examples: tf.Tensor) -> Any:
            return predict_raw(inputs.parse_columns(examples, dataset))

        arguments = {
            name: tf.TensorSpec([None], column.dtype, name=name)
            for name, column in zip(names.values(), columns, strict=True)
        }
        return {
            "serving_default": (predict_columns, arguments),
            "serving_examples": (predict_examples, _string_spec("examples")),
        }

    def _build_parser(self) -> Any:
        encode = inputs.Encoder(self._dataset)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
        def parse(serialized: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
            columns, labels = inputs.parse_rows(serialized, self._dataset)
            return encode(columns), labels

        return parse


_parsers: dict[str, Any] = {}
"""Parsers of rows by features: without this cache, each epoch would trace them again."""


def open_inputs(dataset: Dataset) -> ImageInputs | RowInputs:
    return ImageInputs(dataset) if dataset.contents == IMAGES else RowInputs(dataset)


def _string_spec(name: str) -> tf.TensorSpec:
    return tf.TensorSpec([None], tf.string, name=name)


def weigh(dataset: Dataset, serialized: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Return weights of examples in a batch, [n], times those that the records have."""
    feature = dataset.weight
    if not feature:
        return weights
    # Their mean is 1, so that the learning rate needs no change.
    return weights * parse_weights(serialized, feature) / feature.statistics["mean"]


def parse_weights(serialized: tf.Tensor, feature: Feature) -> tf.Tensor:
    """Return the weights, float32 [n], of serialized examples that have them in `feature`."""
    description = {feature.name: tf.io.FixedLenFeature([], tf.float32)}
    return tf.io.parse_example(serialized, description)[feature.name]


def decode_images(stored: tf.Tensor, image: Feature) -> tf.Tensor:
    """Decode stored image bytes (string [n]) to uint8 [n, height, width, channels]."""
    if image.encoding == "raw":
        size = int(np.prod(image.shape))
        flat = tf.io.decode_raw(stored, tf.uint8, fixed_length=size)
        return tf.reshape(flat, [-1, *image.shape])

    def decode(jpeg: tf.Tensor) -> tf.Tensor:
        return tf.io.decode_jpeg(jpeg, channels=image.shape[-1])

    count = stored.shape[0]
    if count and count <= MAX_JPEGS:  # One operation per image avoids the cost of a loop.
        images = tf.stack([decode(jpeg) for jpeg in tf.unstack(stored)])
        return tf.ensure_shape(images, [count, *image.shape])
    return tf.map_fn(decode, stored, fn_output_signature=tf.TensorSpec(image.shape, tf.uint8))
