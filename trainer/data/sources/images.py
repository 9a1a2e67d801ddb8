"""images:URI: a folder of images, `<class>/...` or already split, `<split>/<class>/...`.

A folder is already split if all its subfolders are named after splits (`parse_split_name`), and
one of them is train; these splits are kept, except for duplicates (split_plan.py). A class's
folder directly contains images, and may have subfolders with more.

Every file is an example or is listed in rejected.jsonl. Hidden and system files, and files that
are not images by name or content, are tolerated; an image outside a class, or of a format that is
not read, counts as unusable.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

from trainer.data import storage
from trainer.data.file_listing import File, list_files
from trainer.data.images.image_source import ImageSource
from trainer.data.schema import join
from trainer.data.source import Example, Mapped, Reference, Rejection, parse_split_name
from trainer.data.source_options import SourceOptions
from trainer.errors import InputError

MAX_FILE_BYTES = 256 * 10**6
_SYSTEM_FILES = frozenset({"thumbs.db", "desktop.ini", "__macosx"})
SUFFIXES = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff")
_UNSUPPORTED = (".heic", ".heif", ".avif", ".jp2", ".jxl", ".pgm", ".ppm")
SIGNATURE = re.compile(
    rb"\xff\xd8\xff|\x89PNG\r\n\x1a\n|BM|GIF8[79]a|RIFF.{4}WEBP|II[*+]\0|MM\0[*+]", re.DOTALL
)
"""The first bytes of images in supported formats."""
_LAYOUTS = (
    "use <class>/<image>, or <split>/<class>/<image> with only the folders train, validation (or "
    "val) and test (or training_set, test_set and the like)"
)


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
            raise InputError(f"source={options.source!r}: {self.location} {what}; {_LAYOUTS}")
        folders = _list_folders(self.location)
        self._splits = {name: parse_split_name(name) for name in folders}
        if not all(self._splits.values()) or "train" not in self._splits.values():
            self._splits = {}
        classes = {
            split_folder: _list_folders(join(self.location, split_folder))
            for split_folder in self._splits
        }
        classes = classes or {"": folders}
        self._class_folders = {
            f"{split_folder}/{name}".lstrip("/"): name
            for split_folder, names in classes.items()
            for name in names
        }
        self.classes = sorted(set(self._class_folders.values()))
        self._labels = {name: label for label, name in enumerate(self.classes)}
        self.check_classes(options.source)
        for split_folder, names in classes.items():
            missing = sorted(set(self.classes) - set(names))
            if self._splits.get(split_folder) == "train" and missing:
                raise InputError(
                    f"source={options.source!r}: class {missing[0]!r} has no folder in "
                    f"{split_folder}/; every class needs images to train on"
                )

    @classmethod
    def find_classes(cls, place: str, options: SourceOptions) -> list[str]:
        source = cls(place, options)
        source._check_folders(source._class_folders)
        return source.classes

    def examples(self, mapped: Mapped = map, /) -> Iterator[Example | Rejection]:
        """List every file under the folder, sorted by path; compute missing MD5 digests.

        Raise InputError if the folder can't be listed, or a class has no file.
        """
        return mapped(self._examine_file, self._list_files())

    def fetch(self, reference: Reference) -> bytes:
        """Return the content of a file; raise as `storage.read`."""
        return storage.read(join(self.location, reference.key))

    def digest(self, fetched: bytes) -> bytes:
        """Return the MD5, which Cloud Storage reports without reading the file."""
        return hashlib.md5(fetched, usedforsecurity=False).digest()

    def _list_files(self) -> Iterator[File]:
        empty = dict(self._class_folders)
        for file in list_files(self.location):
            folder, _, name = file.path.rpartition("/")
            if folder in empty and not _is_hidden(name):
                del empty[folder]
            yield file
        self._check_folders(empty)

    def _parse_path(self, path: str) -> tuple[int, str]:
        """Return a file's label, or -1 if it has none, and its split."""
        split, path_in_split = "", path
        if self._splits:
            folder, _, path_in_split = path.partition("/")
            split = self._splits.get(folder, "")
        name, slash, _ = path_in_split.partition("/")
        return self._labels.get(name, -1) if slash else -1, split

    def _check_folders(self, folders: dict[str, str]) -> None:
        """Raise InputError for a class without a file directly in its folder."""
        for path, name in folders.items():
            inner = []
            for entry, is_folder in storage.iter_entries(join(self.location, path)):
                if is_folder:
                    inner.append(entry)
                elif not _is_hidden(entry):
                    break
            else:
                found = (
                    f"only folders ({_shorten(', '.join(sorted(inner)))})" if inner else "no file"
                )
                raise InputError(
                    f"source=images:{self.location}: class {name!r} is empty: {path}/ contains "
                    f"{found}; add images, remove the folder, or {_LAYOUTS}"
                )

    def _examine_file(self, file: File) -> Example | Rejection:
        path = file.path
        if any(_is_hidden(part) for part in path.split("/")):
            return Rejection(path, "hidden or system file", tolerated=True)
        try:
            path.encode()
        except UnicodeEncodeError:
            return Rejection(ascii(path)[1:-1], "file name is not UTF-8")
        label, split = self._parse_path(path)
        is_named = path.lower().endswith(SUFFIXES + _UNSUPPORTED)
        if is_named and label < 0:
            return Rejection(path, "not in the folder of a class")
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
        if label < 0:
            return Rejection(path, "not in the folder of a class")
        if not size:
            return Rejection(path, "empty file")
        return Example(Reference(path, 0), label, content_digest, split)


def _list_folders(uri: str) -> list[str]:
    return [name for name, folder in storage.list_entries(uri) if folder and not _is_hidden(name)]


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name.lower() in _SYSTEM_FILES


def _shorten(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:100]}..."
