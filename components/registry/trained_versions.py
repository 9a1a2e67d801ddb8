"""Find versions in the Model Registry by their training data and configuration."""

import hashlib
from collections.abc import Mapping

from components.cloud_errors import as_input_error
from components.registry.model_registry import Version, connect_registry
from trainer.data import storage
from trainer.data.schema import FILE_NAME, join
from trainer.errors import InputError
from trainer.evaluation.gate_options import CHAMPION

DATASET_DIGITS = 16
"""Number of digits of a dataset's digest in its label."""


def digest_dataset(folder: str) -> str:
    """Return the SHA-256 of a dataset's dataset.json, which lists the digests of all shards."""
    uri = join(folder, FILE_NAME)
    try:
        return hashlib.sha256(storage.read(uri)).hexdigest()
    except FileNotFoundError:
        # Vertex AI's cache does not check that cached artifacts still exist.
        raise InputError(
            f"{uri} is missing: the cached records were deleted, by hand or by the bucket's "
            "lifecycle rules; run again with --no-cache"
        ) from None


def training_labels(dataset: str, configuration: str) -> dict[str, str]:
    """Return the labels that record a version's training data and configuration, as digests."""
    return {"dataset": dataset[:DATASET_DIGITS], "configuration": configuration}


def find_version(
    model: str, labels: Mapping[str, str], project: str, location: str
) -> Version | None:
    """Return the version of `model` with all of `labels`: the champion first, then the newest.

    Versions that were withdrawn or never promoted are also found: training would reproduce them.
    """
    with as_input_error(f"looking for a version of {model!r} trained on the same data"):
        versions = connect_registry(project, location).list_versions(model)
    matching = [version for version in versions if labels.items() <= version.labels.items()]
    return max(
        matching,
        key=lambda version: (CHAMPION in version.aliases, int(version.version)),
        default=None,
    )
