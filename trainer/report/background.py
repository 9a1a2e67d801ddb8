"""Sections on where the model comes from: training, data, recipe, versions, timings."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from markupsafe import Markup

from trainer.config import TrainingConfig
from trainer.dataset.schema import Dataset
from trainer.evaluation import Evaluation
from trainer.fields import default_of
from trainer.report import plots
from trainer.report.markup import (
    UNDEFINED,
    bar,
    columns,
    count,
    duration,
    facts,
    figure,
    folded,
    join,
    name,
    number,
    percent,
    section,
    size,
    table,
)
from trainer.worker_pools import MachineOptions

_BALANCE_SHOWN = 20
_FEATURES_SHOWN = 6


def learning(training: dict[str, Any], history: list[dict[str, Any]]) -> Markup:
    """Loss, accuracy and learning rate over the epochs.

    Args:
        history: rows of history.csv, as numbers or as text; columns may be missing.
    """
    rows = [row for row in history if number(row.get("epoch")) is not None]
    if not rows:
        return section("learning", "Learning curves", lead="The run left no history.")
    epochs = [number(row["epoch"]) or 0.0 for row in rows]
    if len(rows) == 1:
        return _one_epoch(training, rows[0])
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
    rates = {value for value in rate if value is not None}
    if len(rates) > 1:
        description = f"Learning rate by epoch: {_ends(rate)}"
        svg = plots.lines(
            epochs, [rate], y_label="learning rate", description=description, first_series=3
        )
        drawn.append(figure(svg, "Learning rate", [(3, "learning rate")]))
    lead = f"{count(len(rows), 'epoch')}."
    if best is not None:
        lead += f" The dotted line is the best one, {best:.0f}."
    if len(rates) == 1:
        lead += f" The learning rate was {rates.pop():g} throughout."
    if None in (scored := _column(rows, "validation_loss")) and set(scored) != {None}:
        lead += " Validation has a point where the evaluator scored a checkpoint."
    return section("learning", "Learning curves", columns(*drawn), lead=lead + _stopped(training))


def _one_epoch(training: dict[str, Any], row: dict[str, Any]) -> Markup:
    """What there is to say of a training of one epoch, of which no curve can be drawn."""
    names = [f"{part}{metric}" for metric in ("loss", "accuracy") for part in ("", "validation_")]
    known = [(name, number(row.get(name))) for name in names]
    pairs = [
        (name.replace("_", " ").capitalize(), f"{value:.4g}") for name, value in known if value
    ]
    lead = "1 epoch." + _stopped(training)
    return section("learning", "Learning curves", facts(pairs), lead=lead)


def _stopped(training: dict[str, Any]) -> str:
    return f" Training stopped early: {training['stopped']}." if training.get("stopped") else ""


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
    """The parameters of the run, as they are named on the command line: those with a value of
    their own, and folded those that are as they come."""
    if not details:
        return Markup()
    defaults = {
        field.name: default_of(field)
        for options in (TrainingConfig, MachineOptions)
        for field in dataclasses.fields(options)
    }
    order = {parameter: place for place, parameter in enumerate(defaults)}
    pairs = sorted(details.items(), key=lambda pair: order.get(pair[0], len(order)))
    own = [pair for pair in pairs if pair[0] not in defaults or pair[1] != defaults[pair[0]]]
    rest = [pair for pair in pairs if pair not in own]
    title = (
        f"{count(len(rest), 'more parameter')}, at {'its' if len(rest) == 1 else 'their'} default"
    )
    return section(
        "recipe",
        "Recipe",
        facts(own),
        folded(title, facts(rest)) if rest else Markup(),
        lead="What was set for this run." if own else "Nothing was set for this run.",
    )


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
    listed = Markup("<h3>Features</h3>{}").format(features)
    if len(dataset.features) > _FEATURES_SHOWN:
        listed = folded(count(len(dataset.features), "feature"), features)
    made = dataset.creation
    options = made.get("options") or {}
    counts = {
        key: f"{made[key]:,}" for key in ("given", "accepted") if isinstance(made.get(key), int)
    }
    folds = ("options", "versions", "fingerprint")
    others = {"source": made.get("source")} | counts
    others |= {key: value for key, value in made.items() if key not in {*folds, *others}}
    versions = made.get("versions") or {}
    origin = facts(others.items())
    settings = [pair for pair in options.items() if pair[0] not in others]
    settings += [(f"version of {package}", value) for package, value in versions.items()]
    settings.append(("fingerprint", made.get("fingerprint")))
    return section(
        "data",
        "Data set",
        columns(
            Markup("<div><h3>Splits</h3>{}{}</div>").format(splits, listed),
            Markup("<div><h3>Rejected</h3>{}<h3>Where it comes from</h3>{}{}</div>").format(
                _rejected(dataset.rejected),
                origin,
                folded("How the records were made", facts(settings)),
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
