"""What a folder of images says of each: its label, and perhaps its split."""

from typing import NamedTuple

from trainer.data.file_listing import File
from trainer.data.source import AnyLabel

TABLE = "labels.csv"
"""Name of the table of labels."""
_SYSTEM_FILES = frozenset({"thumbs.db", "desktop.ini", "__macosx"})


class Listed(NamedTuple):
    """A file of a folder of images."""

    file: File
    label: AnyLabel | None  # None if the file can't be an example
    split: str  # one of SPLITS, or empty if a digest of the content decides
    reason: str  # why the file can't be an example


def is_hidden(name: str) -> bool:
    return name.startswith(".") or name.lower() in _SYSTEM_FILES
