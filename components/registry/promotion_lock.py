"""A lock on the promotions of a model, kept in the aliases of its versions.

The Model Registry has no compare-and-set for aliases: mergeVersionAliases accepts no etag. Each
version sets its own alias, promoting-<number>, and reads the aliases of the other versions. This
is Lamport's one-bit algorithm, in which the lower number goes first.
https://lamport.azurewebsites.net/pubs/mutual2.pdf
https://docs.cloud.google.com/gemini-enterprise-agent-platform/reference/rest/v1/projects.locations.models/mergeVersionAliases
"""

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import Any

from components.vertex.cloud_errors import NOT_FOUND, tolerated

LEASE_SECONDS = 60.0
"""Longest wait for another version's promotion, which is then assumed to have crashed."""
_PAUSE_SECONDS = 0.2


@contextlib.contextmanager
def promotion_lock(client: Any, model: str, number: str) -> Iterator[None]:
    """Hold the lock of `model` (projects/P/locations/L/models/M) on behalf of a version."""

    def merge(version: str, alias: str) -> None:
        name = f"{model}@{version}"
        client.merge_version_aliases({"name": name, "version_aliases": [alias]})

    def list_others(lower: bool) -> list[str]:
        with tolerated(NOT_FOUND):
            return [
                version.version_id
                for version in client.list_model_versions(name=model)
                if _flag_alias(version.version_id) in version.version_aliases
                and (int(version.version_id) < int(number)) == lower
                and version.version_id != number
            ]
        return []

    def wait(*, lower: bool) -> None:
        deadline, said = time.monotonic() + LEASE_SECONDS, False
        while others := list_others(lower):
            if not said:
                _say_waiting(model, others)
                said = True
            if time.monotonic() > deadline:
                for other in others:
                    merge(other, f"-{_flag_alias(other)}")
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


def _say_waiting(model: str, others: list[str]) -> None:
    names = " and ".join(f"{model.rpartition('/')[2]}@{other}" for other in others)
    aliases = " and ".join(map(_flag_alias, others))
    print(
        f"waiting for the promotion of {names} to end; if it was killed, its alias {aliases} is "
        f"removed after {LEASE_SECONDS:g} s",
        file=sys.stderr,
        flush=True,
    )


def _flag_alias(number: str) -> str:
    return f"promoting-{number}"
