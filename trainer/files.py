"""Read small files under any URI, and write them atomically.

An object in Cloud Storage appears, or replaces an older one, when its upload is complete, so it is
written under its final name. (Renaming an object means copying and deleting it, which is not
atomic.) In a folder, even in one under /gcs/, a killed process leaves a partial file, so a file is
written under another name and then renamed.
"""

import contextlib
import csv
import io
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from trainer.data import storage

_CHUNK = 1 << 20


def write_text(uri: str, text: str) -> None:
    """Write a file atomically."""
    if not storage.is_object(uri):
        tf.io.gfile.makedirs(uri.rpartition("/")[0])
    storage.write_atomically(uri, text.encode())


def copy(file: str, uri: str) -> None:
    """Copy a file (a local path or any URI) to `uri` atomically."""
    if storage.is_object(uri):
        tf.io.gfile.copy(file, uri, overwrite=True)
        return
    tf.io.gfile.makedirs(uri.rpartition("/")[0])
    tf.io.gfile.copy(file, f"{uri}.partial", overwrite=True)
    tf.io.gfile.rename(f"{uri}.partial", uri, overwrite=True)


@contextlib.contextmanager
def uploaded(uri: str) -> Iterator[str]:
    """Yield the path of a local file to write, which is copied to `uri` atomically on exit."""
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder, uri.rpartition("/")[2]))
        yield file
        copy(file, uri)


def write_json(uri: str, content: Any) -> None:
    """Write `content` as indented JSON; raise ValueError for NaN and infinity."""
    write_text(uri, json.dumps(content, indent=1, allow_nan=False) + "\n")


def write_csv(uri: str, rows: list[dict[str, Any]]) -> None:
    """Write rows to a CSV file; a row may lack some of the columns."""
    text = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = csv.DictWriter(text, fieldnames=names, lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    write_text(uri, text.getvalue())


def read_text(uri: str) -> str | None:
    """Return the text of a file, or None if it does not exist."""
    try:
        with tf.io.gfile.GFile(uri, "rb") as file:
            # Read to the end, not to the reported size, because another process may replace the
            # file in between.
            return b"".join(iter(lambda: file.read(_CHUNK), b"")).decode()
    except tf.errors.NotFoundError:
        return None
