"""Resize images on a CPU. trainer/training/export.py does the same in a SavedModel's graph.

Bilinear resizing goes as a GPU samples a texture with mipmaps: means of 2x2 pixels halve the
image (`halvings`), and four neighboring pixels make each pixel of the rest, as
`tf.image.resize(..., antialias=False)` does. To filter by the very factor, as Pillow does,
takes five times as long. The other methods are Pillow's; all but `nearest` filter when they
shrink, as `tf.image.resize(..., antialias=True)` does.
"""

import functools
from typing import Any

import numpy as np
from PIL import Image

ALONE = 3
"""An axis is halved alone, where the other is short already, from this factor on: between 2 and
3, bilinear sampling passes over a third of the pixels at most, and to halve costs more."""

_FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "area": Image.Resampling.BOX,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos3": Image.Resampling.LANCZOS,
}


@functools.cache
def opencv() -> Any:
    """Return cv2, imported by processes that write images alone."""
    import cv2

    # The processes that write are parallel, an image's rows need not be.
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
    return sampled(np.asarray(image), target)


def halvings(size: tuple[int, int], target: tuple[int, int]) -> tuple[int, int]:
    """Return by what each axis of `size` is divided next, 2 or 1, on the way to `target`.

    Both while both are at least twice as long as they shall be; then one that is still
    `ALONE` times as long. What is divided is rounded up, as `draft` of a JPEG does, too.
    """
    (width, height), (target_width, target_height) = size, target
    least = 2 if width >= 2 * target_width and height >= 2 * target_height else ALONE
    return 1 + (width >= least * target_width), 1 + (height >= least * target_height)


def sampled(pixels: np.ndarray, target: tuple[int, int]) -> np.ndarray:
    """Return pixels in the size `target`, each made of four neighbors."""
    return opencv().resize(pixels, target)
