"""The metrics of a classifier, from the `ClassSums` of a split."""

from trainer.metrics.metric import Compared, Metric

METRICS = (
    Metric(
        "accuracy",
        compute=lambda sums: sums.right.estimate,
        unit="share",
        monitored=True,
        compared=Compared.RIGHT,
        shown=True,
    ),
    Metric(
        "top_3_accuracy",
        compute=lambda sums: sums.top_accuracy(3),
        unit="share",
        tile="Top-3 accuracy",
        optional=True,
    ),
    Metric(
        "top_5_accuracy",
        compute=lambda sums: sums.top_accuracy(5),
        unit="share",
        tile="Top-5 accuracy",
        optional=True,
    ),
    # Means over the classes that have examples in the split.
    Metric(
        "f1",
        compute=lambda sums: sums.mean_of_classes("f1"),
        shown=True,
        tile="Macro F1",
        note="mean over classes",
    ),
    Metric("precision", compute=lambda sums: sums.mean_of_classes("precision")),
    Metric("recall", compute=lambda sums: sums.mean_of_classes("recall")),
    # Areas of the second of two classes; with more classes, means of each class against the rest.
    Metric(
        "roc_auc",
        compute=lambda sums: sums.mean_area("roc_auc"),
        shown=True,
        tile="ROC AUC",
        note=lambda found: (
            "of the second class" if len(found.classes) == 2 else "mean over classes"
        ),
    ),
    Metric("pr_auc", compute=lambda sums: sums.mean_area("pr_auc")),
    Metric(
        "log_loss",
        compute=lambda sums: sums.losses / sums.examples,
        unit="nats",
        rises=False,
        compared=Compared.LOSS,
        shown=True,
        tile="Log loss",
        note="nats",
    ),
    Metric(
        "expected_calibration_error",
        compute=lambda sums: sums.calibration_error,
        unit="share",
        rises=False,
        shown=True,
        tile="Calibration error",
        note="expected, 15 bins",
    ),
    # From 0 to 1 for two classes, to 2 for more.
    Metric("brier_score", compute=lambda sums: sums.squared_errors / sums.examples, rises=False),
)
