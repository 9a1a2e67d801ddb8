"""Delete resources, folders and cache entries for `clean`, which shows them first."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

from components.registry.endpoint_changes import EndpointChanges
from components.vertex.cloud_errors import (
    FORBIDDEN,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    tolerated,
    translated,
)
from pipelines.project.connection import Connection


@dataclasses.dataclass(frozen=True)
class Item:
    """A resource, a gs:// folder or a set of cache entries to delete."""

    kind: str
    name: str
    detail: str
    delete: Callable[[], None]
    run: str = ""  # name of the run that it is deleted with


def resource_item(connection: Connection, kind: str, name: str, detail: str, method: Any) -> Item:
    """Return the item of a resource that `method` of a client deletes."""
    return Item(kind, name, detail, functools.partial(_delete, connection, method, name), name)


def endpoint_item(changes: EndpointChanges, name: str, detail: str) -> Item:
    """Return the item of an endpoint, with its deployed versions."""
    return Item("endpoint", name, detail, functools.partial(_delete_endpoint, changes, name), name)


def cache_item(connection: Connection, executions: Sequence[str], detail: str) -> Item:
    """Return the item of a run's steps in the cache."""
    delete = functools.partial(_delete_executions, connection, executions)
    return Item("cache", f"{len(executions)} entries", detail, delete)


def folder_item(connection: Connection, uri: str, detail: str, run: str) -> Item:
    """Return the item of a run's gs:// folder."""
    return Item("folder", uri, detail, functools.partial(_delete_folder, connection, uri), run)


def _delete(connection: Connection, method: Any, name: str) -> None:
    with translated(f"deleting {name}"):
        operation = None
        with tolerated(NOT_FOUND):
            operation = method(name=name)
        if operation:
            connection.finish(operation)


def _delete_endpoint(changes: EndpointChanges, name: str) -> None:
    with translated(f"deleting {name}"):
        changes.delete(name)


def _delete_executions(connection: Connection, names: Sequence[str]) -> None:
    """Delete steps from the cache; without permission for that, do nothing."""
    for name in names:
        with translated(f"deleting {name}"), tolerated(FORBIDDEN, NOT_FOUND, NOT_IMPLEMENTED):
            connection.metadata.delete_execution(name=name)


def _delete_folder(connection: Connection, uri: str) -> None:
    bucket, _, prefix = uri.removeprefix("gs://").partition("/")
    retry = connection.retry
    with translated(f"deleting {uri}"), tolerated(NOT_FOUND):
        for blob in connection.storage.list_blobs(bucket, prefix=prefix, retry=retry):
            with tolerated(NOT_FOUND):
                blob.delete(retry=retry)
