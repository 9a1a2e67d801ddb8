"""Compare the answers of a server with those by which its model was judged."""

import base64
from collections.abc import Callable, Sequence

import numpy as np

from trainer.data import schema
from trainer.errors import InputError
from trainer.evaluation.prediction import ServedModel, stored_batches

TOLERANCE = 1e-4
"""Largest difference of a probability: other machines add up in another order."""
_RECORDS = 32


def check(model: str, records: str, ask: Callable[[dict[str, str]], Sequence[float]]) -> int:
    """Ask a server about the first records of the test split; return how many.

    Args:
        model: URI of the SavedModel that was judged.
        records: URI of the records that judged it.
        ask: gets an instance, {"b64": a serialized tf.Example}; returns its probabilities.

    Raises:
        InputError: an answer differs from the model's own by more than `TOLERANCE`.
    """
    dataset = schema.load(records)
    examples = next(iter(stored_batches(dataset, "test", _RECORDS)))
    expected = ServedModel(model).answer(examples, dataset)
    for number, (example, wanted) in enumerate(zip(examples.numpy(), expected, strict=True)):
        given = np.array(ask({"b64": base64.b64encode(example).decode()}))
        if given.shape != wanted.shape:
            raise InputError(
                f"record {number} of test is answered with {given.size} probabilities, and the "
                f"records have {wanted.size} classes"
            )
        worst = int(np.abs(given - wanted).argmax())
        # NaN, too, is not close.
        if not np.abs(given - wanted)[worst] <= TOLERANCE:
            raise InputError(
                f"record {number} of test is {dataset.classes[worst]} with probability "
                f"{given[worst]:.6f}, and {wanted[worst]:.6f} by evaluate_model; see the log of "
                "the deployed model, and whether serving_image is the one for this model"
            )
    return len(expected)
