"""The order in which a tf.data.Dataset is read: by all workers, and by a training that goes on."""

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from trainer.engine import internals
from vertex.errors import InputError


def check_order(data: Any, validation: Any, workers: int, directory: str, steps: int) -> None:
    """Raise InputError for datasets whose order other workers or a resumed training can't repeat.

    `validation` is the validation data, `steps` those between checkpoints within an epoch.
    """
    if not isinstance(data, tf.data.Dataset):
        return
    if (workers > 1 or steps) and _is_unordered(data):
        reader = f"the {workers} workers" if workers > 1 else "a training that goes on"
        raise InputError(
            f"the data have deterministic=False, so that {reader} would read them in another "
            "order, and rows twice or never; leave it out of their map, interleave and options"
        )
    if directory and (used := [*itertools.chain(*map(internals.list_read, _walk(data)))]):
        warnings.warn(
            f"the data use the variable {used[0].name!r}, as layers and generators that draw do, "
            "which no checkpoint has, so that a training that goes on has other draws; call the "
            "layer in the model, or draw by functions of tf.random",
            stacklevel=3,
        )
    if directory and isinstance(validation, tf.data.Dataset):
        shuffled = {id(one) for one in _walk(data) if internals.draws_order(one)}
        if any(id(one) in shuffled for one in _walk(validation)):
            raise InputError(
                "the training and the validation data are parts of one dataset that is shuffled "
                "anew for each epoch, so that rows move between them and a training can't go on as "
                "if it had not ended; divide the data before they are shuffled, or give shuffle "
                "reshuffle_each_iteration=False"
            )


def skip_epochs(data: Any, epochs: int, steps: int | None) -> Any:
    """Return data after some epochs, for the order that a tf.data.Dataset would have then."""
    if not isinstance(data, tf.data.Dataset):
        return data
    if steps:
        return data.skip(epochs * steps)
    _draw_orders(data, (1 + int(_length(data) >= 0)) * epochs)
    return data


def skip_validations(data: Any, number: int, steps: int | None) -> None:
    """Let validation data have the order that they would have after some validations."""
    if isinstance(data, tf.data.Dataset):
        is_ended = 0 <= _length(data) <= (steps or _length(data))
        _draw_orders(data, (1 + int(is_ended)) * number)


def _draw_orders(data: tf.data.Dataset, number: int) -> None:
    """Make iterators, each of which draws an order.

    Keras' EpochIterator makes one for each epoch, and another at the end of data of known length.
    """
    for _ in range(number):
        iter(data)


def _length(data: tf.data.Dataset) -> int:
    """Return the number of batches, negative if it is unknown or infinite."""
    return int(data.cardinality())


def _walk(data: tf.data.Dataset) -> Iterator[tf.data.Dataset]:
    """Yield a dataset and those from which it is made."""
    yield data
    for made_from in internals.list_sources(data):
        yield from _walk(made_from)


def _is_unordered(data: tf.data.Dataset) -> bool:
    if data.options().deterministic is False:
        return True
    nodes = [*_walk(data)]
    if any(map(internals.is_unordered, nodes)):
        return True
    if not any("Interleave" in type(node).__name__ for node in nodes):
        return False
    # An interleave keeps its argument in the graph alone.
    return any(node.attr["deterministic"].s == b"false" for node in internals.get_graph(data).node)
