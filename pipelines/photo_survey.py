"""Survey a folder of photos before they are learned from: sizes, classes, splits, duplicates.

All files are listed, but few are read: a sample, and those that may be duplicates by their sizes.
"""

import collections
import functools
import io
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image

from trainer import formats
from trainer.data import storage
from trainer.data.digests import digest_halves
from trainer.data.images.class_folders import SUFFIXES, Listed, is_hidden
from trainer.data.images.pixels import PixelFormat, RejectedError
from trainer.data.schema import SPLITS
from trainer.data.source import DIGEST_BYTES, Rejection
from trainer.data.source_options import SourceOptions
from trainer.data.sources.images import UNSUPPORTED, ImageFolder
from trainer.data.storage import join
from trainer.data.write.split_plan import choose_splits
from trainer.errors import InputError

MOST_PHOTOS = 200_000
"""Photos of a larger folder that are looked at; each takes 0.5 kB of memory."""
SAMPLE_PHOTOS, SAMPLE_BYTES = 300, 50 * 10**6
"""Photos that are decoded, in a second or two."""
MOST_BYTES = 300 * 10**6
"""Photos of which digests are computed, in a second or two."""
IMBALANCE = 3
_RARE = 30
"""Photos of a class below which its tenth for the test split may be none: 0.9^30 is 0.04."""


