"""Prepare the data of the sections on a model's background: dataset, recipe and timings."""

import dataclasses
from collections.abc import Collection
from typing import Any

from trainer.data.schema import Dataset
from trainer.data.source_options import OF_IMAGES, SourceOptions
from trainer.report.learning import Rows, known_values
from trainer.tasks.base import Evaluation
from vertex.formats import duration, percent

Pairs = list[tuple[str, Any]]
_IMAGE_OPTIONS = [
    field.name
    for field in dataclasses.fields(SourceOptions)
    if OF_IMAGES in field.metadata.get("applies", ())
]


def recipe(
    details: dict[str, Any], defaults: dict[str, Any], recipe_sets: Collection[str]
) -> dict[str, Pairs]:
    """Return parameters that the recipe sets or that are not defaults, and the other parameters."""
    order = {parameter: index for index, parameter in enumerate(defaults)}
    pairs = sorted(details.items(), key=lambda pair: order.get(pair[0], len(order)))
    # The report shows images in another section.
    pairs = [pair for pair in pairs if pair[0] not in ("image_uri", "gpu_image_uri")]
    changed = [
        (name, value)
        for name, value in pairs
        if name in recipe_sets or value not in (defaults.get(name), "", [], {})
    ]
    return {"changed": changed, "unchanged": [pair for pair in pairs if pair not in changed]}


def features(dataset: Dataset) -> Pairs:
    """Return each feature of the records with its kind, shape, type and encoding."""
    pairs = []
    for feature in dataset.features:
        shape = "×".join(map(str, feature.shape))  # noqa: RUF001 - the sign of sizes
        encoding = f"({feature.encoding})" if feature.encoding else ""
        words = (feature.kind, shape, feature.dtype, encoding)
        pairs.append((feature.name, " ".join(filter(None, words))))
    return pairs


def origin(dataset: Dataset) -> dict[str, Pairs]:
    """Return the source of the records and the settings with which they were created."""
    creation = dataset.creation
    counts = {
        key: f"{creation[key]:,}"
        for key in ("given", "accepted")
        if isinstance(creation.get(key), int)
    }
    folds = ("options", "versions", "fingerprint")
    entries = {"source": creation.get("source")} | counts
    entries |= {key: value for key, value in creation.items() if key not in {*folds, *entries}}
    hidden = {*entries, *(() if dataset.image_shapes else _IMAGE_OPTIONS)}
    settings = [pair for pair in (creation.get("options") or {}).items() if pair[0] not in hidden]
    versions = (creation.get("versions") or {}).items()
    settings += [(f"version of {package}", value) for package, value in versions]
    settings.append(("fingerprint", creation.get("fingerprint")))
    return {"source": list(entries.items()), "settings": settings}


def timings(evaluation: Evaluation, training: dict[str, Any], history: Rows) -> Pairs:
    """Return durations and speeds of training and evaluation, by title."""
    seconds, waits = training["seconds"], known_values(history, "input_wait_fraction")
    # A user's own training program does not tell these.
    epochs = known_values(history, "seconds")
    first, *later = epochs or [0.0]
    # After a restart, `seconds` counts from the last start, but the epochs from the first.
    overhead = seconds - first - sum(later)
    speed = evaluation.examples / max(evaluation.seconds, 1e-9)
    return [
        ("Training", duration(seconds)),
        (
            "Start, validation, checkpoints",
            duration(overhead) if epochs and overhead >= 0 else None,
        ),
        ("First epoch", duration(first) if epochs else None),
        ("Later epochs, mean", duration(sum(later) / len(later)) if later else None),
        ("Training speed", f"{training['examples_per_second']:,.0f} examples/s"),
        ("Wait for input", percent(sum(waits) / len(waits)) if waits else None),
        *_profiled(training.get("profile")),
        ("Evaluation", duration(evaluation.seconds)),
        ("Evaluation speed", f"{speed:,.0f} examples/s"),
    ]


def _profiled(profile: dict[str, Any] | None) -> Pairs:
    """Return where the time of the profiled steps went, if there are any."""
    if not profile:
        return []
    parts = {"input": "input", "all_reduce": "all-reduce", "compute": "the rest"}
    listed = [f"{label} {1000 * profile[f'{key}_seconds']:.1f} ms" for key, label in parts.items()]
    steps = f"Steps {profile['first_step']:,} to {profile['last_step']:,}, each"
    return [(steps, f"{1000 * profile['step_seconds']:.1f} ms: {', '.join(listed)}")]
