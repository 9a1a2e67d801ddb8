"""Serialized tf.Examples, as batch prediction sends the records of TFRecord files."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf


def features_of(content: bytes) -> Mapping[str, Any]:
    """Return the features of a serialized tf.Example by name; {} where it is none."""
    try:
        return tf.train.Example.FromString(content).features.feature
    except Exception:  # DecodeError, whose place in protobuf depends on its version.
        return {}
