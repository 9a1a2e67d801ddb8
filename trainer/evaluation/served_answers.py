"""Compare a server's predictions with those of the SavedModel that was evaluated."""

import base64
from collections.abc import Callable, Sequence

import numpy as np

from trainer.data import schema
from trainer.errors import InputError
from trainer.evaluation.prediction import ServedModel, read_stored_batches

TOLERANCE = 1e-4
"""Largest difference of a probability: machines differ in the order of summation."""
_RECORDS = 32


def check(model: str, records: str, ask: Callable[[dict[str, str]], Sequence[float]]) -> int:
    """Compare predictions of the first records of the test split; return their number.

    Raise InputError if one differs from the SavedModel's by more than `TOLERANCE`.

    Args:
        model: URI of the SavedModel that was evaluated.
        records: URI of the records that it was evaluated on.
        ask: sends an instance, {"b64": a serialized tf.Example}, and returns its probabilities.
    """
    dataset = schema.load_dataset(records)
    examples = next(iter(read_stored_batches(dataset, "test", _RECORDS)))
    expected = ServedModel(model).answer(examples, dataset)
    for number, (example, wanted) in enumerate(zip(examples.numpy(), expected, strict=True)):
        given = np.array(ask({"b64": base64.b64encode(example).decode()}))
        if given.shape != wanted.shape:
            raise InputError(
                f"the server answers test record {number} with {given.size} probabilities, but the "
                f"records have {wanted.size} classes"
            )
        worst = int(np.abs(given - wanted).argmax())
        # NaN fails this comparison, too.
        if not np.abs(given - wanted)[worst] <= TOLERANCE:
            raise InputError(
                f"the server gives test record {number} a probability of {given[worst]:.6f} for "
                f"{dataset.classes[worst]}, its SavedModel {wanted[worst]:.6f}; see the log of the "
                "deployed model, and check that serving_image fits the model"
            )
    return len(expected)
