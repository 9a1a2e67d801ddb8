"""Labels of images by their folders: `<class>/...`, or already split, `<split>/<class>/...`.

A folder is already split if all its subfolders are named after splits (`parse_split_name`), and
one of them is train; these splits are kept, except for duplicates. A class's folder directly
contains images, and may have subfolders with more.
"""

from collections.abc import Iterator
from typing import NamedTuple

from trainer.data import storage
from trainer.data.file_listing import File, list_files
from trainer.data.source import AnyLabel, parse_split_name
from trainer.data.storage import join
from vertex.errors import InputError
from vertex.formats import listing

TABLE = "labels.csv"
"""Name of the table that has the labels of images instead (label_table.py)."""
SUFFIXES = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff")
"""Of images in supported formats."""
LAYOUTS = (
    "use <class>/<image>, or <split>/<class>/<image> with only the folders train, validation (or "
    "val) and test (or training_set, test_set and the like)"
)
_SYSTEM_FILES = frozenset({"thumbs.db", "desktop.ini", "__macosx"})


class ListedImage(NamedTuple):
    """A file of a folder of images."""

    file: File
    label: AnyLabel | None  # None if the file can't be an example
    split: str  # one of SPLITS, or empty if a digest of the content decides
    reason: str  # why the file can't be an example


class ClassFolders:
    """The folders of classes in `location`, a URI."""

    def __init__(self, location: str, source: str) -> None:
        self._location = location
        folders = _list_folders(location)
        splits = {name: parse_split_name(name) for name in folders}
        is_split = all(splits.values()) and "train" in splits.values()
        self.splits = splits if is_split else {}
        classes = {name: _list_folders(join(location, name)) for name in self.splits}
        classes = classes or {"": folders}
        self._folders = {
            f"{split_folder}/{name}".lstrip("/"): name
            for split_folder, names in classes.items()
            for name in names
        }
        self.classes = sorted(set(self._folders.values()))
        self._labels = {name: label for label, name in enumerate(self.classes)}
        for split_folder, names in classes.items():
            missing = sorted(set(self.classes) - set(names))
            if self.splits.get(split_folder) == "train" and missing and len(self.classes) > 1:
                raise InputError(
                    f"source={source!r}: class {missing[0]!r} has no folder in "
                    f"{split_folder}/; every class needs images to train on"
                )

    def check(self) -> None:
        """Raise InputError for a class without a file directly in its folder."""
        self._check(self._folders)

    def list_images(self) -> Iterator[ListedImage]:
        """Yield all files, sorted by path; raise InputError as `check` does."""
        empty = dict(self._folders)
        for file in list_files(self._location):
            folder, _, name = file.path.rpartition("/")
            if folder in empty and not is_hidden(name):
                del empty[folder]
            yield self._find_label(file)
        self._check(empty)

    def _find_label(self, file: File) -> ListedImage:
        split, path_in_split = "", file.path
        if self.splits:
            folder, _, path_in_split = file.path.partition("/")
            split = self.splits.get(folder, "")
        name, slash, _ = path_in_split.partition("/")
        label = self._labels.get(name) if slash else None
        return ListedImage(
            file, label, split, "not in the folder of a class" if label is None else ""
        )

    def _check(self, folders: dict[str, str]) -> None:
        for path, name in folders.items():
            inner = []
            for entry, is_folder in storage.iter_entries(join(self._location, path)):
                if is_folder:
                    inner.append(entry)
                elif not is_hidden(entry):
                    break
            else:
                found, remedy = "no file", "add images, remove the folder"
                if inner:
                    found = f"only folders ({listing(sorted(inner), 100)})"
                    if not self.splits:
                        remedy = f"if these are the classes, use images:{self._location}/{path}"
                raise InputError(
                    f"source=images:{self._location}: class {name!r} is empty: {path}/ contains "
                    f"{found}; {remedy}, or {LAYOUTS}"
                )


def is_hidden(name: str) -> bool:
    return name.startswith(".") or name.lower() in _SYSTEM_FILES


def _list_folders(uri: str) -> list[str]:
    return [name for name, folder in storage.list_entries(uri) if folder and not is_hidden(name)]
