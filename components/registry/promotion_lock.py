"""A lock on the promotions of a model, kept in the aliases of its versions.

The Model Registry has no compare-and-set for aliases: mergeVersionAliases takes no etag. Each
version sets an alias of its own, promoting-<its number>, and reads those of the others. This is
Lamport's one-bit algorithm, in which the lower number goes first.
https://lamport.azurewebsites.net/pubs/mutual2.pdf
https://docs.cloud.google.com/gemini-enterprise-agent-platform/reference/rest/v1/projects.locations.models/mergeVersionAliases
"""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from components.cloud_errors import NOT_FOUND, tolerated

LEASE_SECONDS = 60.0
"""Longest wait for another version; one that takes longer is assumed to have crashed."""
_PAUSE_SECONDS = 0.2


@contextlib.contextmanager
def promotion_lock(client: Any, model: str, number: str) -> Iterator[None]:
    """Hold the lock of `model` (projects/P/locations/L/models/M) on behalf of a version."""

    def merge(version: str, alias: str) -> None:
        name = f"{model}@{version}"
        client.merge_version_aliases({"name": name, "version_aliases": [alias]})

    def list_others(lower: bool) -> list[str]:
        versions = {}
        with tolerated(NOT_FOUND):
            versions = {one.version_id: one for one in client.list_model_versions(name=model)}
        return [
            one
            for one, version in versions.items()
            if _flag_alias(one) in version.version_aliases
            and (int(one) < int(number)) == lower
            and one != number
        ]

    def wait(*, lower: bool) -> None:
        deadline = time.monotonic() + LEASE_SECONDS
        while found := list_others(lower):
            if time.monotonic() > deadline:
                for one in found:
                    merge(one, f"-{_flag_alias(one)}")
            time.sleep(_PAUSE_SECONDS)

    merge(number, _flag_alias(number))
    try:
        while list_others(lower=True):
            merge(number, f"-{_flag_alias(number)}")
            wait(lower=True)
            merge(number, _flag_alias(number))
        wait(lower=False)
        yield
    finally:
        merge(number, f"-{_flag_alias(number)}")


def _flag_alias(number: str) -> str:
    return f"promoting-{number}"
