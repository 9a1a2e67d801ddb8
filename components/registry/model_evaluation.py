"""An evaluation as the Model Registry shows it."""

from typing import Any

from trainer.evaluation.operating_points import operating_points
from trainer.evaluation.scoring import Evaluation


def classification_metrics(evaluation: Evaluation) -> dict[str, Any]:
    """Its metrics in the schema classification_metrics_1.0.0, those undefined left out."""
    assert evaluation.answers
    metrics = {
        "auPrc": evaluation.pr_auc,
        "auRoc": evaluation.roc_auc,
        "logLoss": evaluation.log_loss,
        "confidenceMetrics": [
            {
                "confidenceThreshold": point.threshold,
                "precision": point.precision,
                "recall": point.recall,
                "f1Score": point.f1,
                "falsePositiveRate": point.false_positive_rate,
                "precisionAt1": point.precision_at_1,
                "recallAt1": point.recall_at_1,
                "f1ScoreAt1": point.f1_at_1,
            }
            for point in operating_points(*evaluation.answers)
        ],
        "confusionMatrix": {
            "annotationSpecs": [
                {"id": str(index), "displayName": name}
                for index, name in enumerate(evaluation.classes)
            ],
            "rows": evaluation.confusion_matrix,
        },
    }
    return {name: value for name, value in metrics.items() if value is not None}
