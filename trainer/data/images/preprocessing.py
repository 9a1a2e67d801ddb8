"""Convert encoded images to the pixels of the records, in a SavedModel's graph.

The pixels are those of trainer/data/images/pixels.py and resizing.py, within one level of 255: a
JPEG is scaled while it is decoded; a PNG is laid over white, halved by taking means of 2x2 pixels
and then sampled. Other images are refused (image_headers.py).
"""

from typing import Any

import tensorflow as tf

from trainer.data.images import image_headers
from trainer.data.images.resizing import SINGLE_AXIS_FACTOR

_RATIOS = (1, 2, 4, 8)
"""Factors by which libjpeg can downscale an image while it decodes."""


def decode_and_resize(encoded: tf.Tensor, shape: list[int], method: str) -> tf.Tensor:
    """Decode a JPEG or PNG and resize it to `shape` with `method`, as uint8; fail for others."""
    *target, channels = shape
    encoded = image_headers.check(encoded)
    image = tf.cond(
        tf.io.is_jpeg(encoded),
        lambda: _decode_jpeg(encoded, shape, scaled=method != "nearest"),
        lambda: _convert(_decode_png(encoded), channels),
    )
    image = tf.ensure_shape(image, [None, None, channels])
    if method == "bilinear":
        return _to_levels(tf.image.resize(_halve(image, target), target))
    # By axis, like Pillow, which rounds and clips the result of the first.
    for size in (_first_size(image, target), target):
        if method == "nearest":
            image = _sample(image, size)
        elif method == "area":
            image = _average(image, size)
        else:
            image = _to_levels(tf.image.resize(image, size, method=method, antialias=True))
    return tf.ensure_shape(image, shape)


def _to_levels(pixels: tf.Tensor) -> tf.Tensor:
    """Round and clip pixels (float32) to uint8."""
    return tf.cast(tf.clip_by_value(tf.round(pixels), 0, 255), tf.uint8)


def _convert(image: tf.Tensor, channels: int) -> tf.Tensor:
    """Convert an image from RGB to `channels`, bit for bit like Pillow."""
    if channels == 3:
        return image
    weights = tf.constant([19595, 38470, 7471])  # 0.299, 0.587 and 0.114, in units of 2^-16.
    total = tf.reduce_sum(tf.cast(image, tf.int32) * weights, axis=-1, keepdims=True)
    return tf.cast(tf.bitwise.right_shift(total + (1 << 15), 16), tf.uint8)


def _decode_png(encoded: tf.Tensor) -> tf.Tensor:
    """Decode a PNG to RGB, a channel of alpha over white, bit for bit like Pillow."""
    color_type = tf.io.decode_raw(tf.strings.substr(encoded, 25, 1), tf.uint8, fixed_length=1)[0]
    has_alpha = (color_type == 4) | (color_type == 6)
    # In four channels, TensorFlow misreads pixels of fewer than 8 bits.
    return tf.cond(
        has_alpha,
        lambda: _lay_over_white(tf.io.decode_png(encoded, channels=4)),
        lambda: tf.io.decode_png(encoded, channels=3),
    )


def _lay_over_white(pixels: tf.Tensor) -> tf.Tensor:
    colors, alpha = tf.split(tf.cast(pixels, tf.uint16), [3, 1], axis=-1)
    total = colors * alpha + 255 * (255 - alpha) + 128
    divided = tf.bitwise.right_shift(tf.bitwise.right_shift(total, 8) + total, 8)
    return tf.cast(divided, tf.uint8)


