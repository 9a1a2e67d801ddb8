"""Test promotion of a version to champion and its rollback."""

import re

import pytest
from google.api_core import exceptions

from tests.components.test_model_registry import aliases, candidate, promote_each
from tests.refusals import refused
from tests.registry_service import NUMBER
from trainer.errors import InputError


def test_rollback_never_returns_to_the_withdrawn_version(registry, service):
    promote_each(registry, "one", "two")
    registry.promote("digits", "1")
    parent = f"projects/{NUMBER}/locations/us-central1/models/digits"
    registry.client.delete_model_version(name=f"{parent}@2")
    assert "has had no champion before digits@1" in refused(registry.roll_back, "digits")
    assert aliases(registry)["1"] >= {"champion", "champion-1", "champion-3"}


def test_rollback_walks_the_history_past_withdrawn_versions(registry):
    promote_each(registry, "one", "two")
    champion, withdrawn = registry.roll_back("digits")
    assert (champion.name, withdrawn.name) == ("digits@1", "digits@2")
    registry.register("digits", candidate("three"), "champion", "digits@1")
    assert registry.roll_back("digits")[0].name == "digits@1"
    assert aliases(registry) == {
        "1": {"default", "champion", "champion-1"},
        "2": set(),
        "3": {"commit-0123456789ab"},
    }
    with pytest.raises(InputError, match="has had no champion before digits@1; promote a version"):
        registry.roll_back("digits")


def test_interrupted_rollback_ends_at_the_same_champion(registry, service):
    promote_each(registry, "one", "two", "three")
    # The second of the two changes fails.
    service.fail("GetModel", 403, "PERMISSION_DENIED")
    with pytest.raises(exceptions.Forbidden):
        registry.roll_back("digits")
    assert "champion" in aliases(registry)["3"]
    assert registry.roll_back("digits")[0].name == "digits@2"
    assert registry.roll_back("digits")[0].name == "digits@1"


def test_version_promoted_again_rolls_back_to_the_one_between(registry, service):
    promote_each(registry, "one", "two")
    registry.promote("digits", "1")
    # Promotion of the champion changes nothing.
    before = len(service.sent("MergeVersionAliases"))
    registry.promote("digits", "1")
    assert len(service.sent("MergeVersionAliases")) == before
    assert registry.roll_back("digits")[0].name == "digits@2"


def test_unknown_version_is_refused_with_the_known_ones(registry):
    with pytest.raises(InputError, match=r"no version '7' .*run its recipe first"):
        registry.promote("digits", "7")
    promote_each(registry, "one")
    assert re.search(r"no version '7' .*known: 1", refused(registry.promote, "digits", "7"))
