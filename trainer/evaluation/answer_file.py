"""predictions.csv: a model's answer to each example of the test split, in its order.

    key,label,prediction,log_loss
    roses/12.jpg,roses,tulips,1.7307

Two models that answered the same examples can be compared pair by pair; see
trainer.evaluation.comparison.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from trainer.data import storage
from trainer.evaluation.comparison import Scores, scores

if TYPE_CHECKING:  # to read answers takes no TensorFlow
    from trainer.evaluation.scoring import Evaluation

_HEADER = ["key", "label", "prediction", "log_loss"]


class Predictions(NamedTuple):
    """The content of a predictions.csv.

    Attributes:
        examples: key and label of each example; equal lists are the same test records.
        scores: of the model on them.
    """

    examples: list[tuple[str, str]]
    scores: Scores


def write(uri: str, evaluation: Evaluation) -> None:
    """Write the answers of an evaluation."""
    labels, probabilities = evaluation.answers
    losses = scores(labels, probabilities).losses
    assert losses is not None
    classes = evaluation.classes
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(_HEADER)
    predicted = probabilities.argmax(axis=1)
    for key, label, answer, loss in zip(evaluation.keys, labels, predicted, losses, strict=True):
        name = key.decode(errors="replace")
        rows.writerow([name, classes[label], classes[answer], repr(float(loss))])
    storage.write_whole(uri, text.getvalue().encode())


def read(content: bytes) -> Predictions:
    """Read what `write` has written."""
    rows = list(csv.DictReader(io.StringIO(content.decode(), newline="")))
    return Predictions(
        examples=[(row["key"], row["label"]) for row in rows],
        scores=Scores(
            np.array([row["label"] == row["prediction"] for row in rows], bool),
            np.array([float(row["log_loss"]) for row in rows]),
        ),
    )
