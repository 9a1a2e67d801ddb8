"""The metrics of a classifier, from the `ClassSums` of a split."""

from trainer.metrics.metric import Compared, Metric

METRICS = (
    Metric(
        "accuracy", lambda sums: sums.right.estimate,
        unit="share", monitored=True, compared=Compared.RIGHT, shown=True,
    ),
    Metric(
        "top_3_accuracy", lambda sums: sums.top_accuracy(3),
        unit="share", tile="Top-3 accuracy", optional=True,
    ),
    Metric(
        "top_5_accuracy", lambda sums: sums.top_accuracy(5),
        unit="share", tile="Top-5 accuracy", optional=True,
    ),
    # Means over the classes that have examples in the split.
    Metric(
        "f1", lambda sums: sums.average("f1"),
        shown=True, tile="Macro F1", note="mean over classes",
    ),
    Metric("precision", lambda sums: sums.average("precision")),
    Metric("recall", lambda sums: sums.average("recall")),
    # Areas of the second of two classes; with more classes, means of each class against the rest.
    Metric(
        "roc_auc", lambda sums: sums.average("roc_auc", sums.positive),
        shown=True, tile="ROC AUC",
        note=lambda sums: "of the second class" if sums.positive else "mean over classes",
    ),
    Metric("pr_auc", lambda sums: sums.average("pr_auc", sums.positive)),
    Metric(
        "log_loss", lambda sums: sums.losses / sums.examples,
        unit="nats", rises=False, compared=Compared.LOSS, shown=True, tile="Log loss", note="nats",
    ),
    Metric(
        "expected_calibration_error", lambda sums: sums.calibration_error,
        unit="share", rises=False, shown=True, tile="Calibration error", note="expected, 15 bins",
    ),
    # From 0 to 1 for two classes, to 2 for more.
    Metric("brier_score", lambda sums: sums.squared_errors / sums.examples, rises=False),
)  # fmt: skip
