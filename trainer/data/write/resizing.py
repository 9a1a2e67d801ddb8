"""Resize images on a CPU. trainer/training/export.py does the same in a SavedModel's graph.

Bilinear resizing works as a GPU samples a texture with mipmaps: means of 2x2 pixels halve the
image (`halvings`), and each pixel of the result is interpolated from four neighbors, as
`tf.image.resize(..., antialias=False)` does. Filtering by the exact factor, as Pillow does, takes
five times as long. The other methods are Pillow's; all but `nearest` filter when they shrink, as
`tf.image.resize(..., antialias=True)` does.
"""

import functools
from typing import Any

import numpy as np
from PIL import Image

ALONE = 3
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
    """Return an image of mode L or RGB, uint8 [height, width] or [height, width, 3].

    Args:
        target: (width, height) in pixels.
        method: of `trainer.data.record_options.RESIZE_METHODS`.
    """
    if method != "bilinear":
        return np.asarray(image.resize(target, _FILTERS[method]))
    while (factors := halvings(image.size, target)) != (1, 1):
        image = image.reduce(factors)
    return interpolate(np.asarray(image), target)


def halvings(size: tuple[int, int], target: tuple[int, int]) -> tuple[int, int]:
    """Return the divisor, 2 or 1, of each axis of `size` in the next step to `target`.

    Both axes are halved while both are at least twice as long as in `target`; then one that is
    at least `ALONE` times as long. The result is rounded up, as `draft` of a JPEG does, too.
    """
    (width, height), (target_width, target_height) = size, target
    least = 2 if width >= 2 * target_width and height >= 2 * target_height else ALONE
    return 1 + (width >= least * target_width), 1 + (height >= least * target_height)


def interpolate(pixels: np.ndarray, target: tuple[int, int]) -> np.ndarray:
    """Return pixels in the size `target`, each interpolated from four neighbors."""
    return import_opencv().resize(pixels, target)
