"""The digests of a model's files, by which every reader recognizes damage.

Training writes assets.extra/files.sha256 into the SavedModel's folder last, in the format of
sha256sum: `cd model && sha256sum -c assets.extra/files.sha256` checks the files by hand. The
digest of this list identifies the model; the Model Registry keeps it as a label of the version.
"""

from __future__ import annotations

import hashlib

from trainer.data import storage
from trainer.data.file_listing import list_files
from trainer.data.schema import EXTRA_ASSETS
from trainer.data.storage import join
from vertex.errors import InputError

LIST = f"{EXTRA_ASSETS}/files.sha256"
_ABOVE = "../"
"""Prefix of a file beside the model's folder: the registry's copy of the folder lacks it."""
_DIGITS = 32
_NO_FILE = (FileNotFoundError, NotADirectoryError)


def write_digests(model: str, *beside: str) -> None:
    """Write the digests of all files in a SavedModel's folder (URI), and of files beside it."""
    inside = sorted(file.path for file in list_files(model))
    files = [*inside, *(f"{_ABOVE}{name}" for name in beside)]
    lines = [f"{storage.sha256(_locate(model, name))}  {name}\n" for name in files if name != LIST]
    storage.write_atomically(join(model, LIST), "".join(lines).encode())


def identify(model: str) -> str:
    """Return the digest that identifies a SavedModel (URI); empty if it has no list of digests."""
    try:
        return hashlib.sha256(storage.read(join(model, LIST))).hexdigest()[:_DIGITS]
    except _NO_FILE:
        return ""


def check(model: str, expected: str = "") -> None:
    """Raise InputError if a file of a SavedModel (URI) is damaged, missing or of another model.

    `expected` is the result of `identify` when the model was registered. Without it, a SavedModel
    that another program exported, without a list of digests, is not checked.
    """
    if expected and identify(model) != expected:
        raise InputError(
            f"{join(model, LIST)} is damaged, or the folder holds another model than the "
            "registered one; restore the folder, or train the model again"
        )
    for name, digest in _read_digests(model).items():
        if not name.startswith(_ABOVE):
            _check_file(join(model, name), digest)


def check_beside(model: str, name: str) -> None:
    """Raise InputError if the file `name` beside a SavedModel (URI) is damaged."""
    if digest := _read_digests(model).get(f"{_ABOVE}{name}"):
        _check_file(_locate(model, f"{_ABOVE}{name}"), digest)


def _locate(model: str, name: str) -> str:
    """Return the URI of a file in or beside the model's folder: object names have no `..`."""
    if name.startswith(_ABOVE):
        return join(model.rpartition("/")[0], name.removeprefix(_ABOVE))
    return join(model, name)


def _check_file(uri: str, digest: str) -> None:
    try:
        problem = "" if storage.sha256(uri) == digest else "is damaged: its SHA-256 has changed"
    except (OSError, ValueError):  # ValueError: the name in a damaged list contains a zero byte.
        problem = "is missing"
    if problem:
        raise InputError(
            f"{uri} {problem} since the model was trained; restore the file, or train the model "
            "again"
        )


def _read_digests(model: str) -> dict[str, str]:
    """Return the digests (hex) of files by their path in the model's folder."""
    try:
        lines = storage.read(join(model, LIST)).decode("utf-8", "replace").splitlines()
    except _NO_FILE:
        return {}
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
