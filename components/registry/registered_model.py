"""A model of the registry as components see it: its champion, and versions by training data."""

import dataclasses
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


@dataclasses.dataclass(frozen=True)
class RegisteredModel:
    """A model that the inputs of a component name; it connects to the registry when asked."""

    name: str  # empty: nothing is registered
    project: str
    location: str

    def find_champion(self) -> Version | None:
        """Return the champion; None if there is none or `name` is empty."""
        if not self.name:
            return None
        with as_input_error(f"looking for the champion of {self.name!r}"):
            return connect_registry(self.project, self.location).find_champion(self.name)

    def find_start_weights(self, warm_start: str) -> str:
        """Return the URI of the weights that `warm_start` selects; empty: random weights."""
        if warm_start != CHAMPION:
            return warm_start
        champion = self.find_champion()
        if champion:
            print(f"training starts from the weights of {champion.name}", flush=True)
            return champion.artifact_uri
        print(f"{self.name!r} has no champion yet: training starts from random weights", flush=True)
        return ""

    def find_version(self, labels: Mapping[str, str]) -> Version | None:
        """Return the version with all of `labels`: the champion first, then the newest.

        Withdrawn and never promoted versions are also found: training would reproduce them.
        """
        with as_input_error(f"looking for a version of {self.name!r} trained on the same data"):
            versions = connect_registry(self.project, self.location).list_versions(self.name)
        found = None
        for version in versions:  # oldest first
            if labels.items() <= version.labels.items():
                if CHAMPION in version.aliases:
                    return version
                found = version
        return found
