"""A trained Keras model to a SavedModel that takes what the world has: unscaled inputs.

Three signatures, each from a batch to `probabilities` (float32 [n, classes]) and `label`
(string [n], the most probable class):

    serving_default    image: uint8 [n, height, width, channels]
    serving_bytes      image_bytes: string [n], encoded images (JPEG, PNG, BMP, GIF) of any size
    serving_examples   examples: string [n], serialized tf.Examples as in the records
"""

import keras
import tensorflow as tf

from trainer.dataset import reader
from trainer.dataset.schema import Dataset


def export(model: keras.Model, dataset: Dataset, uri: str) -> None:
    """Writes `model` (uint8 images to logits) as a SavedModel to folder `uri`."""
    image = dataset.feature("image")
    height, width, channels = image.shape
    classes = tf.constant(dataset.classes)
    method = dataset.creation.get("options", {}).get("resize_method", "bilinear")

    def predict(images: tf.Tensor) -> dict[str, tf.Tensor]:
        probabilities = tf.nn.softmax(tf.cast(model(images, training=False), tf.float32))
        best = tf.argmax(probabilities, axis=-1)
        return {"probabilities": probabilities, "label": tf.gather(classes, best)}

    def read(encoded: tf.Tensor) -> tf.Tensor:
        decoded = tf.io.decode_image(encoded, channels=channels, expand_animations=False)
        resized = tf.image.resize(decoded, [height, width], method=method, antialias=True)
        return tf.cast(tf.clip_by_value(tf.round(resized), 0, 255), tf.uint8)

    def predict_bytes(encoded: tf.Tensor) -> dict[str, tf.Tensor]:
        pixels = tf.TensorSpec([height, width, channels], tf.uint8)
        return predict(tf.map_fn(read, encoded, fn_output_signature=pixels))

    def predict_examples(examples: tf.Tensor) -> dict[str, tf.Tensor]:
        features = tf.io.parse_example(examples, {image.name: tf.io.FixedLenFeature([], tf.string)})
        return predict(reader.decode_images(features[image.name], image))

    pixels = tf.TensorSpec([None, height, width, channels], tf.uint8, name=image.name)
    archive = keras.export.ExportArchive()
    archive.track(model)
    archive.add_endpoint("serving_default", predict, [pixels])
    archive.add_endpoint(
        "serving_bytes", predict_bytes, [tf.TensorSpec([None], tf.string, name="image_bytes")]
    )
    archive.add_endpoint(
        "serving_examples", predict_examples, [tf.TensorSpec([None], tf.string, name="examples")]
    )
    archive.write_out(uri, verbose=False)
