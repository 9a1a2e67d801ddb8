"""A model of the registry as components see it: its champion, and versions by training data."""

import dataclasses
import functools
import hashlib
from collections.abc import Mapping
from typing import Any

from trainer.data import storage
from trainer.data.schema import FILE_NAME
from trainer.data.storage import join
from trainer.evaluation.gate_options import GateOptions
from trainer.exported import model_files
from trainer.fields import option
from vertex.client.cloud_errors import as_input_error
from vertex.errors import InputError
from vertex.facts import emulation
from vertex.registry.model_registry import ModelRegistry, Version, connect_registry
from vertex.registry.model_upload import FILES_LABEL, MADE_BY
from vertex.registry.version_aliases import CHAMPION

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


def check_files(version: Version) -> None:
    """Raise InputError if a file of a version's model has changed since its registration.

    A model of the user's own, which no run has registered, need not have digests.
    """
    digest = version.labels.get(FILES_LABEL, "")
    try:
        if not digest and MADE_BY.items() <= version.labels.items():
            raise InputError(
                f"it has no label {FILES_LABEL!r}, the digest of its files: another version of "
                "this project registered it; train the model again"
            )
        model_files.check(version.artifact_uri, digest)
    except InputError as error:
        raise InputError(f"{version.name}: {error}, or promote another version") from None


@dataclasses.dataclass(frozen=True, kw_only=True)
class RegisteredModel:
    """A model that the inputs of a component name; it connects to the registry when asked."""

    model_name: str = option("", help="Model in the Model Registry; empty: none.")
    project: str = option("", help="Google Cloud project of the registry.")
    location: str = option("", help="Region of the registry.")

    @property
    def is_local(self) -> bool:
        """Return True for the registry of this machine."""
        return self.project == emulation.PROJECT

    @property
    def parent(self) -> str:
        return f"projects/{self.project}/locations/{self.location}"

    @functools.cached_property
    def registry(self) -> ModelRegistry:
        """Return the registry with this model."""
        return connect_registry(self.project, self.location)

    def find_champion(self) -> Version | None:
        """Return the champion; None if there is none or `model_name` is empty."""
        if not self.model_name:
            return None
        with as_input_error(f"looking for the champion of {self.model_name!r}"):
            return self.registry.find_champion(self.model_name)

    def find_metrics(self, version: Version, records: str) -> dict[str, Any]:
        """Return the metrics of a version on records (URI), as recorded at its registration.

        They are empty if it was registered with other records, or without an evaluation.
        """
        if version.labels.get("dataset") != digest_dataset(records)[:DATASET_DIGITS]:
            return {}
        with as_input_error(f"reading the evaluation of {version.name}"):
            return self.registry.find_metrics(version)

    def judge(
        self,
        evaluation: Any,
        options: GateOptions,
        champion: Version | None,
        *,
        register: bool = True,
    ) -> Any:
        """Return the gate's verdict on a model compared with the champion, if there is one.

        `register` is False if the run registers no model.
        """
        # Imported here, so that compiling does not wait for TensorFlow.
        from trainer.evaluation import champion_scores, gate

        scored = None
        if champion:
            try:
                check_files(champion)
                scored = champion_scores.score(
                    champion.name,
                    champion.artifact_uri,
                    evaluation,
                    self.find_metrics(champion, evaluation.dataset),
                )
            except InputError as error:
                scored = gate.ChampionScores(name=champion.name, problem=str(error))
        registers = register and bool(self.model_name)
        return gate.judge(evaluation, options, registers=registers, champion=scored)

    def find_start_weights(self, warm_start: str) -> str:
        """Return the URI of the weights that `warm_start` selects; empty: random weights."""
        if warm_start != CHAMPION:
            return warm_start
        champion = self.find_champion()
        if champion:
            check_files(champion)
            print(f"training starts from the weights of {champion.name}", flush=True)
            return champion.artifact_uri
        missing = f"{self.model_name!r} has no champion yet"
        print(f"{missing}: training starts from random weights", flush=True)
        return ""

    def find_version(self, labels: Mapping[str, str]) -> Version | None:
        """Return the version with all of `labels`: the champion first, then the newest.

        Withdrawn and never promoted versions are also found: training would reproduce them.
        """
        with as_input_error(
            f"looking for a version of {self.model_name!r} trained on the same data"
        ):
            versions = self.registry.list_versions(self.model_name)
        found = [version for version in versions if labels.items() <= version.labels.items()]
        champions = [version for version in found if CHAMPION in version.aliases]
        return next(iter(champions or reversed(found)), None)
