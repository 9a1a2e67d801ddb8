"""A full disk, told from what a process has said of it."""

import os
import pathlib
import re
import shutil
from collections.abc import Iterable

from trainer.report.formats import size

_FULL = re.compile(r"No space left on device|Disk quota exceeded")
_PATH = re.compile(r"/[^\s'\"(),;]+")


def explained(lines: Iterable[str], directory: pathlib.Path) -> str:
    """Say which disk is full and how much is wanted; empty where no line reports a full disk.

    Args:
        directory: of the run, which was written where a line names no file.
    """
    line = next((line for line in lines if _FULL.search(line)), "")
    if not line:
        return ""
    named = _PATH.search(line)
    disk = _mount_point(pathlib.Path(named[0]) if named else directory)
    written = sum(path.lstat().st_size for path in directory.rglob("*") if path.is_file())
    free = shutil.disk_usage(disk).free
    return (
        f"the disk of {disk} is full: the run has written {size(written)}, and its next file "
        f"wants more than the {size(free)} that are free; free some space and run it again"
    )


def _mount_point(path: pathlib.Path) -> pathlib.Path:
    """Return the folder below which the file system of `path` lies."""
    return next(one for one in (path, *path.parents) if os.path.ismount(one))
