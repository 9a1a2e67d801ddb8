"""Files on this machine, and the functions by which a service reads and writes others.

A caller that also has files elsewhere passes a module with its own functions of these names.
"""

import glob
import pathlib
from typing import BinaryIO


def list_matching(pattern: str) -> list[str]:
    """Return the files and folders that match a pattern or a plain path."""
    return glob.glob(pattern, recursive=True)  # noqa: PTH207 - a pattern, not a folder


def read(path: str) -> bytes:
    """Return the whole content of a file; raise OSError if it can't be read."""
    return pathlib.Path(path).read_bytes()


def make_folder(path: str) -> None:
    """Make a folder and its parents, unless it exists."""
    pathlib.Path(path).mkdir(parents=True, exist_ok=True)


def open_file(path: str, mode: str) -> BinaryIO:
    """Open a file in mode "rb" or "wb"."""
    return pathlib.Path(path).open(mode)  # type: ignore[return-value]


def write_atomically(path: pathlib.Path, content: bytes) -> None:
    """Write a file that appears under its name only when it is complete."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_bytes(content)
    partial.replace(path)
