"""Resize images on a CPU. trainer/training/export.py does the same in a SavedModel's graph.

Bilinear resizing goes as a GPU samples a texture with mipmaps: means of 2x2 pixels halve the
image (`halvings`), and four neighboring pixels make each pixel of the rest, as
`tf.image.resize(..., antialias=False)` does. To filter by the very factor, as Pillow does,
takes five times as long. The other methods are Pillow's; all but `nearest` filter when they
shrink, as `tf.image.resize(..., antialias=True)` does.
"""

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


def resize(image: Image.Image, target: tuple[int, int], method: str) -> Image.Image:
    """Return an image of mode L or RGB in the size `target`, (width, height) in pixels.

    Args:
        method: of `trainer.data.record_options.RESIZE_METHODS`.
    """
    if image.size == target:
        return image
    if method != "bilinear":
        return image.resize(target, _FILTERS[method])
    while (factors := halvings(image.size, target)) != (1, 1):
        image = image.reduce(factors)
    return image if image.size == target else _sampled(image, target)


def halvings(size: tuple[int, int], target: tuple[int, int]) -> tuple[int, int]:
    """Return by what each axis of `size` is divided next, 2 or 1, on the way to `target`.

    Both while both are at least twice as long as they shall be; then one that is still
    `ALONE` times as long. What is divided is rounded up, as `draft` of a JPEG does, too.
    """
    (width, height), (target_width, target_height) = size, target
    least = 2 if width >= 2 * target_width and height >= 2 * target_height else ALONE
    return 1 + (width >= least * target_width), 1 + (height >= least * target_height)


def _sampled(image: Image.Image, target: tuple[int, int]) -> Image.Image:
    import cv2  # Where no image is resized, as in reading, nobody needs it.

    # The processes that write are parallel, an image's rows need not be.
    cv2.setNumThreads(1)
    # Pillow holds RGB in four bytes a pixel: so it needs no packing, and none afterwards.
    layout, depth = ("L", 1) if image.mode == "L" else ("RGBX", 4)
    pixels = np.frombuffer(image.tobytes("raw", layout), np.uint8)
    pixels = pixels.reshape(image.height, image.width, depth)
    sampled = cv2.resize(pixels, target, interpolation=cv2.INTER_LINEAR)
    return Image.frombuffer(image.mode, target, sampled, "raw", layout, 0, 1)
