"""images:URI: a folder of images, of which folders or labels.csv say what they show.

Every file is an example or is listed in rejected.jsonl. Hidden and system files, and files that
are not images by name or content, are tolerated; an image without a label, or of a format that is
not read, counts as unusable.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainer.data import storage
from trainer.data.images.class_folders import (
    LAYOUTS,
    SUFFIXES,
    TABLE,
    ClassFolders,
    ListedImage,
    is_hidden,
)
from trainer.data.images.image_source import ImageSource
from trainer.data.source import Example, Mapped, Reference, Rejection
from trainer.data.source_options import SourceOptions
from trainer.data.storage import join
from trainer.data.tables.schema_parser import check_path_pattern, parse_image_labels
from vertex.errors import InputError

if TYPE_CHECKING:
    from trainer.data.images.label_table import LabelTable

MAX_FILE_BYTES = 256 * 10**6
UNSUPPORTED = (".heic", ".heif", ".avif", ".jp2", ".jxl", ".pgm", ".ppm")
"""Suffixes of images that are rejected."""
SIGNATURE = re.compile(
    rb"\xff\xd8\xff|\x89PNG\r\n\x1a\n|BM|GIF8[79]a|RIFF.{4}WEBP|II[*+]\0|MM\0[*+]", re.DOTALL
)
"""The first bytes of images in supported formats."""


class ImageFolder(ImageSource):
    """The images under `location`, a URI."""

    place = "URI"
    help = "a folder of classes, gs:// or local"

    def __init__(self, place: str, options: SourceOptions) -> None:
        super().__init__(place, options)
        self.location = place.rstrip("/") or "/"
        self.name = self.location.rpartition("/")[2] or self.location
        if not storage.is_folder(self.location):
            what = "is not a folder" if storage.exists(self.location) else "does not exist"
            raise InputError(f"source={options.source!r}: {self.location} {what}; {LAYOUTS}")
        self.classes = []
        self._pattern = re.compile(options.split_by.get("path", ""))
        self._fractions = options.split_fractions
        self._folders: ClassFolders | LabelTable
        if options.label:
            from trainer.data.images import label_table

            schema = parse_image_labels(options)
            self.label = schema.label
            self._folders = label_table.LabelTable(self.location, schema, options)
            return
        self._folders = ClassFolders(self.location, options.source)
        self.classes = self._folders.classes
        if len(self.classes) < 2 and storage.exists(join(self.location, TABLE)):
            raise InputError(
                f"source={options.source!r}: no folders of classes; to learn a column of its "
                f'{TABLE}, set label, for example to {{"column": "price", "type": "numeric"}}'
            )
        if len(self.classes) == 1:
            self._folders.check()
        self.check_classes(options.source)
        if self._folders.splits and options.split_by:
            raise InputError(
                f"split_by={options.split_by}, but the folder is already split; leave split_by out"
            )

    @classmethod
    def check_options(cls, options: SourceOptions) -> list[str]:
        if options.label:
            return parse_image_labels(options).label.classes
        if options.dialect:
            raise InputError("dialect describes the labels.csv that label reads; set label, too")
        check_path_pattern(options)
        return []

    @classmethod
    def find_classes(cls, place: str, options: SourceOptions) -> list[str]:
        source = cls(place, options)
        source._folders.check()
        return source.classes

    def examples(self, mapped: Mapped = map, /) -> Iterator[Example | Rejection]:
        """List every file under the folder, sorted by path; compute missing MD5 digests.

        Raise InputError if the folder can't be listed, or a class has no file.
        """
        return mapped(self._examine, self._folders.list_images())

    @property
    def splits(self) -> dict[str, str]:
        """Return the split of each top folder if the folder is already split, else nothing."""
        return self._folders.splits if isinstance(self._folders, ClassFolders) else {}

    def fetch(self, reference: Reference) -> bytes:
        """Return the content of a file; raise as `storage.read`."""
        return storage.read(join(self.location, reference.key))

    def digest(self, fetched: bytes) -> bytes:
        """Return the MD5, which Cloud Storage reports without reading the file."""
        return hashlib.md5(fetched, usedforsecurity=False).digest()

    def _examine(self, listed: ListedImage | Rejection) -> Example | Rejection:
        if isinstance(listed, Rejection):
            return listed
        file, path = listed.file, listed.file.path
        if any(is_hidden(part) for part in path.split("/")):
            return Rejection(path, "hidden or system file", tolerated=True)
        try:
            path.encode()
        except UnicodeEncodeError:
            return Rejection(ascii(path)[1:-1], "file name is not UTF-8")
        is_named = path.lower().endswith(SUFFIXES + UNSUPPORTED)
        if is_named and listed.label is None:
            return Rejection(path, listed.reason)
        uri, size, content_digest = join(self.location, path), file.size, file.md5
        try:
            if not content_digest:
                size = storage.size(uri)
            if size > MAX_FILE_BYTES:
                return Rejection(path, f"larger than {MAX_FILE_BYTES // 10**6} MB")
            if not is_named or not content_digest:
                content = storage.read(uri)
                if not is_named and not SIGNATURE.match(content):
                    reason = "not an image, neither by name nor by content"
                    return Rejection(path, reason, tolerated=True)
                content_digest = self.digest(content)
        except OSError as error:
            # For example, a named pipe.
            return Rejection(path, f"can't be read: {error.strerror}")
        if listed.label is None:
            return Rejection(path, listed.reason)
        if not size:
            return Rejection(path, "empty file")
        split = listed.split
        if self._pattern.pattern:
            from trainer.data.tables.splits import draw_split

            match = self._pattern.search(path)
            if not match:
                return Rejection(path, f"no group: {self._pattern.pattern!r} does not match")
            group = match[1] if self._pattern.groups else match[0]
            split = draw_split(group, self._fractions)
        return Example(Reference(path, 0), listed.label, content_digest, split)
