"""Export a trained Keras model to a SavedModel with unscaled inputs.

Each signature maps a batch to `probabilities` (float32 [n, classes]) and `label` (string [n], the
most probable class):

    serving_default    image: uint8 [n, height, width, channels]; for a table, an argument for each
                       column, float32, int64 or string [n]; missing values are NaN, -1 or ""
    serving_bytes      image_bytes: string [n], encoded images, upright JPEGs and PNGs of any size
    serving_examples   examples: string [n], serialized tf.Examples as in the records
"""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from trainer.data import storage
from trainer.data.images import preprocessing
from trainer.data.read import decoding
from trainer.data.schema import EXTRA_ASSETS, FILE_NAME, Dataset, join
from trainer.data.tables.columns import argument_name, list_columns
from trainer.data.tables.inputs import Encoder, clean_columns, parse_columns
from trainer.exported import model_files


def export(model: keras.Model, dataset: Dataset, uri: str, *beside: str) -> None:
    """Write `model`, which maps inputs of `parse_examples` to logits, as a SavedModel to `uri`.

    Last come the digests of its files and of the files `beside` the folder; see `model_files`.
    """
    classes = tf.constant(dataset.classes)

    def predict(inputs: Any) -> dict[str, tf.Tensor]:
        probabilities = tf.nn.softmax(tf.cast(model(inputs, training=False), tf.float32))
        best = tf.argmax(probabilities, axis=-1)
        return {"probabilities": probabilities, "label": tf.gather(classes, best)}

    archive = keras.export.ExportArchive()
    archive.track(model)
    add = _add_table_signatures if dataset.is_table else _add_image_signatures
    add(archive, predict, dataset)
    archive.write_out(uri, verbose=False)
    # The model's dataset.json is in TensorFlow's folder for files that it does not read.
    folder = join(uri, EXTRA_ASSETS)
    storage.make_folder(folder)
    storage.write_atomically(join(folder, FILE_NAME), dataset.to_json().encode())
    model_files.write_digests(uri, *beside)


def _add_table_signatures(
    archive: keras.export.ExportArchive, predict: Callable[[Any], Any], dataset: Dataset
) -> None:
    encoder = Encoder(dataset)
    columns = list_columns(dataset)
    names = {argument_name(column.name): column.name for column in columns}

    def predict_raw(columns: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return predict(encoder(clean_columns(columns, dataset)))

    def predict_columns(columns: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return predict_raw({names[name]: values for name, values in columns.items()})

    def predict_examples(examples: tf.Tensor) -> dict[str, tf.Tensor]:
        return predict_raw(parse_columns(examples, dataset))

    raw = {
        name: tf.TensorSpec([None], column.dtype, name=name)
        for name, column in zip(names, columns, strict=True)
    }
    archive.add_endpoint("serving_default", predict_columns, [raw])
    archive.add_endpoint("serving_examples", predict_examples, [_string_spec("examples")])


def _string_spec(name: str) -> tf.TensorSpec:
    return tf.TensorSpec([None], tf.string, name=name)


def _add_image_signatures(
    archive: keras.export.ExportArchive, predict: Callable[[Any], Any], dataset: Dataset
) -> None:
    image = dataset.feature("image")
    method = dataset.creation.get("options", {}).get("resize_method", "bilinear")

    def predict_bytes(encoded: tf.Tensor) -> dict[str, tf.Tensor]:
        images = tf.map_fn(
            lambda image_bytes: preprocessing.decode_and_resize(image_bytes, image.shape, method),
            encoded,
            fn_output_signature=tf.TensorSpec(image.shape, tf.uint8),
        )
        return predict(images)

    def predict_examples(examples: tf.Tensor) -> dict[str, tf.Tensor]:
        features = tf.io.parse_example(examples, {image.name: tf.io.FixedLenFeature([], tf.string)})
        return predict(decoding.decode_images(features[image.name], image))

    pixels = tf.TensorSpec([None, *image.shape], tf.uint8, name=image.name)
    archive.add_endpoint("serving_default", predict, [pixels])
    archive.add_endpoint("serving_bytes", predict_bytes, [_string_spec("image_bytes")])
    archive.add_endpoint("serving_examples", predict_examples, [_string_spec("examples")])
