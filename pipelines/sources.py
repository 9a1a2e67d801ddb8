"""Folders of this machine as sources of a run."""

import glob
import hashlib
import os
from pathlib import Path
from typing import Any

from pipelines.parameters import ParameterSet
from trainer.errors import InputError


def on_this_machine(parameters: ParameterSet) -> dict[str, Any]:
    """Parameters that a run on this machine needs otherwise than they were given.

    Local paths become absolute, since each step runs in a folder of its own, and the
    content of a local folder becomes its source_version, so that records written from
    what it held before are not taken from the cache.

    Raises:
        InputError: a local folder that is not there.
    """
    changed: dict[str, Any] = {}
    kind, _, location = parameters.records.source.partition(":")
    if kind == "images" and _is_local(location):
        folder = _folder("source", location)
        changed["source"] = f"images:{folder}"
        if not parameters.pipeline.source_version:
            changed["source_version"] = fingerprint(folder)
    if kind == "csv" and _is_local(location):
        changed["source"] = f"csv:{Path(location).expanduser().absolute()}"
        if not parameters.pipeline.source_version:
            changed["source_version"] = _files_fingerprint(location)
    if parameters.records.data_dir and _is_local(parameters.records.data_dir):
        changed["data_dir"] = str(_folder("data_dir", parameters.records.data_dir))
    return changed


def fingerprint(folder: Path) -> str:
    """A hash of the paths, sizes and modification times of all files below `folder`."""
    digest = hashlib.sha256()
    for directory, directories, names in os.walk(folder):
        directories.sort()
        for name in sorted(names):
            path = Path(directory, name)
            # A link counts by what it leads to, if that is there.
            status = path.stat() if path.exists() else path.lstat()
            entry = f"{path.relative_to(folder)}\0{status.st_size}\0{status.st_mtime_ns}\0"
            digest.update(entry.encode(errors="surrogateescape"))
    return digest.hexdigest()[:16]


def _files_fingerprint(location: str) -> str:
    """Of a table's file, of a folder of them, or of what a pattern matches."""
    path = Path(location).expanduser()
    if path.is_dir():
        return fingerprint(path)
    found = sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207 - as given
    if not found:
        raise InputError(f"source: there is no file {location!r}; give a CSV that is there")
    digest = hashlib.sha256()
    for name in found:
        status = Path(name).stat()
        digest.update(f"{name}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    return digest.hexdigest()[:16]


def _is_local(location: str) -> bool:
    return "://" not in location


def _folder(name: str, location: str) -> Path:
    folder = Path(location).expanduser()
    if not folder.exists():
        raise InputError(f"{name}: there is no folder {location!r}; give one that is there")
    if not folder.is_dir():
        raise InputError(f"{name}: {location!r} is a file; give the folder that holds the classes")
    return folder.resolve()
