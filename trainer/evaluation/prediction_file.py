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
import pyarrow as pa

from trainer.data import storage
from trainer.evaluation.comparison import Scores, log_losses

if TYPE_CHECKING:  # Reading needs no TensorFlow.
    from trainer.evaluation.scoring import Evaluation


class Predictions(NamedTuple):
    """The content of a predictions.csv."""

    examples: pa.Table  # key and label; tables are equal if the test records are the same
    scores: Scores


def write(uri: str, evaluation: Evaluation) -> None:
    """Write an evaluation's predictions to `uri`."""
    answers, classes, stop = evaluation.answers, np.array(evaluation.classes), 0
    with storage.catch_write_errors(uri), storage.open_file(uri, "wb") as file:
        file.write(b"key,label,prediction,log_loss\n")
        for batch in answers.key_batches():
            start, stop = stop, stop + len(batch)
            names = [classes[answers.read(name, start, stop)] for name in ("label", "predicted")]
            losses = log_losses(answers.read("label_probability", start, stop)).tolist()
            keys = [key.decode(errors="replace") for key in batch]
            text = io.StringIO()
            rows = csv.writer(text, lineterminator="\n")
            rows.writerows(zip(keys, *names, losses, strict=True))
            file.write(text.getvalue().encode())


def parse(content: bytes) -> Predictions:
    """Parse the content of a file that `write` wrote."""
    # Imported here, because the command line must not wait for it.
    from pyarrow import csv as arrow_csv

    texts = dict.fromkeys(("key", "label", "prediction"), pa.string())
    table = arrow_csv.read_csv(
        pa.BufferReader(content),
        parse_options=arrow_csv.ParseOptions(newlines_in_values=True),
        convert_options=arrow_csv.ConvertOptions(column_types=texts | {"log_loss": pa.float64()}),
    )
    correct = np.array(table["label"]) == np.array(table["prediction"])
    scores = Scores(correct, table["log_loss"].to_numpy())
    return Predictions(table.select(["key", "label"]), scores)
