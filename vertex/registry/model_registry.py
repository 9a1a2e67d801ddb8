"""Versions of a model in Vertex AI's Model Registry, with the champion among them.

A recipe's versions belong to one model, whose ID is the recipe's name. The n-th promotion sets
the alias champion-n, which never moves, so former champions can be found. A rollback removes the
last of these aliases, so a later rollback never restores a withdrawn champion. Setting an alias on
a version removes it from the version that had it, in the same request.
https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/model-registry/model-alias
"""

import contextlib
import dataclasses
import os
import re
from collections.abc import Callable, Iterable
from typing import Any

from vertex.client.cloud_errors import Change
from vertex.client.vertex_client import connect_vertex
from vertex.errors import InputError
from vertex.registry import version_aliases
from vertex.registry.model_upload import MADE_BY, Candidate, import_evaluation, upload
from vertex.registry.promotion_lock import promotion_lock
from vertex.registry.version_aliases import CHALLENGER, CHAMPION

_DEFAULT = "default"
_PROMOTION = re.compile(rf"{CHAMPION}-([0-9]+)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Version:
    """A version of a model in the registry."""

    model: str  # ID
    version: str  # number
    resource: str  # projects/P/locations/L/models/M@version
    artifact_uri: str  # folder of the SavedModel
    aliases: tuple[str, ...]
    labels: dict[str, str]
    description: str = ""

    @property
    def name(self) -> str:
        """Return model@version."""
        return f"{self.model}@{self.version}"

    @property
    def is_ours(self) -> bool:
        """Return True for a version that this project registered, or a user made the champion."""
        return MADE_BY.items() <= self.labels.items() or CHAMPION in self.aliases

    @property
    def promotions(self) -> list[int]:
        """Return the numbers of the promotions that made this version the champion."""
        matches = [_PROMOTION.fullmatch(alias) for alias in self.aliases]
        return sorted(int(match[1]) for match in matches if match)


Judge = Callable[[Version | None], str]
"""Compares a candidate with the champion; returns its role: champion, challenger, candidate, ""."""


@dataclasses.dataclass(frozen=True)
class ModelRegistry:
    """The registry of a project and location.

    Every method raises google.api_core.exceptions.GoogleAPICallError if the service refuses a call.
    """

    client: Any  # a `Service` that wraps Vertex AI's ModelServiceClient and retries its calls
    parent: str  # projects/P/locations/L

    def list_versions(self, model: str) -> list[Version]:
        """Return all versions of a model, oldest first; [] if there is no such model."""
        from google.api_core import exceptions

        try:
            messages = list(self.client.list_model_versions(name=self._resource_name(model)))
        except exceptions.NotFound:
            return []
        versions = [_parse_version(model, message) for message in messages]
        return sorted(versions, key=lambda version: (len(version.version), version.version))

    def find_champion(self, model: str) -> Version | None:
        """Return the version with the alias champion; None if there is none."""
        return _find_champion(self.list_versions(model))

    def fetch_champion(self, model: str) -> Version:
        """Return the version with the alias champion; raise InputError if there is none."""
        versions = self.list_versions(model)
        if champion := _find_champion(versions):
            return champion
        promote = f"python -m pipelines promote RECIPE --model-name {model}"
        hint = describe_promotion(versions[-1], promote) if versions else "run its recipe first"
        raise InputError(f"model {model!r} has no champion in {self.parent} yet; {hint}")

    def find_metrics(self, version: Version) -> dict[str, Any]:
        """Return the metrics of a version's imported evaluations, the first's before others."""
        from google.protobuf import json_format

        metrics: dict[str, Any] = {}
        for evaluation in self.client.list_model_evaluations(parent=version.resource):
            metrics = (json_format.MessageToDict(evaluation._pb.metrics) or {}) | metrics
        return metrics

    def list_models(self) -> list[str]:
        """Return the IDs of all models, sorted."""
        models = self.client.list_models(parent=self.parent)
        return sorted(model.name.rpartition("/")[2] for model in models)

    def register(
        self,
        model: str,
        candidate: Candidate,
        role: str,
        compared_with: str,
        judge: Judge = lambda _: CHALLENGER,
    ) -> Version | None:
        """Register a candidate, or complete its registration if its version exists.

        Return the version; None if it was deleted.

        Args:
            role: champion, challenger or candidate, which has no alias.
            compared_with: model@version of the champion at the comparison; empty: none.
            judge: asked if another run has promoted a champion since then; deletes the version
                by returning no role.
        """
        version = self._find_or_upload(model, candidate)
        commit = candidate.labels.get("commit")
        # A label may have _, an alias may not.
        aliases = [f"commit-{commit.replace('_', '-')}"] if commit else []
        while role == CHAMPION:
            with self._hold_lock(version):
                # Read again, because an upload takes minutes.
                champion = self.find_champion(model)
                if champion and champion.version == version.version:
                    break
                if (champion.name if champion else "") == compared_with:
                    self._promote(version, aliases)
                    break
            role, compared_with = judge(champion), champion.name if champion else ""
        if not role:
            self._delete(version)
            return None
        if role == CHALLENGER:
            self._merge(version, [CHALLENGER, *aliases])
        # After the promotion, which a failed import must not prevent.
        import_evaluation(self.client, version.resource, candidate)
        return self._fetch_version(model, version.version)

    def promote(self, model: str, number: str) -> Version:
        """Make a version the champion; return it."""
        versions = self.list_versions(model)
        numbers = [version.version for version in versions]
        if number not in numbers:
            raise InputError(
                f"model {model!r} has no version {number!r} in {self.parent}; "
                + (f"known: {', '.join(numbers)}" if numbers else "run its recipe first")
            )
        version = versions[numbers.index(number)]
        if CHAMPION in version.aliases:
            return version
        with Change() as change:
            with self._hold_lock(version):
                self._promote(version)
                change.begun = True
            return self._fetch_version(model, number)

    def roll_back(self, model: str) -> tuple[Version, Version | None]:
        """Make the previous champion the champion again; return it and the withdrawn version.

        After an interruption, another call completes the rollback. Two calls at once withdraw one
        version. Raise InputError if another version has been promoted in the meantime.
        """
        versions = self.list_versions(model)
        before = _find_champion(versions)
        if not versions:
            return self._roll_back(model, before)
        with Change() as change:
            with self._hold_lock(before or versions[0]):
                previous, champion = self._roll_back(model, before)
                change.begun = True
            return self._fetch_version(model, previous.version), champion

    def _roll_back(self, model: str, before: Version | None) -> tuple[Version, Version | None]:
        """Roll back the champion that the caller has found `before` it took the lock."""
        versions = self.list_versions(model)
        champion = _find_champion(versions)
        if champion and before and champion.version != before.version:
            if any(version.promotions for version in versions if version.version == before.version):
                raise InputError(
                    f"{champion.name} was promoted in place of {before.name} in the meantime; "
                    "roll back again if it is to be withdrawn, too"
                )
            return champion, before
        promoted = {number: version for version in versions for number in version.promotions}
        withdrawn = []
        # There is more than one if the version that was champion in between has been deleted.
        while champion and promoted and promoted[max(promoted)] == champion:
            withdrawn.append(f"-{CHAMPION}-{max(promoted)}")
            del promoted[max(promoted)]
        if not promoted:
            raise InputError(
                f"model {model!r} had no champion before "
                f"{champion.name if champion else 'now'}; promote a version with --version"
            )
        if champion and withdrawn:
            # Remove aliases first: if this is interrupted, a retry restores the same champion.
            self._merge(champion, withdrawn)
        return self._merge(promoted[max(promoted)], [CHAMPION, _DEFAULT]), champion

    def _promote(self, version: Version, aliases: Iterable[str] = ()) -> None:
        """Add the champion's aliases and `aliases` to a version; the caller holds the lock."""
        versions = self.list_versions(version.model)
        if version.version not in [listed.version for listed in versions]:
            # The number of this promotion depends on the promotions of all listed versions.
            raise InputError(f"{version.name} is no longer listed in {self.parent}; try again")
        champion = _find_champion(versions)
        if champion and champion.version == version.version:  # Another process has promoted it.
            return
        last = max((n for listed in versions for n in listed.promotions), default=0)
        changes = [CHAMPION, _DEFAULT, f"{CHAMPION}-{last + 1}", *aliases]
        if CHALLENGER in version.aliases:
            changes.append(f"-{CHALLENGER}")
        self._merge(version, changes)

    def _hold_lock(self, version: Version) -> contextlib.AbstractContextManager[None]:
        return promotion_lock(self.client, self._resource_name(version.model), version.version)

    def _delete(self, version: Version) -> None:
        """Delete a rejected version, unless the registry refuses."""
        from google.api_core import exceptions

        with contextlib.suppress(exceptions.FailedPrecondition, exceptions.NotFound):
            self.client.delete_model_version(name=version.resource).result()

    def _find_or_upload(self, model: str, candidate: Candidate) -> Version:
        """Return the candidate's version; upload it if it does not exist."""
        from google.api_core import exceptions

        existing = self.list_versions(model)
        if existing and not any(version.is_ours for version in existing):
            raise InputError(
                f"the model {model!r} in {self.parent} was not made by this project: none of its "
                f"versions has the label made-by or the alias {CHAMPION}; give another model_name"
            )
        try:
            return _find_version(candidate, existing) or self._upload(
                model, candidate, new=not existing
            )
        except exceptions.Conflict:
            if existing:
                raise
        # Another run, or an earlier attempt of this run, has created the model in the meantime.
        return _find_version(candidate, self.list_versions(model)) or self._upload(
            model, candidate, new=False
        )

    def _upload(self, model: str, candidate: Candidate, *, new: bool) -> Version:
        target = {"model_id": model} if new else {"parent_model": self._resource_name(model)}
        number = upload(self.client, self.parent, model, candidate, **target)
        return self._fetch_version(model, number)

    def _merge(self, version: Version, changes: list[str]) -> Version:
        """Add aliases to a version; remove aliases that are given with the prefix `-`."""
        needed = [alias for alias in changes if alias not in version.aliases]
        with Change() as change:
            if needed:
                version_aliases.merge(self.client, version.resource, needed)
                change.begun = True
            return self._fetch_version(version.model, version.version)

    def _fetch_version(self, model: str, number: str) -> Version:
        name = f"{self._resource_name(model)}@{number}"
        return _parse_version(model, self.client.get_model(name=name))

    def _resource_name(self, model: str) -> str:
        return f"{self.parent}/models/{model}"


def connect_registry(project: str, location: str) -> ModelRegistry:
    """Return the registry of a project and location; see `connect_vertex` for the server used."""
    client = connect_vertex("model", location, os.environ)
    return ModelRegistry(client, f"projects/{project}/locations/{location}")


def describe_promotion(version: Version, command: str) -> str:
    """Return how `command`, which promotes a version of a model, makes this one the champion."""
    return (
        f"version {version.version} is registered, but not as champion ({version.description}); "
        f"`{command} --version {version.version}` makes it the champion"
    )


def _find_champion(versions: Iterable[Version]) -> Version | None:
    return next((version for version in versions if CHAMPION in version.aliases), None)


def _find_version(candidate: Candidate, versions: Iterable[Version]) -> Version | None:
    uri = candidate.artifact_uri
    return next((version for version in versions if version.artifact_uri == uri), None)


def _parse_version(model: str, message: Any) -> Version:
    return Version(
        model=model,
        version=message.version_id,
        resource=f"{message.name.partition('@')[0]}@{message.version_id}",
        artifact_uri=message.artifact_uri,
        aliases=tuple(message.version_aliases),
        labels=dict(message.labels),
        description=message.version_description,
    )
