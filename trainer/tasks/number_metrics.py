"""The metrics of answers that are numbers, from the `NumberSums` of a split."""

from trainer.metrics.metric import Compared, Metric

METRICS = (
    Metric(
        "r2", resample=lambda groups: 1 - groups.squares / groups.label_spread,
        compared=Compared.EXPLAINED, shown=True,
    ),
    Metric(
        "rmse", lambda sums: sums.estimate_rmse(),
        unit="label", rises=False, shown=True, tile="RMSE",
    ),
    Metric(
        "mae", resample=lambda groups: groups.absolute / groups.n,
        unit="label", rises=False, monitored=True, shown=True, tile="Mean absolute error",
    ),
    # Share of labels within their interval.
    Metric(
        "coverage", lambda sums: sums.coverage,
        unit="share", shown=True, tile="Coverage", note="of labels in their 90% interval",
        optional=True,
    ),
    Metric(
        "interval_width", lambda sums: sums.interval_width,
        unit="label", rises=False, tile="Interval width", note="mean of the 90% intervals",
        optional=True,
    ),
)  # fmt: skip