def _decode_jpeg(encoded: tf.Tensor, shape: list[int], *, scaled: bool) -> tf.Tensor:
    """Decode a JPEG to uint8; if `scaled`, downscale it to no less than `shape`, as Pillow does."""
    *target, channels = shape

    def decode(ratio: int, channels: int = channels) -> tf.Tensor:
        # Accurate, as in Pillow; TensorFlow's default is faster, but off by one level.
        return tf.io.decode_jpeg(encoded, channels, ratio=ratio, dct_method="INTEGER_ACCURATE")

    if not scaled:
        return _convert(decode(1, 3), channels)
    factor = tf.reduce_min(tf.io.extract_jpeg_shape(encoded)[:2] // target)
    branch = tf.reduce_sum(tf.cast(factor >= _RATIOS[1:], tf.int32))
    return tf.switch_case(branch, [lambda ratio=ratio: decode(ratio) for ratio in _RATIOS])


def _first_size(image: tf.Tensor, target: list[int]) -> list[Any]:
    """Return the size after Pillow has resized one axis, which costs less than the other first."""
    height, width = tf.unstack(tf.shape(image)[:2])
    shrinkage = height - target[0]
    is_height = (shrinkage > 0) & (shrinkage > 2 * (width - target[1]))
    return [tf.where(is_height, target[0], height), tf.where(is_height, width, target[1])]


def _sample(image: tf.Tensor, target: list[Any]) -> tf.Tensor:
    """Return the pixels at the centers of those of the `target` size, with Pillow's rounding."""
    for axis, size in enumerate(target):
        step = _divide(tf.shape(image)[axis], size)
        centers = tf.cumsum(tf.concat([[step / 2], tf.fill([size - 1], step)], 0))
        image = tf.gather(image, tf.cast(centers, tf.int32), axis=axis)
    return image


def _average(image: tf.Tensor, target: list[Any]) -> tf.Tensor:
    """Return the means (uint8) of the pixels whose centers are in each pixel of the `target` size.

    Like Pillow's box filter, and unlike tf.image's area, which weighs pixels by their overlap.
    """
    for axis, size in enumerate(target):
        length = tf.shape(image)[axis]
        start, stop = _find_boxes(length, size)
        before = [[1, 0] if index == axis else [0, 0] for index in range(3)]
        sums = tf.cumsum(tf.pad(tf.cast(image, tf.int32), before), axis=axis)
        totals = tf.gather(sums, stop, axis=axis) - tf.gather(sums, start, axis=axis)
        counts = tf.reshape(stop - start, [-1 if index == axis else 1 for index in range(3)])
        # Pillow multiplies by 1 / counts, in units of 2^-22.
        weights = tf.cast(0.5 + (1 << 22) / counts, tf.int32)
        image = tf.cast(tf.bitwise.right_shift(totals * weights + (1 << 21), 22), tf.uint8)
    return image


def _divide(length: tf.Tensor, size: Any) -> tf.Tensor:
    """Return length / size as float64, exactly rounded."""
    # Not a constant, for TensorFlow would multiply by its reciprocal, which is rounded.
    divisor = tf.minimum(size, length + size)
    return tf.cast(length, tf.float64) / tf.cast(divisor, tf.float64)


def _find_boxes(length: tf.Tensor, size: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the start and the end, int32 [size], of each box of pixels, with Pillow's rounding."""
    scale = _divide(length, size)
    centers = (tf.range(size, dtype=tf.float64) + 0.5) * scale
    factor = tf.maximum(scale, 1.0)
    start = tf.maximum(tf.cast(centers - 0.5 * factor + 0.5, tf.int32), 0)
    stop = tf.minimum(tf.cast(centers + 0.5 * factor + 0.5, tf.int32), length)

    def place(pixels: tf.Tensor) -> tf.Tensor:
        return (tf.cast(pixels, tf.float64) - centers + 0.5) * (1.0 / factor)

    # Where a pixel's center is on a bound, rounding decides whether it is inside.
    start += tf.cast(place(start) <= -0.5, tf.int32)
    return start, stop - tf.cast(place(stop - 1) > 0.5, tf.int32)


def _halve(image: tf.Tensor, target: list[int]) -> tf.Tensor:
    """Halve towards `target` (height, width), bit for bit like trainer.data.images.resizing."""

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
