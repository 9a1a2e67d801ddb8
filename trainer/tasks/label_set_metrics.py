"""The metrics of answers that are sets of labels, from the `LabelSums` of a split."""

from trainer.metrics.metric import Compared, Metric

METRICS = (
    # Mean of the F1 of an example's labels.
    Metric(
        "example_f1", resample=lambda groups: groups.f1 / groups.n,
        unit="share", monitored=True, compared=Compared.GAIN, shown=True,
    ),
    # Micro: of all pairs of an example and a label.
    Metric(
        "micro_f1",
        resample=lambda groups: groups.divide(2 * groups.hits, groups.labels + groups.given),
        unit="share", shown=True, tile="Micro F1",
    ),
    Metric(
        "micro_precision", resample=lambda groups: groups.divide(groups.hits, groups.given),
        unit="share",
    ),
    Metric(
        "micro_recall", resample=lambda groups: groups.divide(groups.hits, groups.labels),
        unit="share",
    ),
    # Means over the labels that have examples in the split.
    Metric(
        "macro_f1", lambda sums: sums.average("f1"),
        unit="share", shown=True, tile="Macro F1", note="mean over labels",
    ),
    Metric(
        "mean_average_precision", lambda sums: sums.average("pr_auc"),
        shown=True, tile="Mean average precision", note="mean over labels",
    ),
    Metric("roc_auc", lambda sums: sums.average("roc_auc")),
    # Share of examples with exactly the right labels.
    Metric(
        "exact_match", lambda sums: sums.exact_share.estimate,
        unit="share", shown=True, tile="Exact match",
    ),
    # Of all labels of an example.
    Metric("log_loss", lambda sums: sums.losses / sums.examples, unit="nats", rises=False),
)  # fmt: skip
