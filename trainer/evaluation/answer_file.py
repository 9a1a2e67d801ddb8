"""predictions.csv: a model's prediction for each example of the test split, in stored order.

    key,label,prediction,log_loss
    roses/12.jpg,roses,tulips,1.7307

Two models with predictions for the same examples can be compared pair by pair; see
trainer.evaluation.comparison.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from trainer.data import storage
from trainer.evaluation.comparison import Scores, log_losses

if TYPE_CHECKING:  # reading needs no TensorFlow
    from trainer.evaluation.scoring import Evaluation


class Predictions(NamedTuple):
    """The content of a predictions.csv."""

    examples: list[tuple[str, str]]  # key and label; equal lists mean the same test records
    scores: Scores


def write(uri: str, evaluation: Evaluation) -> None:
    """Write an evaluation's predictions to `uri`."""
    labels, probabilities = evaluation.answers
    classes = np.array(evaluation.classes)
    keys = [key.decode(errors="replace") for key in evaluation.keys]
    losses = log_losses(labels, probabilities).tolist()
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["key", "label", "prediction", "log_loss"])
    rows.writerows(
        zip(keys, classes[labels], classes[probabilities.argmax(axis=1)], losses, strict=True)
    )
    storage.write_whole(uri, text.getvalue().encode())


def read(content: bytes) -> Predictions:
    """Parse the content of a file that `write` wrote."""
    rows = list(csv.DictReader(io.StringIO(content.decode(), newline="")))
    return Predictions(
        examples=[(row["key"], row["label"]) for row in rows],
        scores=Scores(
            np.array([row["label"] == row["prediction"] for row in rows], bool),
            np.array([float(row["log_loss"]) for row in rows]),
        ),
    )
