"""Each metric of a task takes at most 8 bytes of memory an example."""

import dataclasses
import tracemalloc

import numpy as np
import pytest

from tests import tables
from trainer.metrics import BLOCK
from trainer.metrics.disk_columns import ColumnValues
from trainer.metrics.metric import Metric
from trainer.tasks import task_of
from trainer.tasks.label_kinds import KINDS

FEW, MANY = 2 * BLOCK, 6 * BLOCK
"""Numbers of examples, which all tasks read in whole blocks."""


def answer_classes(labels, generator):
    shares = generator.random(len(labels), np.float32)
    return labels % 2, {"probabilities": np.stack([shares, 1 - shares], axis=1)}


def answer_numbers(labels, generator):
    values = labels.astype(np.float32) + generator.random(len(labels), np.float32)
    return labels, {"value": values, "low": values - 1, "high": values + 1}


def answer_label_sets(labels, generator):
    probabilities = generator.random((len(labels), 4), np.float32)
    given = np.where(probabilities > 0.5, b"a", b"")
    return labels[:, None] % [2, 3, 5, 7] == 0, {"probabilities": probabilities, "labels": given}


ANSWERS = {
    "classes": ({"column": "kind"}, answer_classes),
    "numeric": ({"column": "size", "type": "numeric"}, answer_numbers),
    "multilabel": ({"column": "tags", "type": "multilabel"}, answer_label_sets),
}


@pytest.fixture(params=KINDS)
def measure_growth(request, tmp_path):
    """Return a function that measures the bytes an example of each metric: sums and computation."""
    label, answer = ANSWERS[request.param]
    rows = [f"{n % 9},{'ab'[n % 2]},{n},{';'.join('abcd'[: n % 5])}" for n in range(200)]
    table = tables.write_csv(tmp_path / "rows.csv", rows, "number,kind,size,tags")
    columns = [{"name": "number", "type": "numeric"}]
    dataset = tables.write(
        table, tmp_path / "records", label=label, columns=columns, crosses=[], weight_column=""
    )
    values = ColumnValues(dataclasses.replace(dataset, features=[]), "test")
    fields = {"model": "", "dataset": "", "seconds": 1.0, "worst": []}

    def find_peaks(metrics, examples):
        """Return the most memory while each metric is computed, by name."""
        peaks = {}

        def watch(metric):
            def compute(sums):
                tracemalloc.reset_peak()
                value = metric.compute(sums)
                peaks[metric.name] = tracemalloc.get_traced_memory()[1]
                return value

            return dataclasses.replace(metric, compute=compute) if metric.compute else metric

        kind = type(task_of(dataset))
        watched = tuple(map(watch, (*kind.metrics, *metrics)))
        task = type("Watched", (kind,), {"metrics": watched})(dataset)
        generator, answers = np.random.default_rng(0), task.open_answers(examples)
        for start in range(0, examples, BLOCK):
            labels, outputs = answer(np.arange(start, start + BLOCK), generator)
            answers.add_batch(labels, outputs, [b""] * BLOCK)
        tracemalloc.start()
        try:
            task.evaluate(answers, values, examples=examples, **fields)
        finally:
            tracemalloc.stop()
        return peaks

    def measure(*metrics):
        few, many = (find_peaks(metrics, examples) for examples in (FEW, MANY))
        return {name: (many[name] - few[name]) / (MANY - FEW) for name in few}

    return measure


def read_all_labels(sums):
    return len([label for labels, *_ in sums.answers.blocks() for label in labels])


def test_metric_takes_at_most_8_bytes_an_example(measure_growth):
    growth = measure_growth(Metric("careless", compute=read_all_labels))
    assert growth.pop("careless") > 8  # The measurement notices a metric that keeps every label.
    assert len(growth) > 2 and max(growth.values()) <= 8
