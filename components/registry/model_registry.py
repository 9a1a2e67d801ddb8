"""Versions of a model in Vertex AI's Model Registry, and which of them is the champion.

    registry = ModelRegistry(client, "projects/my-project/locations/us-central1")
    registry.champion("digits")      # the version with the alias champion, or None
    registry.promote("digits", "3")
    registry.roll_back("digits")

A recipe's versions belong to one model, whose ID is its name. What was champion stays known
by aliases that never move, champion-1, champion-2, ...: the n-th promotion. Rolling back takes
the last of them away, so that a champion which was withdrawn is never returned to.
An alias that is given to a version leaves the one that had it, in one request.
https://cloud.google.com/vertex-ai/docs/model-registry/model-alias
"""

import contextlib
import dataclasses
import os
import re
from collections.abc import Callable, Iterable
from typing import Any

from components.cloud_errors import in_one_line
from components.registry.model_upload import Candidate, import_evaluation, upload
from components.registry.promotion_lock import promotion_lock
from components.vertex_client import model_client
from trainer.errors import InputError
from trainer.evaluation.gate_options import CHALLENGER, CHAMPION

_DEFAULT = "default"
_PROMOTION = re.compile(rf"{CHAMPION}-([0-9]+)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Version:
    """A version of a model in the registry.

    Attributes:
        model: its ID.
        version: its number, as text.
        resource: projects/P/locations/L/models/M@version.
        artifact_uri: folder of the SavedModel.
    """

    model: str
    version: str
    resource: str
    artifact_uri: str
    aliases: tuple[str, ...]
    labels: dict[str, str]

    @property
    def name(self) -> str:
        """Return model@version."""
        return f"{self.model}@{self.version}"

    @property
    def promotions(self) -> list[int]:
        """Return the numbers of the promotions that made it champion."""
        found = [_PROMOTION.fullmatch(alias) for alias in self.aliases]
        return sorted(int(match[1]) for match in found if match)


@dataclasses.dataclass(frozen=True)
class ModelRegistry:
    """The registry of a project and location.

    Args:
        client: a `Service` of Vertex AI's ModelServiceClient, whose calls are retried.
        parent: projects/P/locations/L.

    Every method raises google.api_core.exceptions.GoogleAPICallError where the service refuses.
    """

    client: Any
    parent: str

    def versions(self, model: str) -> list[Version]:
        """Return all versions of a model, the oldest first; [] where there is no such model."""
        from google.api_core import exceptions

        try:
            found = list(self.client.list_model_versions(name=self._resource(model)))
        except exceptions.NotFound:
            return []
        versions = [_version(model, one) for one in found]
        return sorted(versions, key=lambda one: (len(one.version), one.version))

    def champion(self, model: str) -> Version | None:
        """Return the version with the alias champion."""
        return next((one for one in self.versions(model) if CHAMPION in one.aliases), None)

    def register(
        self,
        model: str,
        candidate: Candidate,
        role: str,
        rival: str,
        judge: Callable[[Version | None], str] = lambda _: CHALLENGER,
    ) -> Version | None:
        """Register a candidate; one that is registered already is only completed.

        Args:
            role: champion or challenger.
            rival: the champion that it was compared with, model@version; empty for none.
            judge: compares it with the champion that another run has put in place since, and
                returns its role: champion, challenger, or "" for none, by which it leaves the
                registry.

        Returns:
            Its version; None where it has left the registry.
        """
        version = self._registered(model, candidate)
        commit = candidate.labels.get("commit")
        aliases = [f"commit-{commit}"] if commit else []
        while role == CHAMPION:
            with self._promotion_lock(version):
                # Asked again: an upload takes minutes.
                champion = self.champion(model)
                if champion and champion.version == version.version:
                    break
                if (champion.name if champion else "") == rival:
                    self._promote(version, aliases)
                    break
            role, rival = judge(champion), champion.name if champion else ""
        if not role:
            self._delete(version)
            return None
        if role == CHALLENGER:
            self._merge(version, [CHALLENGER, *aliases])
        # After the promotion: what the registry makes of an evaluation must not stop it.
        import_evaluation(self.client, version.resource, candidate)
        return self._get(model, version.version)

    def promote(self, model: str, number: str) -> Version:
        """Make a version the champion.

        Raises:
            InputError: no such version.
        """
        versions = self.versions(model)
        version = next((one for one in versions if one.version == number), None)
        if version is None:
            known = f"it has {', '.join(one.version for one in versions)}" if versions else ""
            raise InputError(
                f"model {model!r} has no version {number!r} in {self.parent}; "
                f"{known or 'run its recipe first'}"
            )
        if CHAMPION in version.aliases:
            return version
        with self._promotion_lock(version):
            self._promote(version)
        return self._get(model, number)

    def roll_back(self, model: str) -> tuple[Version, Version | None]:
        """Make the champion before this one the champion again; return it, and the other.

        Done again after an interruption, it ends what was begun.

        Raises:
            InputError: there was none before.
        """
        versions = self.versions(model)
        if not versions:
            return self._roll_back(model)
        with self._promotion_lock(self.champion(model) or versions[0]):
            previous, champion = self._roll_back(model)
        return self._get(model, previous.version), champion

    def _roll_back(self, model: str) -> tuple[Version, Version | None]:
        versions = self.versions(model)
        champion = next((one for one in versions if CHAMPION in one.aliases), None)
        history = sorted((n, one.version) for one in versions for n in one.promotions)
        withdrawn = []
        # More than one where the version that was champion between has been deleted.
        while champion and history and history[-1][1] == champion.version:
            withdrawn.append(f"-{CHAMPION}-{history.pop()[0]}")
        if not history:
            raise InputError(
                f"model {model!r} has had no champion before "
                f"{champion.name if champion else 'now'}; promote a version with --version"
            )
        if champion and withdrawn:
            # First: interrupted here, the next try finds the same champion to return to.
            self._merge(champion, withdrawn)
        previous = next(one for one in versions if one.version == history[-1][1])
        return self._merge(previous, [CHAMPION, _DEFAULT]), champion

    def _promote(self, version: Version, aliases: Iterable[str] = ()) -> None:
        """Give a version the champion's aliases, and further `aliases`; needs the lock."""
        versions = self.versions(version.model)
        if version.version not in [one.version for one in versions]:
            # Its number among the promotions depends on theirs.
            raise InputError(f"{version.name} is no longer listed in {self.parent}; try again")
        last = max((n for one in versions for n in one.promotions), default=0)
        changes = [CHAMPION, _DEFAULT, f"{CHAMPION}-{last + 1}", *aliases]
        if CHALLENGER in version.aliases:
            changes.append(f"-{CHALLENGER}")
        self._merge(version, changes)

    def _promotion_lock(self, version: Version) -> contextlib.AbstractContextManager[None]:
        return promotion_lock(self.client, self._resource(version.model), version.version)

    def _delete(self, version: Version) -> None:
        """Take a rejected version out of the registry; one that it holds on to, stays."""
        from google.api_core import exceptions

        with contextlib.suppress(exceptions.FailedPrecondition, exceptions.NotFound):
            self.client.delete_model_version(name=version.resource).result()

    def _registered(self, model: str, candidate: Candidate) -> Version:
        """Return the candidate's version, uploaded where it isn't there."""
        from google.api_core import exceptions

        known = self.versions(model)
        try:
            return _of(candidate, known) or self._upload(model, candidate, new=not known)
        except exceptions.Conflict:
            if known:
                raise
        # Another run, or a try of this one that is gone, has made the model in the meantime.
        return _of(candidate, self.versions(model)) or self._upload(model, candidate, new=False)

    def _upload(self, model: str, candidate: Candidate, *, new: bool) -> Version:
        where = {"model_id": model} if new else {"parent_model": self._resource(model)}
        return self._get(model, upload(self.client, self.parent, model, candidate, **where))

    def _merge(self, version: Version, changes: list[str]) -> Version:
        """Give aliases to a version, and take those that begin with `-`."""
        given = [alias for alias in changes if alias not in version.aliases]
        if given:
            self.client.merge_version_aliases({"name": version.resource, "version_aliases": given})
        return self._get(version.model, version.version)

    def _get(self, model: str, number: str) -> Version:
        name = f"{self._resource(model)}@{number}"
        return _version(model, self.client.get_model(name=name))

    def _resource(self, model: str) -> str:
        return f"{self.parent}/models/{model}"


def registry_of(project: str, location: str) -> ModelRegistry:
    """Return the registry of a project and location, as `model_client` finds it."""
    client = model_client(location, os.environ)
    return ModelRegistry(client, f"projects/{project}/locations/{location}")


def find_champion(model: str, project: str, location: str) -> Version | None:
    """Return the champion of `model`; None where there is none, or `model` is empty.

    Raises:
        InputError: the registry refuses, or can't be reached.
    """
    if not model:
        return None
    with in_one_line(f"looking for the champion of {model!r}"):
        return registry_of(project, location).champion(model)


def start_weights(warm_start: str, model: str, project: str, location: str) -> str:
    """Return the URI of the weights that a training starts from; empty: random ones.

    Args:
        warm_start: champion, a URI, or empty.
        model: whose champion it is.
    """
    if warm_start != CHAMPION:
        return warm_start
    champion = find_champion(model, project, location)
    if champion:
        print(f"training starts from the weights of {champion.name}", flush=True)
        return champion.artifact_uri
    print(f"{model!r} has no champion yet: training starts from random weights", flush=True)
    return ""


def _of(candidate: Candidate, versions: Iterable[Version]) -> Version | None:
    return next((one for one in versions if one.artifact_uri == candidate.artifact_uri), None)


def _version(model: str, message: Any) -> Version:
    return Version(
        model=model,
        version=message.version_id,
        resource=f"{message.name.partition('@')[0]}@{message.version_id}",
        artifact_uri=message.artifact_uri,
        aliases=tuple(message.version_aliases),
        labels=dict(message.labels),
    )
