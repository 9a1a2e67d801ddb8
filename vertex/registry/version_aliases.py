"""The aliases of a version in the Model Registry: its role, and how they change."""

from collections.abc import Sequence
from typing import Any

from vertex.client.cloud_errors import NOT_FOUND, status_of, tolerated

CHAMPION = "champion"
CHALLENGER = "challenger"
ALIASES = (CHAMPION, CHALLENGER)
"""Roles of a version that are also its aliases."""


def merge(client: Any, version: str, changes: Sequence[str]) -> None:
    """Add aliases to a version; remove aliases that are given with the prefix `-`.

    A server may refuse to remove an alias that another process has removed, or whose version is
    gone: then it counts as removed.

    Args:
        version: projects/P/locations/L/models/M@version.
    """
    try:
        client.merge_version_aliases({"name": version, "version_aliases": [*changes]})
    except Exception as error:
        if status_of(error) // 100 != 4:
            raise
        present: Sequence[str] = ()
        with tolerated(NOT_FOUND):
            present = client.get_model(name=version).version_aliases
        needed = [
            change
            for change in changes
            if not change.startswith("-") or change.removeprefix("-") in present
        ]
        if len(needed) == len(changes):
            raise
        if needed:
            merge(client, version, needed)
