"""Small files under any URI, whole or not at all."""

import json
from typing import Any

import tensorflow as tf


def write_text(uri: str, text: str) -> None:
    """Writes a file that appears under its name only when it is whole."""
    tf.io.gfile.makedirs(uri.rpartition("/")[0])
    partial = f"{uri}.partial"
    with tf.io.gfile.GFile(partial, "w") as file:
        file.write(text)
    tf.io.gfile.rename(partial, uri, overwrite=True)


def write_json(uri: str, content: Any) -> None:
    """Writes `content` as JSON, indented; NaN and infinity raise ValueError."""
    write_text(uri, json.dumps(content, indent=1, allow_nan=False) + "\n")


def read_text(uri: str) -> str | None:
    """Reads a file, or None where there is none."""
    try:
        with tf.io.gfile.GFile(uri) as file:
            return file.read()
    except tf.errors.NotFoundError:
        return None


def read_json(uri: str) -> Any:
    """Reads a JSON file, or None where there is none."""
    text = read_text(uri)
    return None if text is None else json.loads(text)
