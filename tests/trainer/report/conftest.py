import dataclasses
import functools

import numpy as np
import pytest

from tests.trainer.report.report_page import HOSTILE, report
from tests.trainer.report_samples import write_model, write_records
from trainer.evaluation.scoring import evaluate


@pytest.fixture(scope="session")
def evaluated(tmp_path_factory):
    """Return a function that evaluates a model of n classes: (evaluation, dataset)."""

    @functools.cache
    def evaluate_sample(classes: int = 5, *, right: float = 0.7, hostile: bool = False):
        folder, n = tmp_path_factory.mktemp("report"), max(60, 3 * classes)
        names = [f"class-{index}" for index in range(classes)]
        keys = None
        if hostile:
            names[1] = HOSTILE
            keys = [f"{HOSTILE}/{index}.jpg" for index in range(n)]
        random = np.random.default_rng(0)
        labels = random.integers(0, classes, n)
        pixels = random.integers(1, 40, (n, classes)).astype(np.uint8)
        pixels[np.arange(n), labels] += (200 * (random.random(n) < right)).astype(np.uint8)
        dataset = write_records(folder / "records", names, labels, pixels, keys=keys)
        return evaluate(write_model(folder / "model", names), dataset.uri), dataset

    return evaluate_sample


@pytest.fixture
def render(evaluated, tmp_path, equal_plots_drawn_once):
    """Return a function that writes the report of a sample, fields of which are replaced."""

    def render(classes=5, *, right=0.7, hostile=False, evaluation=(), dataset=(), **content):
        judged, records = evaluated(classes, right=right, hostile=hostile)
        changes = dict(evaluation)
        changes["metrics"] = judged.metrics | changes.get("metrics", {})
        judged = dataclasses.replace(judged, **changes)
        records = dataclasses.replace(records, **dict(dataset))
        return report(tmp_path / "report.html", judged, records, **content)

    return render
