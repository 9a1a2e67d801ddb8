"""Write folders of photos to measure with: many versions of REAL_DATA_DIR's flowers, or made up.

They are brought to the commonest size among the photos of TensorFlow Datasets' cats_vs_dogs.
"""

import os
from pathlib import Path

import numpy as np
from PIL import Image

SIZE = (500, 375)
"""Width and height, in pixels."""

QUALITY = 80
"""Gives about 30 kB a photo, as cats_vs_dogs has."""


def write_photos(folder: Path, count: int, classes: int = 2) -> None:
    """Write `count` JPEGs to `<folder>/<class>/`, no two of equal content."""
    generator = np.random.default_rng(0)
    sources = _sources()
    for number in range(count):
        target = folder / f"class{number % classes}" / f"{number:06}.jpg"
        target.parent.mkdir(parents=True, exist_ok=True)
        if sources:
            photo = Image.open(sources[number % len(sources)]).convert("RGB")
        else:
            coarse = generator.integers(0, 256, (30, 40, 3), np.uint8)
            photo = Image.fromarray(coarse)
        photo = photo.resize(SIZE, Image.Resampling.BICUBIC)
        round_number = number // max(1, len(sources))
        photo.putpixel((round_number % photo.width, round_number // photo.width), (255, 0, 0))
        photo.save(target, quality=QUALITY)


def _sources() -> list[Path]:
    real = os.environ.get("REAL_DATA_DIR", "")
    return sorted(Path(real, "flowers").glob("*/*.jpg")) if real else []
