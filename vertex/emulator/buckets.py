"""Buckets of Cloud Storage that are subfolders of a folder, so that tasks can write to them."""

import hashlib
import json
import os
import pathlib
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, MutableMapping
from typing import Any

from vertex.emulator.api_error import ApiError, invalid
from vertex.emulator.files import write_atomically

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")


_MARKER = ".object-with-the-name-of-this-folder"


class FolderBuckets:
    """The buckets of a folder, its subfolders, by name."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder

    def __getitem__(self, bucket: str) -> "FolderBucket":
        if not _NAME.fullmatch(bucket) or not (self._folder / bucket).is_dir():
            raise ApiError("NOT_FOUND", "The specified bucket does not exist.")
        return FolderBucket(self._folder / bucket, self._folder.with_name("object-attributes"))

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(path.name for path in self._folder.iterdir()))

    def make(self, bucket: str) -> None:
        if not _NAME.fullmatch(bucket):
            raise invalid(f"Invalid bucket name: '{bucket}'")
        try:
            (self._folder / bucket).mkdir(parents=True)
        except FileExistsError:
            raise ApiError("ALREADY_EXISTS", "You already own this bucket.") from None

    def remove(self, bucket: str) -> None:
        if any(self[bucket]):
            raise ApiError("ABORTED", "The bucket you tried to delete is not empty.")
        shutil.rmtree(self._folder / bucket)


class FolderBucket(MutableMapping[str, bytes]):
    """The objects of a bucket: contents by name.

    A file that a task has written is an object at once. The generation of an object is the time of
    its content in microseconds, as on Cloud Storage.
    """

    def __init__(self, folder: pathlib.Path, attributes: pathlib.Path) -> None:
        self.folder = folder
        self._attributes = attributes / folder.name

    def __getitem__(self, name: str) -> bytes:
        try:
            return self._path(name).read_bytes()
        except OSError:
            raise KeyError(name) from None

    def __setitem__(self, name: str, content: bytes) -> None:
        path = self._path(name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError:
            raise invalid(f"a part of {name!r} is an object, so it can't be a file here") from None
        last = self.generation(name) if path.exists() else 0
        with tempfile.TemporaryDirectory(dir=self._make_folder(), prefix="write-") as folder:
            partial = pathlib.Path(folder, "content")
            partial.write_bytes(content)
            # The clock of a file system is too coarse to tell two writes apart.
            now = max(time.time_ns(), (last + 1) * 1000)
            os.utime(partial, ns=(now, now))
            partial.replace(path)

    def __delitem__(self, name: str) -> None:
        try:
            self._path(name).unlink()
        except OSError:
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        for folder, _, names in os.walk(self.folder, followlinks=True):
            relative = pathlib.Path(folder).relative_to(self.folder)
            for name in names:
                yield (relative / name).as_posix().removesuffix(_MARKER)

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        return self._path(str(name)).is_file()

    def size(self, name: str) -> int:
        return self._path(name).stat().st_size

    def generation(self, name: str) -> int:
        return self._path(name).stat().st_mtime_ns // 1000

    def attributes(self, name: str) -> dict[str, Any]:
        """Return the attributes of an object; {} for one that a task has written."""
        try:
            kept = json.loads(self._attributes_path(name).read_text())
        except FileNotFoundError:
            return {}
        return kept["attributes"] if kept["generation"] == self.generation(name) else {}

    def set_attributes(self, name: str, attributes: dict[str, Any]) -> None:
        content = {"generation": self.generation(name), "attributes": attributes}
        self._make_folder()
        write_atomically(self._attributes_path(name), json.dumps(content).encode())

    def _make_folder(self) -> pathlib.Path:
        self._attributes.mkdir(parents=True, exist_ok=True)
        return self._attributes

    def _attributes_path(self, name: str) -> pathlib.Path:
        return self._attributes / f"{hashlib.sha256(name.encode()).hexdigest()}.json"

    def _path(self, name: str) -> pathlib.Path:
        if {"", ".", ".."} & {*name.removesuffix("/").split("/")}:
            raise invalid(f"{name!r} names an object that can't be a file, so it isn't served here")
        return self.folder / (f"{name}{_MARKER}" if name.endswith("/") else name)
