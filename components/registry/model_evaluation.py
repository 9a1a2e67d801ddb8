"""Convert an evaluation to the Model Registry's schema."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from trainer.evaluation.scoring import Evaluation

THRESHOLDS = tuple([n / 20 for n in range(20)] + [0.96, 0.97, 0.98, 0.99])
"""0, 0.05, ... 0.95, 0.96, ... 0.99, as in Vertex AI's own evaluations."""


def build_classification_metrics(evaluation: Evaluation) -> dict[str, Any]:
    """Return the metrics that are defined, in the schema classification_metrics_1.0.0."""
    metrics = {
        "auPrc": evaluation.pr_auc,
        "auRoc": evaluation.roc_auc,
        "logLoss": evaluation.log_loss,
        "confidenceMetrics": operating_points(evaluation.answers.blocks()),
        "confusionMatrix": {
            "annotationSpecs": [
                {"id": str(index), "displayName": name}
                for index, name in enumerate(evaluation.classes)
            ],
            "rows": evaluation.confusion_matrix,
        },
    }
    return {name: value for name, value in metrics.items() if value is not None}


def operating_points(answers: Iterable[tuple[np.ndarray, np.ndarray]]) -> list[dict[str, float]]:
    """Return precision and recall at each of THRESHOLDS.

    Each block of answers has labels, int [m], and probabilities, float32 [m, classes].

    A class is predicted if its probability reaches the threshold. Values are micro-averages over
    all pairs of an example and a class; those ending in At1 count only the most probable class of
    an example. Precision is 1 if nothing is predicted.
    """
    n = pairs = 0
    counts = np.zeros((len(THRESHOLDS), 4), int)
    for labels, probabilities in answers:
        n, pairs = n + len(labels), pairs + probabilities.size
        of_label, best = probabilities[np.arange(len(labels)), labels], probabilities.max(axis=1)
        right = best[probabilities.argmax(axis=1) == labels]
        counted = (probabilities, of_label, best, right)
        counts += [
            [np.count_nonzero(values >= threshold) for values in counted]
            for threshold in THRESHOLDS
        ]
    points = []
    for threshold, row in zip(THRESHOLDS, counts.tolist(), strict=True):
        predicted, hits, first, first_hits = row
        points.append(
            {
                "confidenceThreshold": threshold,
                "precision": hits / predicted if predicted else 1.0,
                "recall": hits / n,
                "f1Score": 2 * hits / (predicted + n),
                "falsePositiveRate": (predicted - hits) / max(1, pairs - n),
                "precisionAt1": first_hits / first if first else 1.0,
                "recallAt1": first_hits / n,
                "f1ScoreAt1": 2 * first_hits / (first + n),
            }
        )
    return points
