"""Find the files that the paths in a table mean, if these are not the files' own paths.

People write backslashes, `./`, absolute paths, URIs, another case, another Unicode form, only a
file's name, or the name without its suffix.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence

_ROOT = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:/+")
"""A scheme or a drive, as in gs:// and C:/."""


def match_paths(
    written: Sequence[str], files: Collection[str], location: str, suffixes: tuple[str, ...]
) -> dict[str, list[str]]:
    """Return the files that each written path may mean; none if no file has a relation to it.

    The first relation that a file has decides: the paths are the same; they differ in case or in
    the file's suffix; one ends in the other. In memory are only files whose names occur in a path.

    Args:
        written: paths as in the table, all different.
        files: paths in the folder; the absolute path or URI of the folder is `location`.
        suffixes: suffixes that a path may lack, in lower case.
    """
    folder = f"{_normalize(location)}/"
    paths = {path: _normalize(path).removeprefix(folder) for path in written}
    wanted = {path.casefold() for path in paths.values()}
    names = {_name(path) for path in wanted}
    same = defaultdict[str, list[str]](list)
    longer = defaultdict[str, list[str]](list)  # files by the wanted path in which theirs end
    for file in files:
        key = _normalize(file).casefold()
        stem, dot, suffix = key.rpartition(".")
        for known in (key, stem) if dot + suffix in suffixes else (key,):
            if _name(known) in names:
                same[known].append(file)
                for end in wanted.intersection(_ends(known)):
                    longer[end].append(file)

    def find(path: str) -> list[str]:
        key = path.casefold()
        if key in same:
            return [file for file in same[key] if _normalize(file) == path] or same[key]
        return [file for end in _ends(key) for file in same.get(end, [])] + longer.get(key, [])

    return {path: find(normalized) for path, normalized in paths.items()}


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
