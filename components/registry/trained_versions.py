"""Versions in the Model Registry by what they were trained on."""

import hashlib
from collections.abc import Mapping

from components.cloud_errors import in_one_line
from components.registry.model_registry import Version, registry_of
from trainer.data import storage
from trainer.data.schema import FILE_NAME, join
from trainer.errors import InputError
from trainer.evaluation.gate_options import CHAMPION

DATASET_DIGITS = 16
"""Of a data set's digest, those that its label holds."""


def dataset_digest(folder: str) -> str:
    """Return the SHA-256 of a data set's dataset.json, which has those of all shards, in hex.

    Args:
        folder: its URI.

    Raises:
        InputError: there are no such records.
    """
    uri = join(folder, FILE_NAME)
    try:
        return hashlib.sha256(storage.read(uri)).hexdigest()
    except FileNotFoundError:
        # Vertex AI's cache does not look whether what it names is still there.
        raise InputError(
            f"{uri} is missing: the records were deleted, by hand or by the bucket's rules, since "
            "the cache has noted them; run once more with --no-cache"
        ) from None


def training_labels(dataset: str, configuration: str) -> dict[str, str]:
    """Return the labels that tell what a version was trained on.

    Args:
        dataset: digest of its records, hexadecimal digits.
        configuration: digest of its training configuration.
    """
    return {"dataset": dataset[:DATASET_DIGITS], "configuration": configuration}


def find_version(
    model: str,
    labels: Mapping[str, str],
    project: str,
    location: str,
) -> Version | None:
    """Return the version of `model` with all of `labels`: the champion first, then the newest.

    One that was withdrawn, or never was champion, counts, too: training would only make it
    again.

    Raises:
        InputError: the registry refuses, or can't be reached.
    """
    with in_one_line(f"looking for a version of {model!r} trained on the same"):
        versions = registry_of(project, location).versions(model)
        found = [one for one in versions if labels.items() <= one.labels.items()]
    return max(found, key=lambda one: (CHAMPION in one.aliases, int(one.version)), default=None)
