"""Encoded images to the pixels that records hold, in a SavedModel's graph.

What trainer/data/write/pixels.py and resizing.py do on a CPU, to one level of 255: a JPEG is
scaled while it is decoded, the rest halved by means of 2x2 pixels and then sampled. But TensorFlow
knows neither EXIF orientation nor alpha: images are taken as they lie, and without alpha.
"""

import tensorflow as tf

from trainer.data.write.resizing import ALONE

_RATIOS = (1, 2, 4, 8)
"""By what libjpeg can scale an image down while it decodes."""


def pixels(encoded: tf.Tensor, shape: list[int], method: str) -> tf.Tensor:
    """Return an encoded image (string []; JPEG, PNG, BMP or GIF) as uint8 `shape`.

    Args:
        shape: height, width and channels.
        method: of trainer.data.record_options.RESIZE_METHODS.
    """
    *target, channels = shape
    image = tf.cond(
        tf.io.is_jpeg(encoded),
        lambda: _decoded_jpeg(encoded, shape, scaled=method != "nearest"),
        lambda: tf.io.decode_image(encoded, channels=channels, expand_animations=False),
    )
    image = tf.ensure_shape(image, [None, None, channels])
    if method == "bilinear":
        resized = tf.image.resize(_halved(image, target), target)
    else:
        resized = tf.image.resize(image, target, method=method, antialias=True)
    return tf.cast(tf.clip_by_value(tf.round(resized), 0, 255), tf.uint8)


def _decoded_jpeg(encoded: tf.Tensor, shape: list[int], *, scaled: bool) -> tf.Tensor:
    """Decode a JPEG at its size, or `scaled` down to no less than `shape`, as Pillow's draft does.

    Returns uint8 [h, w, channels].
    """
    *target, channels = shape

    def decode(ratio: int) -> tf.Tensor:
        # Accurate, as Pillow does it; TensorFlow's default is fast, and off by a level.
        return tf.io.decode_jpeg(encoded, channels, ratio=ratio, dct_method="INTEGER_ACCURATE")

    if not scaled:
        return decode(1)
    factor = tf.reduce_min(tf.io.extract_jpeg_shape(encoded)[:2] // target)
    branch = tf.reduce_sum(tf.cast(factor >= _RATIOS[1:], tf.int32))
    return tf.switch_case(branch, [lambda ratio=ratio: decode(ratio) for ratio in _RATIOS])


def _halved(image: tf.Tensor, target: list[int]) -> tf.Tensor:
    """Halve as trainer.data.write.resizing does, to the bit, towards `target`, (height, width).

    Takes uint8 [h, w, channels], returns whole numbers as float32.
    """

    def factors(image: tf.Tensor) -> tf.Tensor:
        size = tf.shape(image)[:2]
        doubled = 2 * tf.constant(target)
        least = tf.where(tf.reduce_all(size >= doubled), doubled, ALONE * tf.constant(target))
        return tf.where(size >= least, 2, 1)

    def halve(image: tf.Tensor) -> tf.Tensor:
        rows, columns = tf.unstack(factors(image))
        # An odd last row or column is a block by itself.
        rest = [[0, -tf.shape(image)[0] % rows], [0, -tf.shape(image)[1] % columns], [0, 0]]
        even = tf.pad(image, rest, "SYMMETRIC")
        size = tf.shape(even)
        blocks = [size[0] // rows, rows, size[1] // columns, columns, image.shape[-1]]
        return tf.floor(tf.reduce_mean(tf.reshape(even, blocks), axis=[1, 3]) + 0.5)

    return tf.while_loop(
        lambda image: tf.reduce_any(factors(image) == 2),
        lambda image: [halve(image)],
        [tf.cast(image, tf.float32)],
        shape_invariants=[tf.TensorShape([None, None, image.shape[-1]])],
    )[0]
