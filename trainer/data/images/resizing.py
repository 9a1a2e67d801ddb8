"""Resize images on a CPU; preprocessing.py does the same in a SavedModel's graph.

Bilinear resizing works like a GPU that samples a texture with mipmaps: the image is halved by
taking means of 2x2 pixels (`halvings`), then each pixel of the result is interpolated from four
neighbors, like `tf.image.resize(..., antialias=False)`. Filtering by the exact factor, as Pillow
does, takes five times as long. The other methods are Pillow's; all except `nearest` filter when
they shrink, like `tf.image.resize(..., antialias=True)`.
"""

import functools
from typing import Any

import numpy as np
from PIL import Image

SINGLE_AXIS_FACTOR = 3
"""The least factor by which an axis must shrink to be halved without the other axis. Between 2 and
3, bilinear sampling skips at most a third of the pixels, and halving would cost more."""

_FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "area": Image.Resampling.BOX,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos3": Image.Resampling.LANCZOS,
}


@functools.cache
def import_opencv() -> Any:
    """Return cv2, which only processes that write images import."""
    import cv2

    # Images are written in parallel processes, so the rows of an image need no threads.
    cv2.setNumThreads(1)
    return cv2


def resize(image: Image.Image, target: tuple[int, int], method: str) -> np.ndarray:
    """Resize an image in mode L or RGB to uint8 [height, width] or [height, width, 3].

    Args:
        target: (width, height) in pixels.
        method: one of `trainer.data.source_options.RESIZE_METHODS`.
    """
    if method != "bilinear":
        return np.asarray(image.resize(target, _FILTERS[method]))
    while (factors := halvings(image.size, target)) != (1, 1):
        image = image.reduce(factors)
    return interpolate(np.asarray(image), target)


def halvings(size: tuple[int, int], target: tuple[int, int]) -> tuple[int, int]:
    """Return the divisor, 2 or 1, of each axis of `size` in the next step to `target`.

    Both axes are halved while both are at least twice as long as in `target`; then an axis that is
    at least `SINGLE_AXIS_FACTOR` times as long. Sizes are rounded up, as by `draft` of a JPEG.
    """
    (width, height), (target_width, target_height) = size, target
    both = width >= 2 * target_width and height >= 2 * target_height
    minimum = 2 if both else SINGLE_AXIS_FACTOR
    across = 2 if width >= minimum * target_width else 1
    down = 2 if height >= minimum * target_height else 1
    return across, down


def interpolate(pixels: np.ndarray, target: tuple[int, int]) -> np.ndarray:
    """Return pixels in the size `target`, each interpolated from four neighbors."""
    return import_opencv().resize(pixels, target)
