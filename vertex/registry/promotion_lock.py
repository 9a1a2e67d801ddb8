"""A lock on the promotions of a model, kept in the aliases of its versions.

The Model Registry has no compare-and-set for aliases: mergeVersionAliases accepts no etag. Each
process sets an alias of its own, promoting-<number>-<token>, and reads those of the others. This
is Lamport's one-bit algorithm, in which the lower number and then the lower token goes first.
https://lamport.azurewebsites.net/pubs/mutual2.pdf
https://docs.cloud.google.com/gemini-enterprise-agent-platform/reference/rest/v1/projects.locations.models/mergeVersionAliases
"""

import contextlib
import secrets
import sys
import time
from collections.abc import Iterator
from typing import Any

from vertex.client.cloud_errors import NOT_FOUND, tolerated
from vertex.registry import version_aliases

LEASE_SECONDS = 60.0
"""Longest wait for another process's promotion, which is then assumed to have crashed."""
_PAUSE_SECONDS = 0.2
_PREFIX = "promoting-"


@contextlib.contextmanager
def promotion_lock(client: Any, model: str, number: str) -> Iterator[None]:
    """Hold the lock of `model` (projects/P/locations/L/models/M) on behalf of a version.

    Processes that promote the same version exclude each other, too.
    """
    ours = (number, f"{_PREFIX}{number}-{secrets.token_hex(8)}")

    def merge(flag: tuple[str, str], sign: str = "") -> None:
        version, alias = flag
        version_aliases.merge(client, f"{model}@{version}", [f"{sign}{alias}"])

    def list_others(lower: bool) -> list[tuple[str, str]]:
        """Return the versions and aliases of other processes that go first, or of the rest."""
        with tolerated(NOT_FOUND):
            flags = [
                (version.version_id, alias)
                for version in client.list_model_versions(name=model)
                for alias in version.version_aliases
                if alias.startswith(_PREFIX)
            ]
            return [flag for flag in flags if flag != ours and (_rank(flag) < _rank(ours)) == lower]
        return []

    def wait(*, lower: bool) -> None:
        deadline, said = time.monotonic() + LEASE_SECONDS, False
        while others := list_others(lower):
            if not said:
                _say_waiting(model, others)
                said = True
            if time.monotonic() > deadline:
                for other in others:
                    merge(other, "-")
            time.sleep(_PAUSE_SECONDS)

    merge(ours)
    try:
        while list_others(lower=True):
            merge(ours, "-")
            wait(lower=True)
            merge(ours)
        wait(lower=False)
        yield
    finally:
        merge(ours, "-")


def _rank(flag: tuple[str, str]) -> tuple[int, str]:
    version, alias = flag
    return int(version), alias


def _say_waiting(model: str, others: list[tuple[str, str]]) -> None:
    name = model.rpartition("/")[2]
    names = " and ".join(dict.fromkeys(f"{name}@{version}" for version, _ in others))
    aliases = " and ".join(alias for _, alias in others)
    print(
        f"waiting for the promotion of {names} to end; if it was killed, its alias {aliases} is "
        f"removed after {LEASE_SECONDS:g} s",
        file=sys.stderr,
        flush=True,
    )
