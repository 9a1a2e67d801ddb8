"""Fingerprint a source from its listing, to detect changes without opening a file.

    source = fingerprint("images:/data/photos", data_dir="")
    source.digest  # covers names, sizes, versions: changes if a file is added, removed or changed

Records of a source with the same digest are up to date.
"""

import hashlib
import inspect
from collections.abc import Iterable
from typing import NamedTuple

from trainer.data.file_listing import File, is_pattern, list_files
from trainer.data.sources import parse_source
from vertex.errors import InputError


class Fingerprint(NamedTuple):
    """The state of a source."""

    digest: str  # hex
    files: int  # number of files
    bytes: int  # total size of the files


def fingerprint(source: str, data_dir: str) -> Fingerprint:
    """Return the fingerprint of a source; `source` and `data_dir` are as in `RecordOptions`.

    Raise InputError for a source that is unknown, can't be listed or has no files.
    """
    kind, place = parse_source(source)
    version, location = kind.version(place, data_dir)
    # The examples also depend on the source's code, which may be the user's.
    version += inspect.getsource(inspect.getmodule(kind) or kind)
    if not location:
        return _digest(version, [])
    matching = bool(kind.endings) and is_pattern(location)
    try:
        files: Iterable[File] = list_files(location, matching=matching)
        if kind.endings and not matching:
            files = (
                file for file in files if not file.path or file.path.lower().endswith(kind.endings)
            )
        result = _digest(version, files)
    except OSError as error:
        raise InputError(
            f"source={source!r} can't be listed: {error.filename or location}: "
            f"{error.strerror or error}"
        ) from None
    if not result.files:
        raise InputError(f"source={source!r}: there is no file at {location}")
    return result


def _digest(name: str, files: Iterable[File]) -> Fingerprint:
    digest, count, size = hashlib.sha256(name.encode()), 0, 0
    for file in files:
        entry = f"\n{file.path}\0{file.size}\0{file.version}"
        # Names that are not UTF-8 are also listed, and rejected later.
        digest.update(entry.encode(errors="surrogateescape"))
        count += 1
        size += file.size
    return Fingerprint(digest.hexdigest()[:32], count, size)
