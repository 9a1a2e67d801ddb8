"""predictions.csv: a model's prediction for each example of the test split, in stored order.

    key,label,prediction,log_loss,probability_roses,probability_tulips
    roses/12.jpg,roses,tulips,1.7307,0.17716,0.82284

The probabilities are left out if there are more than MOST_PROBABILITIES of them.

Two models with predictions for the same examples can be compared pair by pair; see
trainer.metrics.comparison.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from trainer.data import storage
from trainer.metrics.comparison import Scores, log_losses

if TYPE_CHECKING:  # Reading needs no TensorFlow.
    from trainer.evaluation.scoring import Evaluation

MOST_PROBABILITIES = 10_000_000
"""So many take 3 s of CPU time and 0.13 GB; a million examples of 1,000 classes would be 13 GB."""


COLUMNS = ("key", "label", "prediction", "log_loss")


class Predictions(NamedTuple):
    """The content of a predictions.csv."""

    examples: pa.Table  # key and label; tables are equal if the test records are the same
    scores: Scores


def write(uri: str, evaluation: Evaluation) -> None:
    """Write an evaluation's predictions to `uri`."""
    answers, classes, stop = evaluation.answers, np.array(evaluation.classes), 0
    shown = range(len(classes))
    if answers.rows * len(classes) > MOST_PROBABILITIES:
        shown = range(0)
        print(f"predictions.csv holds no probabilities: more than {MOST_PROBABILITIES:,}")
    with storage.catch_write_errors(uri), storage.open_file(uri, "wb") as file:
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow([*COLUMNS, *(f"probability_{classes[number]}" for number in shown)])
        for batch in answers.key_batches():
            start, stop = stop, stop + len(batch)
            names = [classes[answers.read(name, start, stop)] for name in ("label", "predicted")]
            losses = log_losses(answers.read("label_probability", start, stop)).tolist()
            keys = [key.decode(errors="replace") for key in batch]
            # As text, each has as many digits as a float32.
            columns = (pa.array(answers.read(number, start, stop)) for number in shown)
            probabilities = [column.cast(pa.string()).to_pylist() for column in columns]
            rows.writerows(zip(keys, *names, losses, *probabilities, strict=True))
            file.write(text.getvalue().encode())
            text.seek(0)
            text.truncate()


def parse(content: bytes) -> Predictions:
    """Parse the content of a file that `write` wrote."""
    # Imported here, because the command line must not wait for it.
    from pyarrow import csv as arrow_csv

    texts = dict.fromkeys(COLUMNS[:3], pa.string())
    types = texts | {"log_loss": pa.float64()}
    table = arrow_csv.read_csv(
        pa.BufferReader(content),
        parse_options=arrow_csv.ParseOptions(newlines_in_values=True),
        convert_options=arrow_csv.ConvertOptions(column_types=types, include_columns=COLUMNS),
    )
    correct = np.array(table["label"]) == np.array(table["prediction"])
    scores = Scores(correct, table["log_loss"].to_numpy())
    return Predictions(table.select(["key", "label"]), scores)
