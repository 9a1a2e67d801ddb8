"""Small files under any URI, whole or not at all.

In Cloud Storage an object appears, or takes an older one's place, when all of it has come: it
is written under its name at once. A rename would be a copy and a removal there, with a moment
between them. In a folder, /gcs/ too, what a killed process had written stays: there a file gets
its name last.
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
    """Writes a file that appears under its name only when it is whole."""
    if not storage.is_object(uri):
        tf.io.gfile.makedirs(uri.rpartition("/")[0])
    storage.write_whole(uri, text.encode())


def copy_here(file: str, uri: str) -> None:
    """Copy a file (local or any URI) to `uri`, where it appears only when it is whole."""
    if storage.is_object(uri):
        tf.io.gfile.copy(file, uri, overwrite=True)
        return
    tf.io.gfile.makedirs(uri.rpartition("/")[0])
    tf.io.gfile.copy(file, f"{uri}.partial", overwrite=True)
    tf.io.gfile.rename(f"{uri}.partial", uri, overwrite=True)


@contextlib.contextmanager
def uploaded(uri: str) -> Iterator[str]:
    """Yield the name of a local file; what is written there then appears whole at `uri`."""
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder, uri.rpartition("/")[2]))
        yield file
        copy_here(file, uri)


def write_json(uri: str, content: Any) -> None:
    """Writes `content` as JSON, indented; NaN and infinity raise ValueError."""
    write_text(uri, json.dumps(content, indent=1, allow_nan=False) + "\n")


def write_csv(uri: str, rows: list[dict[str, Any]]) -> None:
    """Write rows, each of which may lack some of the columns."""
    text = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = csv.DictWriter(text, fieldnames=names, lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    write_text(uri, text.getvalue())


def read_text(uri: str) -> str | None:
    """Reads a file, or None where there is none."""
    try:
        with tf.io.gfile.GFile(uri, "rb") as file:
            # To its end, not to the size that it was said to have: between the two questions
            # another process may have replaced it.
            return b"".join(iter(lambda: file.read(_CHUNK), b"")).decode()
    except tf.errors.NotFoundError:
        return None


def read_json(uri: str) -> Any:
    """Reads a JSON file, or None where there is none."""
    text = read_text(uri)
    return None if text is None else json.loads(text)
