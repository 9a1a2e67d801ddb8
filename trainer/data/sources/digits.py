"""digits: scikit-learn's 1,797 scans of handwritten digits, which come with the library.

https://scikit-learn.org/stable/datasets/toy_dataset.html#digits-dataset: 8x8 pixels of 0..16.
"""

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from PIL import Image

from trainer.data.record_options import RecordOptions
from trainer.data.sources import Example, Mapped, Reference, digest
from trainer.data.write.pixels import PixelFormat
from trainer.data.write.records import Values
from trainer.errors import InputError


class Digits:
    """The scans, stretched to 0..255."""

    name = "digits"
    unit = "images"
    is_spilled = False
    details: ClassVar[dict[str, Any]] = {}
    location = ""

    def __init__(self, options: RecordOptions) -> None:
        # Costs a second, which no other source has to pay.
        from sklearn.datasets import load_digits

        bunch = load_digits()
        self._scans = np.rint(bunch.images * (255 / 16)).astype(np.uint8)
        self._labels = bunch.target
        self._format = PixelFormat.of(options)
        self.classes = [str(name) for name in bunch.target_names]
        self.features = [self._format.feature]

    def examples(self, _: Mapped = map, /) -> Iterator[Example]:
        for index, (scan, label) in enumerate(zip(self._scans, self._labels, strict=True)):
            reference = Reference(f"digits/{index}", index)
            yield Example(reference, int(label), digest(scan.tobytes()), "")

    def fetch(self, reference: Reference) -> np.ndarray:
        """Return the scan, uint8 [8, 8]."""
        return self._scans[reference.position]

    def digest(self, fetched: np.ndarray) -> bytes:
        return digest(fetched.tobytes())

    def encode(self, fetched: np.ndarray, key: str, variants: int) -> list[Values]:
        return self._format.values(self._format.resize(Image.fromarray(fetched)), key, variants)


def open_source(rest: str, options: RecordOptions) -> Digits:
    if rest:
        raise InputError(f"source={options.source!r}: digits takes nothing after it; use 'digits'")
    return Digits(options)
