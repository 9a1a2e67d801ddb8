"""Evaluate a SavedModel on a held-out split.

    evaluation = evaluate("gs://bucket/run/model", "gs://bucket/records")
    evaluation.metrics["accuracy"]  # Estimate(value=0.972, low=0.949, high=0.985)

Only the SavedModel and the records are read, so the evaluation covers exactly what will be served:
the model's parsing, decoding, preprocessing and class names.
"""

import time
from typing import Any

from trainer.data import schema
from trainer.evaluation.prediction import ServedModel, predict
from trainer.metrics.disk_columns import ColumnValues
from trainer.metrics.worst_examples import WorstExamples
from vertex.errors import InputError

WORST_KEPT = 24


def evaluate(model_uri: str, dataset_uri: str) -> Any:
    """Evaluate the SavedModel at `model_uri` on the test split of the dataset at `dataset_uri`.

    Return the evaluation of the dataset's task, such as a `ClassEvaluation`.

    The model has the signature `serving_examples` of trainer/exported/export.py. Answers and
    columns are on the local disk: for each example its key, its answer (of a classifier, 12 bytes
    and 4 bytes per class), and 4 or 8 bytes per column. Memory grows by 4 bytes per example while
    a class is ranked, and by up to 8 while a column is ranked or a metric is computed.
    """
    dataset = schema.load_dataset(dataset_uri)
    total = dataset.splits["test"].examples
    if not total:
        raise InputError(f"the test split of {dataset_uri} is empty; change split_fractions")
    values, worst = ColumnValues(dataset, "test"), WorstExamples(WORST_KEPT)
    model = ServedModel(model_uri, dataset)
    start = time.monotonic()
    answers = predict(model, worst, values)
    seconds = time.monotonic() - start
    print(f"Evaluated {total:,} test examples in {seconds:.1f} s ({total / seconds:,.0f} a second)")
    return model.task.evaluate(
        answers,
        values,
        model=model_uri,
        dataset=dataset_uri,
        examples=total,
        seconds=seconds,
        worst=worst.list_examples(dataset),
    )
