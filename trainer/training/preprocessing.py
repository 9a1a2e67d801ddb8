"""Convert encoded images to the pixels of the records, in a SavedModel's graph.

The pixels are those of trainer/data/write/pixels.py and resizing.py, within one level of 255: a
JPEG is scaled while it is decoded, other images are halved by taking means of 2x2 pixels and then
sampled. EXIF orientation and alpha are ignored, because TensorFlow supports neither.
"""

import tensorflow as tf

from trainer.data.write.resizing import SINGLE_AXIS_FACTOR

_RATIOS = (1, 2, 4, 8)
"""Factors by which libjpeg can downscale an image while it decodes."""


def decode_and_resize(encoded: tf.Tensor, shape: list[int], method: str) -> tf.Tensor:
    """Decode an image (JPEG, PNG, BMP or GIF) and resize it to `shape` with `method`, as uint8."""
    *target, channels = shape
    image = tf.cond(
        tf.io.is_jpeg(encoded),
        lambda: _decode_jpeg(encoded, shape, scaled=method != "nearest"),
        lambda: tf.io.decode_image(encoded, channels=channels, expand_animations=False),
    )
    image = tf.ensure_shape(image, [None, None, channels])
    if method == "bilinear":
        resized = tf.image.resize(_halve(image, target), target)
    else:
        resized = tf.image.resize(image, target, method=method, antialias=True)
    return tf.cast(tf.clip_by_value(tf.round(resized), 0, 255), tf.uint8)


def _decode_jpeg(encoded: tf.Tensor, shape: list[int], *, scaled: bool) -> tf.Tensor:
    """Decode a JPEG to uint8; if `scaled`, downscale it to no less than `shape`, as Pillow does."""
    *target, channels = shape

    def decode(ratio: int) -> tf.Tensor:
        # Accurate, as in Pillow; TensorFlow's default is faster, but off by one level.
        return tf.io.decode_jpeg(encoded, channels, ratio=ratio, dct_method="INTEGER_ACCURATE")

    if not scaled:
        return decode(1)
    factor = tf.reduce_min(tf.io.extract_jpeg_shape(encoded)[:2] // target)
    branch = tf.reduce_sum(tf.cast(factor >= _RATIOS[1:], tf.int32))
    return tf.switch_case(branch, [lambda ratio=ratio: decode(ratio) for ratio in _RATIOS])


def _halve(image: tf.Tensor, target: list[int]) -> tf.Tensor:
    """Halve towards `target` (height, width), bit for bit like trainer.data.write.resizing."""

    def factors(image: tf.Tensor) -> tf.Tensor:
        size = tf.shape(image)[:2]
        doubled = 2 * tf.constant(target)
        minimum = tf.where(
            tf.reduce_all(size >= doubled), doubled, SINGLE_AXIS_FACTOR * tf.constant(target)
        )
        return tf.where(size >= minimum, 2, 1)

    def halve(image: tf.Tensor) -> tf.Tensor:
        rows, columns = tf.unstack(factors(image))
        # An odd last row or column is a separate block.
        padding = [[0, -tf.shape(image)[0] % rows], [0, -tf.shape(image)[1] % columns], [0, 0]]
        padded = tf.pad(image, padding, "SYMMETRIC")
        size = tf.shape(padded)
        blocks = [size[0] // rows, rows, size[1] // columns, columns, image.shape[-1]]
        return tf.floor(tf.reduce_mean(tf.reshape(padded, blocks), axis=[1, 3]) + 0.5)

    return tf.while_loop(
        lambda image: tf.reduce_any(factors(image) == 2),
        lambda image: [halve(image)],
        [tf.cast(image, tf.float32)],
        shape_invariants=[tf.TensorShape([None, None, image.shape[-1]])],
    )[0]
