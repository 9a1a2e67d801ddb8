"""Folders of photos to measure with: REAL_DATA_DIR's flowers in many versions, else made up."""

import os
from pathlib import Path

import numpy as np
from PIL import Image


def write_photos(folder: Path, count: int, classes: int = 2) -> None:
    """Writes `count` JPEGs to `<folder>/<class>/`, no two of equal content.

    Real photos keep their sizes, 320x240 to 500x375 for most; made up ones have 400x300.
    """
    generator = np.random.default_rng(0)
    sources = _sources()
    for number in range(count):
        target = folder / f"class{number % classes}" / f"{number:06}.jpg"
        target.parent.mkdir(parents=True, exist_ok=True)
        if sources:
            photo = Image.open(sources[number % len(sources)]).convert("RGB")
        else:
            coarse = generator.integers(0, 256, (30, 40, 3), np.uint8)
            photo = Image.fromarray(coarse).resize((400, 300), Image.Resampling.BICUBIC)
        round_number = number // max(1, len(sources))
        photo.putpixel((round_number % photo.width, round_number // photo.width), (255, 0, 0))
        photo.save(target, quality=90)


def _sources() -> list[Path]:
    real = os.environ.get("REAL_DATA_DIR", "")
    return sorted(Path(real, "flowers").glob("*/*.jpg")) if real else []
