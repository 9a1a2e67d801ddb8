"""predictions.csv: a model's prediction for each example of the test split, in stored order.

    key,label,prediction,log_loss,probability_roses,probability_tulips
    roses/12.jpg,roses,tulips,1.7307,0.17716,0.82284

The columns after the key are the task's: label, prediction, the loss of the example, and others.
If the records have weights, `weight` is the last column. Keys and classes are written as they are,
because programs join them with the records: a spreadsheet may run one that begins with = + - or @
as a formula, so its columns are to be imported as text.

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
from trainer.metrics.comparison import Scores
from trainer.tasks.label_kinds import KINDS, REGRESSION, LabelKind

if TYPE_CHECKING:  # Reading needs no TensorFlow.
    from trainer.metrics.disk_columns import Answers


_WEIGHT = "weight"


class Predictions(NamedTuple):
    """The content of a predictions.csv."""

    examples: pa.Table  # key and label; tables are equal if the test records are the same
    kind: LabelKind
    scores: Scores


def write(uri: str, answers: Answers) -> None:
    """Write a model's answers to `uri`."""
    stop = 0
    with storage.catch_write_errors(uri), storage.open_file(uri, "wb") as file:
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        weight = [_WEIGHT] if answers.is_weighted else []
        rows.writerow(["key", *answers.titles(), *weight])
        for batch in answers.key_batches():
            start, stop = stop, stop + len(batch)
            keys = [key.decode(errors="replace") for key in batch]
            columns = answers.format_rows(start, stop)
            if answers.is_weighted:
                columns.append(answers.read_weights(start, stop).tolist())
            rows.writerows(zip(keys, *columns, strict=True))
            file.write(text.getvalue().encode())
            text.seek(0)
            text.truncate()


def parse(content: bytes) -> Predictions:
    """Parse the content of a file that `write` wrote."""
    # Imported here, because the command line must not wait for it.
    from pyarrow import csv as arrow_csv

    lines = io.BytesIO(content)
    names = next(csv.reader(line.decode() for line in lines), [])
    start = lines.tell()  # The header has several lines if a class has a line break.
    (kind,) = (kind for kind in KINDS.values() if kind.loss in names)
    answer = pa.float64() if kind is REGRESSION else pa.string()
    types = {"key": pa.string(), "label": answer, "prediction": answer, kind.loss: pa.float64()}
    if _WEIGHT in names:
        types[_WEIGHT] = pa.float64()
    table = arrow_csv.read_csv(
        pa.BufferReader(pa.py_buffer(content)[start:]),
        read_options=arrow_csv.ReadOptions(column_names=names),
        parse_options=arrow_csv.ParseOptions(newlines_in_values=True),
        convert_options=arrow_csv.ConvertOptions(column_types=types, include_columns=list(types)),
    )
    labels, losses = np.array(table["label"]), table[kind.loss].to_numpy()
    weights = table[_WEIGHT].to_numpy() if _WEIGHT in names else np.ones(len(labels))
    weights = weights / weights.mean()
    if kind is REGRESSION:
        scores = Scores(None, losses, labels, weights)
    else:
        scores = Scores(labels == np.array(table["prediction"]), losses, None, weights)
    return Predictions(table.select(["key", "label"]), kind, scores)
