"""Sections on where the model comes from: data, recipe, versions, timings."""

import dataclasses
from collections.abc import Collection, Iterator
from typing import Any

from markupsafe import Markup

from trainer.config import TrainingConfig
from trainer.data.record_options import RecordOptions
from trainer.data.schema import Dataset
from trainer.evaluation.gate import GateOptions
from trainer.evaluation.scoring import Evaluation
from trainer.fields import default_of
from trainer.machines.worker_pools import MachineOptions
from trainer.report.learning import column
from trainer.report.markup import (
    UNDEFINED,
    bar,
    columns,
    count,
    duration,
    facts,
    folded,
    join,
    name,
    number,
    percent,
    section,
    size,
    table,
)

_BALANCE_SHOWN = 20
_FEATURES_SHOWN = 6


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


def recipe(details: dict[str, Any], recipe_sets: Collection[str]) -> Markup:
    """Show the run's parameters by name: those that the recipe sets or that differ from their
    default, and the others folded."""
    if not details:
        return Markup()
    defaults = {
        field.name: default_of(field)
        for options in (RecordOptions, TrainingConfig, MachineOptions, GateOptions)
        for field in dataclasses.fields(options)
    }
    order = {parameter: place for place, parameter in enumerate(defaults)}
    pairs = sorted(details.items(), key=lambda pair: order.get(pair[0], len(order)))
    # The image is a place, and stands with the others.
    pairs = [pair for pair in pairs if pair[0] not in ("image_uri", "gpu_image_uri")]
    own = [
        (one, value)
        for one, value in pairs
        if one in recipe_sets or value not in (defaults.get(one), "", [], {})
    ]
    rest = [pair for pair in pairs if pair not in own]
    equal = "equal to its default" if len(rest) == 1 else "equal to their default"
    title = f"{count(len(rest), 'more parameter')}, {equal}"
    return section(
        "recipe",
        "Recipe",
        facts(own),
        folded(title, facts(rest)) if rest else Markup(),
        lead="What the recipe sets, and what differs from the defaults."
        if own
        else "Nothing differs from the defaults.",
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
    evaluation: Evaluation,
    training: dict[str, Any],
    history: list[dict[str, Any]],
    details: dict[str, Any],
) -> Markup:
    """Versions and timings."""
    seconds, rate = number(training.get("seconds")), number(training.get("images_per_second"))
    epochs = [value for value in column(history, "seconds") if value is not None]
    waits = [value for value in column(history, "input_wait_fraction") if value is not None]
    # A job that was restarted has its last start's time alone.
    rest = -1.0 if seconds is None else seconds - sum(epochs)
    timings = facts(
        [
            ("Training", None if seconds is None else duration(seconds)),
            ("of it start, validation, checkpoints", duration(rest) if rest >= 0 else None),
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
    place = facts(
        [
            ("Model", evaluation.model),
            ("Records", evaluation.dataset),
            ("Image", details.get("gpu_image_uri") or details.get("image_uri")),
        ]
    )
    return section(
        "environment",
        "Timings and versions",
        columns(
            Markup("<div><h3>Timings</h3>{}</div>").format(timings),
            Markup("<div><h3>Versions</h3>{}<h3>Places</h3>{}</div>").format(listed, place),
        ),
    )
