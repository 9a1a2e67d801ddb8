"""Sections on where the model comes from: training, data, recipe, versions, timings."""

from collections.abc import Iterator
from typing import Any

from markupsafe import Markup

from trainer.dataset.schema import Dataset
from trainer.evaluation import Evaluation
from trainer.report import plots
from trainer.report.markup import (
    UNDEFINED,
    bar,
    columns,
    count,
    duration,
    facts,
    figure,
    join,
    name,
    number,
    percent,
    section,
    size,
    table,
)

_BALANCE_SHOWN = 20


def learning(training: dict[str, Any], history: list[dict[str, Any]]) -> Markup:
    """Loss, accuracy and learning rate over the epochs.

    Args:
        history: rows of history.csv, as numbers or as text; columns may be missing.
    """
    rows = [row for row in history if number(row.get("epoch")) is not None]
    if not rows:
        return section("learning", "Learning curves", lead="The run left no history.")
    epochs = [number(row["epoch"]) or 0.0 for row in rows]
    best = number(training.get("best_epoch"))
    drawn = []
    for metric in ("loss", "accuracy"):
        lines = [(1, "train", _column(rows, metric))]
        lines.append((2, "validation", _column(rows, f"validation_{metric}")))
        lines = [line for line in lines if any(value is not None for value in line[2])]
        if lines:
            description = f"{metric.capitalize()} by epoch. " + " ".join(
                f"{label}: {_ends(values)}." for _, label, values in lines
            )
            svg = plots.lines(
                epochs,
                [values for _, _, values in lines],
                y_label=metric,
                best=best,
                description=description,
                first_series=lines[0][0],
            )
            legend = [(series, label) for series, label, _ in lines]
            drawn.append(figure(svg, metric.capitalize(), legend))
    rate = _column(rows, "learning_rate")
    if any(value is not None for value in rate):
        description = f"Learning rate by epoch: {_ends(rate)}"
        svg = plots.lines(
            epochs, [rate], y_label="learning rate", description=description, first_series=3
        )
        drawn.append(figure(svg, "Learning rate", [(3, "learning rate")]))
    lead = f"{count(len(rows), 'epoch')}."
    if best is not None:
        lead += f" The dotted line is the best one, {best:.0f}."
    if training.get("stopped"):
        lead += f" Training stopped early: {training['stopped']}."
    return section("learning", "Learning curves", columns(*drawn), lead=lead)


def _column(rows: list[dict[str, Any]], title: str) -> list[float | None]:
    return [number(row.get(title)) for row in rows]


def _ends(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"from {known[0]:.4g} to {known[-1]:.4g}"


def balance(dataset: Dataset) -> Markup:
    """How many examples every class has in every split."""
    splits = {split: part for split, part in dataset.splits.items() if part.examples}
    totals = {split: max(1, sum(part.class_counts)) for split, part in splits.items()}
    largest = max(
        (share / totals[split] for split, part in splits.items() for share in part.class_counts),
        default=1.0,
    )

    def cell(split: str, index: int) -> Markup:
        times = splits[split].class_counts[index]
        share = times / totals[split]
        return bar(f"{times:,} ({percent(share)})", share / max(largest, 1e-9), 3)

    return section(
        "balance",
        "Class balance",
        table(
            ["Class", *splits],
            [
                [name(one), *(cell(split, index) for split in splits)]
                for index, one in enumerate(dataset.classes)
            ],
            caption="Examples of every class in every split",
            tall=len(dataset.classes) > _BALANCE_SHOWN,
        ),
        lead="Examples in each split, and their share of it.",
    )


def recipe(details: dict[str, Any]) -> Markup:
    """The parameters of the run, as they are named on the command line."""
    if not details:
        return Markup()
    return section("recipe", "Recipe", facts(details.items()))


def data(dataset: Dataset) -> Markup:
    """What the records are, what was left out of them and why, and how they were made."""
    rows = [
        [split, f"{part.examples:,}", len(part.shards), size(part.bytes)]
        for split, part in dataset.splits.items()
    ]
    splits = table(["Split", "Examples", "Shards", "Size"], rows, caption="The splits")
    features = facts(
        (
            feature.name,
            " ".join(_describe(feature.kind, feature.dtype, feature.shape, feature.encoding)),
        )
        for feature in dataset.features
    )
    return section(
        "data",
        "Data set",
        columns(
            Markup("<div><h3>Splits</h3>{}<h3>Features</h3>{}</div>").format(splits, features),
            Markup("<div><h3>Rejected</h3>{}<h3>How it was made</h3>{}</div>").format(
                _rejected(dataset.rejected), facts(_flat(dataset.creation))
            ),
        ),
        lead=Markup("{}, {}: <code>{}</code>").format(
            name(dataset.name), count(len(dataset.classes), "class", "classes"), dataset.uri
        ),
    )


def _describe(kind: str, dtype: str, shape: list[int], encoding: str) -> Iterator[str]:
    yield kind
    if shape:
        yield "×".join(map(str, shape))  # noqa: RUF001 - the sign of sizes
    yield dtype
    if encoding:
        yield f"({encoding})"


def _rejected(rejected: dict[str, Any]) -> Markup:
    times = int(number(rejected.get("count")) or 0)
    if not times:
        return Markup("<p>Nothing was rejected.</p>")
    reasons = rejected.get("reasons") or {}
    rows = [[name(reason), f"{many:,}"] for reason, many in reasons.items()]
    place = rejected.get("file")
    listed = Markup(", listed in <code>{}</code>").format(place) if place else ""
    intro = Markup("<p>{}{}.</p>").format(count(times, "item"), listed)
    return join([intro, table(["Reason", "Items"], rows, caption="Why items were rejected")])


def _flat(content: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        if isinstance(value, dict) and value and not prefix:
            yield from _flat(value, f"{key}: ")
        else:
            yield f"{prefix if prefix != 'options: ' else ''}{key}", value


def environment(
    evaluation: Evaluation, training: dict[str, Any], history: list[dict[str, Any]]
) -> Markup:
    """Versions and timings."""
    seconds, rate = number(training.get("seconds")), number(training.get("images_per_second"))
    epochs = [value for value in _column(history, "seconds") if value is not None]
    waits = [value for value in _column(history, "input_wait_fraction") if value is not None]
    timings = facts(
        [
            ("Training", None if seconds is None else duration(seconds)),
            ("First epoch", duration(epochs[0]) if epochs else None),
            (
                "Later epochs, mean",
                duration(sum(epochs[1:]) / len(epochs[1:])) if epochs[1:] else None,
            ),
            ("Training speed", None if rate is None else f"{rate:,.0f} examples/s"),
            ("Waiting for input", percent(sum(waits) / len(waits)) if waits else None),
            ("Evaluation", duration(evaluation.seconds)),
            (
                "Evaluation speed",
                f"{evaluation.examples / max(evaluation.seconds, 1e-9):,.0f} examples/s",
            ),
        ]
    )
    versions = training.get("versions") or {}
    listed = facts(sorted(versions.items())) if versions else Markup("<p>{}</p>").format(UNDEFINED)
    place = facts([("Model", evaluation.model), ("Records", evaluation.dataset)])
    return section(
        "environment",
        "Timings and versions",
        columns(
            Markup("<div><h3>Timings</h3>{}</div>").format(timings),
            Markup("<div><h3>Versions</h3>{}<h3>Places</h3>{}</div>").format(listed, place),
        ),
    )