class PhotoSurvey:
    """What is known of the photos of an open folder."""

    def __init__(self, opened: ImageFolder) -> None:
        self._opened = opened
        self.unusable: collections.Counter[str] = collections.Counter()  # by reason
        self.others = 0  # files whose names are not those of photos
        listed = self._list_photos()
        self.photos = list(itertools.islice(listed, MOST_PHOTOS))
        self.count = len(self.photos) + sum(1 for _ in listed)
        self.sizes: list[tuple[int, int]] = []  # width and height of the sample, in pixels
        self.formats: collections.Counter[str] = collections.Counter()
        self.modes: set[str] = set()  # Pillow's, such as RGB
        self.unreadable: dict[str, str] = {}  # reasons by path
        self._read_sample()
        if not self.sizes:
            found = "has no photo with a label"
            for path, reason in self.unreadable.items():
                found = f"has no photo that can be read; {path}: {reason}"
            raise InputError(f"source=images:{opened.location} {found}")

    @property
    def side(self) -> int:
        """Return the median of the sampled photos' shorter sides, in pixels."""
        return int(np.median([min(size) for size in self.sizes]))

    @property
    def is_gray(self) -> bool:
        return self.modes <= {"1", "L", "LA", "I;16"}

    @property
    def unusable_fraction(self) -> float:
        """Return the fraction of photos and rows that a run is expected to reject."""
        rejected = self.unusable.total()
        unreadable = len(self.unreadable) / (len(self.sizes) + len(self.unreadable))
        return (rejected + unreadable * self.count) / (rejected + self.count)

    def describe(self) -> list[str]:
        """Return lines that say what was found."""
        digests = self._read_digests()
        described = (
            self._describe_sample(),
            self._describe_labels(),
            self._describe_splits(digests),
            self._describe_copies(digests),
        )
        return list(itertools.chain.from_iterable(described))

    def _list_photos(self) -> Iterator[Listed]:
        for item in self._opened.list_images():
            if isinstance(item, Rejection):
                self.unusable["rows without a photo of their own"] += 1
                continue
            parts = item.file.path.split("/")
            suffix = PurePath(parts[-1]).suffix.lower()
            if any(map(is_hidden, parts)):
                continue
            if suffix in UNSUPPORTED:
                self.unusable[f"{suffix} files; convert them to JPEG"] += 1
            elif suffix and suffix not in SUFFIXES:
                self.others += 1
            elif item.label is None:
                self.unusable[f"photos: {item.reason}"] += 1
            else:
                yield item

    def _read_sample(self) -> None:
        order = np.random.default_rng(0).permutation(len(self.photos))[:SAMPLE_PHOTOS]
        decoder, remaining = PixelFormat(SourceOptions(channels=3)), SAMPLE_BYTES
        for index in order.tolist():
            path = self.photos[index].file.path
            try:
                content = storage.read(join(self._opened.location, path))
                decoder.decode(content)
            except (RejectedError, OSError) as error:
                self.unreadable[path] = str(error)
                continue
            with Image.open(io.BytesIO(content)) as image:
                self.sizes.append(image.size)
                self.formats[str(image.format)] += 1
                self.modes.add(image.mode)
            remaining -= len(content)
            if remaining < 0:
                break

    def _describe_sample(self) -> Iterator[str]:
        sizes = sorted(self.sizes, key=lambda size: size[0] * size[1])
        least, median, most = (f"{width}x{height}" for width, height in _pick_three(sizes))
        kinds = ", ".join(kind for kind, _ in self.formats.most_common())
        gray = ", gray" if self.is_gray else ""
        same = f"{median} pixels" if least == most else f"{median} pixels ({least} to {most})"
        yield f"{self.count:,} photos: {kinds}{gray}, {same}, by a sample of {len(sizes):,}"
        if self.unreadable:
            shown = "; ".join(f"{path}: {why}" for path, why in _first(self.unreadable.items()))
            yield f"{len(self.unreadable):,} more of the sample can't be read: {shown}"
        for reason, count in self.unusable.most_common():
            yield f"can't be used: {count:,} {reason}"
        if self.others:
            yield f"left out: {self.others:,} files that do not end in {', '.join(SUFFIXES)}"

    def _describe_labels(self) -> Iterator[str]:
        label = self._opened.label
        if label and label.number:
            low, median, high = _pick_three(sorted(photo.label for photo in self.photos))
            yield f"{label.column} is a number: median {median:g}, from {low:g} to {high:g}"
            return
        counts = self._class_counts
        (largest, most), (smallest, least) = counts[0], counts[-1]
        shown = formats.listing((f"{name} {count:,}" for name, count in counts), 100)
        rest = f"; the smallest: {smallest} {least:,}" if shown.endswith("...") else ""
        several = "labels, some of them together" if label and label.is_multilabel else "classes"
        yield f"{len(counts):,} {several}: {shown}{rest}"
        if least and most > IMBALANCE * least:
            yield (
                f"imbalance: {largest} has {most / least:.2g} times as many photos as {smallest}; "
                'class_weights = "balanced" finds more of the rare ones'
            )

    def _describe_splits(self, digests: dict[int, bytes]) -> Iterator[str]:
        given = collections.Counter(photo.split for photo in self.photos if photo.split)
        if given:
            drawn = [name for name in SPLITS if not given[name]]
            yield (
                "given splits: "
                + ", ".join(f"{name} {given[name]:,}" for name in SPLITS if given[name])
                + (f"; {' and '.join(drawn)} will be drawn from train" if drawn else "")
            )
        if (self._opened.label and self._opened.label.number) or len(self.photos) < self.count:
            return
        if len(digests) == len(self.photos):
            tested: set[str] = set()
            for photo, split in zip(self.photos, self._draw_splits(digests), strict=True):
                if split == SPLITS.index("test"):
                    tested.update(self._names_of(photo))
            if missing := [name for name, _ in self._class_counts if name not in tested]:
                yield f"no photo in the test split: {formats.listing(missing)}; add photos"
        elif "test" not in given and (rare := [n for n, of in self._class_counts if of < _RARE]):
            yield (
                f"perhaps no photo in the test split, with fewer than {_RARE}: "
                f"{formats.listing(rare)}"
            )

    def _describe_copies(self, digests: dict[int, bytes]) -> Iterator[str]:
        groups: dict[bytes, list[Listed]] = collections.defaultdict(list)
        for index, digest in digests.items():
            groups[digest].append(self.photos[index])
        copies = [group for group in groups.values() if len(group) > 1]
        differ = [group for group in copies if any(one.label != group[0].label for one in group)]
        for found, what in ((copies, "equal photos"), (differ, "equal photos, different labels")):
            if found:
                pairs = (f"{one.file.path} = {two.file.path}" for one, two, *_ in _first(found))
                count = sum(len(group) - 1 for group in found)
                yield f"{what}: {count:,}, {', '.join(pairs)}"

    @functools.cached_property
    def _class_counts(self) -> list[tuple[str, int]]:
        """Return the number of photos of each class, the largest first."""
        names = itertools.chain.from_iterable(map(self._names_of, self.photos))
        counts = collections.Counter(dict.fromkeys(self._opened.classes, 0))
        counts.update(names)
        return counts.most_common()

    def _names_of(self, photo: Listed) -> Sequence[str]:
        """Return the classes of a photo; [] if labels are numbers."""
        label: Any = photo.label
        if isinstance(label, int):
            return [self._opened.classes[label]]
        return label if isinstance(label, list) else [str(label)]

    def _read_digests(self) -> dict[int, bytes]:
        """Return the digests of photos by index: of all or, if they are large, of possible copies.

        These have equal sizes; those of the smallest groups are read, up to MOST_BYTES.
        """
        sizes = np.array([photo.file.size for photo in self.photos])
        chosen = np.arange(len(sizes))
        if sizes.sum() > MOST_BYTES:
            _, group, counts = np.unique(sizes, return_inverse=True, return_counts=True)
            order = np.lexsort((group, counts[group]))
            order = order[counts[group][order] > 1]
            chosen = order[np.cumsum(sizes[order]) <= MOST_BYTES]
        digests = {}
        for index in chosen.tolist():
            file = self.photos[index].file
            try:
                content = file.md5 or storage.read(join(self._opened.location, file.path))
            except OSError:
                continue
            digests[index] = file.md5 or self._opened.digest(content)
        return digests

    def _draw_splits(self, digests: dict[int, bytes]) -> Iterable[int]:
        """Return the index of each photo's split in SPLITS, as a run draws it."""
        given = np.array([SPLITS.index(photo.split or "train") for photo in self.photos], np.uint8)
        array = pa.array([digests[n] for n in range(len(digests))], pa.binary(DIGEST_BYTES))
        hashes = digest_halves(pa.chunked_array([array]))[:, 1]
        fractions = SourceOptions().split_fractions
        return choose_splits(given, hashes, fractions, np.unique(given).tolist()).tolist()


def _first(items: Iterable[Any]) -> Iterator[Any]:
    return itertools.islice(items, 3)


def _pick_three(items: Sequence[Any]) -> tuple[Any, Any, Any]:
    """Return the first, the middle and the last item."""
    return items[0], items[len(items) // 2], items[-1]
