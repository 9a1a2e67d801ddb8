"""digits: scikit-learn's 1,797 scans of handwritten digits, which come with the library.

https://scikit-learn.org/stable/datasets/toy_dataset.html#digits-dataset: 8x8 pixels of 0..16.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainer.data.images.image_source import ImageSource
from trainer.data.source import Example, Mapped, Reference, digest
from trainer.data.source_options import SourceOptions

if TYPE_CHECKING:
    import numpy as np

    from trainer.data.records import Values


class Digits(ImageSource):
    """The scans, scaled to 0..255."""

    help = "1,797 scans of digits that come with scikit-learn"
    name = "digits"

    def __init__(self, place: str, options: SourceOptions) -> None:
        import numpy as np

        super().__init__(place, options)
        # The file that load_digits reads; importing scikit-learn would take most of a second.
        library = importlib.metadata.distribution("scikit-learn")
        file = library.locate_file("sklearn/datasets/data/digits.csv.gz")
        rows = np.loadtxt(str(file), delimiter=",")
        scans = rows[:, :-1].reshape(-1, 8, 8)
        self._scans = (scans * (255 / 16)).round().astype("uint8")
        self._labels = rows[:, -1].astype("int64")
        self.classes = [str(digit) for digit in range(10)]

    @classmethod
    def version(cls, place: str, data_dir: str) -> tuple[str, str]:
        return f"scikit-learn {importlib.metadata.version('scikit-learn')}", ""

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
        from PIL import Image

        pixels = self._format.resize(Image.fromarray(fetched))
        return self._format.encode_variants(pixels, key, variants)
