"""The origin of the model: data, recipe and timings."""

import dataclasses
from collections.abc import Collection, Iterator
from typing import Any

from trainer.config import TrainingConfig
from trainer.data.record_options import RecordOptions
from trainer.data.schema import Dataset, Feature
from trainer.evaluation.gate_options import GateOptions
from trainer.evaluation.scoring import Evaluation
from trainer.fields import default_of
from trainer.machines.worker_pools import MachineOptions
from trainer.report.formats import duration, number, percent
from trainer.report.learning import column

Pairs = list[tuple[str, Any]]


def balance(dataset: Dataset) -> list[tuple[str, list[tuple[int, float, float]]]]:
    """Return each class with its examples in every split, their share, and its bar's length."""
    splits = [part for part in dataset.splits.values() if part.examples]
    totals = [max(1, sum(part.class_counts)) for part in splits]
    shares = [
        [times / total for times in part.class_counts]
        for part, total in zip(splits, totals, strict=True)
    ]
    largest = max((share for split in shares for share in split), default=1.0)
    return [
        (
            name,
            [
                (part.class_counts[index], split[index], split[index] / max(largest, 1e-9))
                for part, split in zip(splits, shares, strict=True)
            ],
        )
        for index, name in enumerate(dataset.classes)
    ]


def recipe(details: dict[str, Any], recipe_sets: Collection[str]) -> dict[str, Pairs]:
    """Return the run's parameters: those that the recipe sets or that differ from their default,
    and the others; empty where none is known."""
    if not details:
        return {}
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
    return {"own": own, "rest": [pair for pair in pairs if pair not in own]}


def features(dataset: Dataset) -> Pairs:
    """Return each feature of the records with its kind, shape, type and encoding."""
    return [(feature.name, " ".join(_describe(feature))) for feature in dataset.features]


def _describe(feature: Feature) -> Iterator[str]:
    yield feature.kind
    if feature.shape:
        yield "×".join(map(str, feature.shape))  # noqa: RUF001 - the sign of sizes
    yield feature.dtype
    if feature.encoding:
        yield f"({feature.encoding})"


def origin(dataset: Dataset) -> dict[str, Pairs]:
    """Return where the records come from, and how they were made."""
    made = dataset.creation
    counts = {
        key: f"{made[key]:,}" for key in ("given", "accepted") if isinstance(made.get(key), int)
    }
    folds = ("options", "versions", "fingerprint")
    places = {"source": made.get("source")} | counts
    places |= {key: value for key, value in made.items() if key not in {*folds, *places}}
    settings = [pair for pair in (made.get("options") or {}).items() if pair[0] not in places]
    versions = (made.get("versions") or {}).items()
    settings += [(f"version of {package}", value) for package, value in versions]
    settings.append(("fingerprint", made.get("fingerprint")))
    return {"places": list(places.items()), "settings": settings}


def timings(
    evaluation: Evaluation, training: dict[str, Any], history: list[dict[str, Any]]
) -> Pairs:
    """Return how long training and evaluation took, and how fast they were."""
    seconds, rate = number(training.get("seconds")), number(training.get("images_per_second"))
    epochs = [value for value in column(history, "seconds") if value is not None]
    waits = [value for value in column(history, "input_wait_fraction") if value is not None]
    # A job that was restarted has its last start's time alone.
    rest = -1.0 if seconds is None else seconds - sum(epochs)
    later = epochs[1:]
    speed = evaluation.examples / max(evaluation.seconds, 1e-9)
    return [
        ("Training", None if seconds is None else duration(seconds)),
        ("of it start, validation, checkpoints", duration(rest) if rest >= 0 else None),
        ("First epoch", duration(epochs[0]) if epochs else None),
        ("Later epochs, mean", duration(sum(later) / len(later)) if later else None),
        ("Training speed", None if rate is None else f"{rate:,.0f} examples/s"),
        ("Waiting for input", percent(sum(waits) / len(waits)) if waits else None),
        ("Evaluation", duration(evaluation.seconds)),
        ("Evaluation speed", f"{speed:,.0f} examples/s"),
    ]
