"""Find the files that the paths in a table mean, if these are not the files' own paths.

People write backslashes, `./`, absolute paths, URIs, another case, another Unicode form, only a
file's name, or the name without its suffix.
"""

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence

_ROOT = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:/+")
"""A scheme or a drive, as in gs:// and C:/."""
_ENOUGH = 2
"""Files that a message about an ambiguous path names."""


def match_paths(
    written: Sequence[str], files: Collection[str], location: str, suffixes: tuple[str, ...]
) -> dict[str, list[str]]:
    """Return the files that each written path may mean; none if no file has a relation to it.

    The first relation that a file has decides: the paths are the same; they differ in case; one
    ends in the other; and the last two without the file's suffix. A path that may mean many files
    has two of them. In memory are only files whose names occur in a path.

    Args:
        written: paths as in the table, all different.
        files: paths in the folder; the absolute path or URI of the folder is `location`.
        suffixes: suffixes that a path may lack, in lower case.
    """
    folder = f"{_normalize(location)}/"
    paths = {path: _normalize(path).removeprefix(folder) for path in written}
    wanted = {path.casefold() for path in paths.values()}
    by_name = _Index(wanted, ((_normalize(file).casefold(), file) for file in files))
    stems = ((_normalize(file).casefold().rpartition("."), file) for file in files)
    by_stem = _Index(
        wanted, ((stem, file) for (stem, dot, end), file in stems if dot + end in suffixes)
    )
    return {
        path: by_name.find(normalized) or by_stem.find(normalized)
        for path, normalized in paths.items()
    }


class _Index:
    """Files by their keys, casefolded paths."""

    def __init__(self, wanted: Collection[str], files: Iterable[tuple[str, str]]) -> None:
        names = {_name(path) for path in wanted}
        self._files: dict[str, list[str]] = {}
        # Files by the wanted path in which their key ends.
        self._ending: dict[str, list[str]] = {}
        for key, file in files:
            if _name(key) in names:
                self._files.setdefault(key, []).append(file)
                for end in _ends(key):
                    if end in wanted and len(known := self._ending.setdefault(end, [])) < _ENOUGH:
                        known.append(file)

    def find(self, path: str) -> list[str]:
        key = path.casefold()
        same = self._files.get(key, [])
        if same:
            return [file for file in same if _normalize(file) == path] or same
        shorter = [file for end in _ends(key) for file in self._files.get(end, [])]
        return shorter + self._ending.get(key, [])


def _normalize(path: str) -> str:
    """Return a path with slashes alone, in Unicode's composed form, without its root."""
    path = _ROOT.sub("", unicodedata.normalize("NFC", path).replace("\\", "/"))
    parts = (part.strip() for part in path.split("/"))
    return "/".join(part for part in parts if part not in ("", "."))


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _ends(path: str) -> Iterator[str]:
    """Yield the paths in which a path ends, from the longest to the name."""
    while "/" in path:
        path = path.partition("/")[2]
        yield path
