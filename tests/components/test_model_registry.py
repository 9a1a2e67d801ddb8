"""Test versions, champions and rollback against a server that speaks the official protos."""

import dataclasses
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from google.api_core import exceptions
from google.cloud.aiplatform_v1 import types
from google.protobuf import json_format

from components.planning.registered_model import RegisteredModel
from components.planning.serving_container import PREBUILT, make_container
from tests import registry_service
from tests.refusals import refused
from tests.registry_service import NUMBER, ModelService, registry_at
from vertex.emulator.api_error import ApiError
from vertex.errors import InputError
from vertex.registry.model_upload import MADE_BY, METRICS_SCHEMAS

PARENT = "projects/my-project/locations/us-central1"
METRICS = {"auRoc": 0.5, "confusionMatrix": {"rows": [[3, 1], [0, 4]]}}
IMAGE = "us-central1-docker.pkg.dev/p/images/serving:1"
COMMIT = "commit-0123456789ab"


def candidate(run, **changes):
    values = {
        "container": make_container(IMAGE, "digits/digits-1", ""),
        "description": f"{run}: better",
        "labels": {"recipe": "digits", "run": "digits-1", "commit": "0123456789ab", **MADE_BY},
        "metrics": METRICS,
    }
    return registry_service.candidate(f"gs://bucket/{run}/model", **{**values, **changes})


def promote_each(registry, *runs):
    """Register candidates, each better than the one before."""
    compared_with = ""
    for run in runs:
        compared_with = registry.register("digits", candidate(run), "champion", compared_with).name
    return compared_with


def aliases(registry):
    return {version.version: set(version.aliases) for version in registry.list_versions("digits")}


def test_model_of_others_gets_no_version(registry, service):
    registry.register("digits", candidate("theirs", labels={"team": "other"}), "challenger", "")
    with pytest.raises(InputError, match=r"the model 'digits' in projects/.* was not made by"):
        registry.register("digits", candidate("ours"), "champion", "")
    assert aliases(registry) == {"1": {"default", "challenger"}}
    registry.promote("digits", "1")  # A user's own version as the first champion.
    version = registry.register("digits", candidate("ours"), "champion", "digits@1")
    assert "champion" in version.aliases


def test_alias_of_the_commit_has_no_underscore(registry):
    labels = {"recipe": "digits", "run": "digits-1", "commit": "release_1"}
    registry.register("digits", candidate("one", labels=labels), "challenger", "")
    assert aliases(registry) == {"1": {"default", "challenger", "commit-release-1"}}


def test_first_version_creates_the_model_with_its_evaluation(registry, service):
    version = registry.register("digits", candidate("one"), "champion", "")
    (upload,) = service.sent("UploadModel")
    assert (upload.parent, upload.model_id, upload.parent_model) == (PARENT, "digits", "")
    assert upload.model.display_name == "digits"
    assert upload.model.artifact_uri == "gs://bucket/one/model"
    spec = upload.model.container_spec
    assert spec.image_uri == IMAGE
    assert [port.container_port for port in spec.ports] == [8080]
    assert (spec.health_route, spec.predict_route) == ("/health", "/predict")
    assert [(variable.name, variable.value) for variable in spec.env] == [
        ("MODEL_VERSION", "digits/digits-1")
    ]
    assert upload.model.labels["recipe"] == "digits"
    assert upload.model.version_description == "one: better"
    (imported,) = service.sent("ImportModelEvaluation")
    assert imported.parent == f"projects/{NUMBER}/locations/us-central1/models/digits@1"
    assert (
        imported.model_evaluation.metrics_schema_uri
        == METRICS_SCHEMAS + "/classification_metrics_1.0.0.yaml"
    )
    assert json_format.MessageToDict(imported.model_evaluation._pb.metrics) == METRICS
    assert version.name == "digits@1"
    assert aliases(registry) == {"1": {"default", "champion", "champion-1", COMMIT}}


def test_later_versions_join_the_model_and_take_the_alias(registry, service):
    promote_each(registry, "one", "two", "three")
    uploads = service.sent("UploadModel")
    parent = f"{PARENT}/models/digits"
    assert [upload.parent_model for upload in uploads] == ["", parent, parent]
    assert [upload.model_id for upload in uploads] == ["digits", "", ""]
    assert aliases(registry) == {
        "1": {"champion-1"},
        "2": {"champion-2"},
        "3": {"default", "champion", "champion-3", COMMIT},
    }
    assert registry.find_champion("digits").artifact_uri == "gs://bucket/three/model"


def test_champion_stays_until_a_better_one_is_promoted(registry):
    promote_each(registry, "one")
    registry.register("digits", candidate("two"), "challenger", "digits@1")
    assert aliases(registry) == {
        "1": {"default", "champion", "champion-1"},
        "2": {"challenger", COMMIT},
    }
    registry.promote("digits", "2")
    assert "challenger" not in aliases(registry)["2"]
    # It was compared with an earlier champion.
    late = registry.register("digits", candidate("late"), "champion", "digits@1")
    assert "challenger" in late.aliases
    assert registry.find_champion("digits").name == "digits@2"


@pytest.mark.parametrize("role", ["champion", "challenger"])
@pytest.mark.parametrize(
    "name", ["UploadModel", "ImportModelEvaluation", "MergeVersionAliases", "GetModel"]
)
def test_step_retried_after_a_lost_answer_uploads_once(registry, service, role, name):
    service.drop(name, after=True)
    try:
        registry.register("digits", candidate("one"), role, "")
    except Exception as error:  # The transport chooses the type.
        assert "onnection" in f"{type(error).__name__} {error}"
    first = registry.register("digits", candidate("one"), role, "")
    again = registry.register("digits", candidate("one"), role, "")
    assert first == again
    assert role in again.aliases
    assert len(registry.list_versions("digits")) == 1
    assert len(service.sent("UploadModel")) == 1
    assert len(list(registry.client.list_model_evaluations(parent=again.resource))) == 1


def test_refused_evaluation_is_left_out(registry, service, capsys):
    service.fail("ImportModelEvaluation", 400, "INVALID_ARGUMENT", "confusionMatrix.rows")
    version = registry.register("digits", candidate("one"), "champion", "")
    sent = [
        evaluation.model_evaluation.metrics for evaluation in service.sent("ImportModelEvaluation")
    ]
    assert [sorted(metrics) for metrics in sent] == [["auRoc", "confusionMatrix"], ["auRoc"]]
    assert len(list(registry.client.list_model_evaluations(parent=version.resource))) == 1
    service.fail("ImportModelEvaluation", 403, "PERMISSION_DENIED", "not for you")
    champion = registry.register("digits", candidate("two"), "champion", "digits@1")
    assert "champion" in champion.aliases
    assert "warning: the registry did not import the evaluation: 403" in capsys.readouterr().out


def test_two_equal_runs_at_once_leave_one_champion(service):
    barrier = threading.Barrier(2)

    def register(uri, model):
        """Return the version, if one is left, and the champions that it was compared with."""
        registry, champions = registry_at(service.environment), []
        new = registry_service.candidate(uri)
        barrier.wait(60)
        made = registry.register(
            model, new, "champion", "", lambda seen: champions.append(seen.artifact_uri) or ""
        )
        return (made.name if made else "", *champions)

    with ThreadPoolExecutor(2) as pool:
        for model in ("m0", "m1", "m2", "m3"):
            rejected, champion = sorted(pool.map(register, ("/a", "/b"), (model, model)))
            assert rejected in (("", "/a"), ("", "/b"))
            assert len(champion) == 1 and champion[0].startswith(f"{model}@")
            (version,) = registry_at(service.environment).list_versions(model)
            assert set(version.aliases) >= {"champion", "default"}
            assert not any(alias.startswith("promoting-") for alias in version.aliases)


@pytest.fixture
def strict(service, monkeypatch):
    """Let the registry refuse to remove an alias that a version does not have."""
    call = service.call

    def strict_call(name, function, request):
        def refuse_missing(request):
            present = service.store.find(request.name).version_aliases
            for alias in request.version_aliases:
                if alias.startswith("-") and alias[1:] not in present:
                    raise ApiError("NOT_FOUND", f"there is no alias {alias[1:]}")
            return function(request)

        merges = name == "MergeVersionAliases"
        return call(name, refuse_missing if merges else function, request)

    monkeypatch.setattr(service, "call", strict_call)


@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize("change", ["rollback", "promotion"])
def test_two_changes_of_one_champion_at_once_are_one(registry, service, change):
    promote_each(registry, "one", "two", "three", "four")
    if change == "promotion":
        registry.roll_back("digits")
    barrier = threading.Barrier(2)

    def act(_):
        other = registry_at(service.environment)
        # Both have read the champion, and neither has the lock.
        listed = other.list_versions
        waits = iter([barrier.wait])

        def list_and_wait(model):
            found = listed(model)
            next(waits, lambda _: None)(60)
            return found

        object.__setattr__(other, "list_versions", list_and_wait)
        if change == "rollback":
            return [version.name for version in other.roll_back("digits")]
        return [other.promote("digits", "4").name]

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(act, range(2))
    assert first == second == (["digits@3", "digits@4"] if change == "rollback" else ["digits@4"])
    left = aliases(registry)
    assert [number for number in left if "champion" in left[number]] == [first[0][-1]]
    promotions = {alias for found in left.values() for alias in found if "-" in alias}
    ended = {"champion-4"} if change == "promotion" else set()
    assert promotions == {"champion-1", "champion-2", "champion-3", COMMIT, *ended}


def test_rollback_of_a_champion_that_was_replaced_is_refused(registry, service, other_run):
    promote_each(registry, "one", "two", "three")
    registry.promote("digits", "2")
    service.before("MergeVersionAliases", lambda: other_run.promote("digits", "3"))
    message = refused(registry.roll_back, "digits")
    assert "digits@3 was promoted in place of digits@2 in the meantime" in message
    assert registry.find_champion("digits").name == "digits@3"


def test_lock_left_by_a_crash_expires_after_a_word(registry, monkeypatch, capfd):
    monkeypatch.setattr("vertex.registry.promotion_lock.LEASE_SECONDS", 0.3)
    promote_each(registry, "one", "two")
    for number in ("1", "2"):
        name = registry.list_versions("digits")[0].resource.partition("@")[0]
        request = {"name": f"{name}@{number}", "version_aliases": [f"promoting-{number}"]}
        registry.client.merge_version_aliases(request)
    registry.register("digits", candidate("three"), "champion", "digits@2")
    assert registry.find_champion("digits").name == "digits@3"
    assert aliases(registry)["1"] == {"champion-1"}
    waiting = "waiting for the promotion of digits@1 and digits@2 to end; if it was killed, its al"
    assert waiting in capfd.readouterr().err


@pytest.fixture
def other_run(service, tmp_path):
    """Yield the registry as another run sees it, through a server of its own."""
    with ModelService(tmp_path / "registry") as second:
        yield registry_at(second.environment)


def test_champion_promoted_during_an_upload_is_kept(registry, service, other_run):
    promote_each(registry, "one")
    better = candidate("other")
    service.before(
        "GetOperation", lambda: other_run.register("digits", better, "champion", "digits@1")
    )
    late = registry.register("digits", candidate("late"), "champion", "digits@1")
    assert "challenger" in late.aliases
    assert registry.find_champion("digits").artifact_uri == "gs://bucket/other/model"


def test_two_first_versions_at_once_are_both_registered(registry, service, other_run):
    first = candidate("other")
    service.before("UploadModel", lambda: other_run.register("digits", first, "champion", ""))
    second = registry.register("digits", candidate("late"), "champion", "")
    assert (second.name, "challenger" in second.aliases) == ("digits@2", True)
    assert registry.find_champion("digits").name == "digits@1"


def test_model_of_an_abandoned_upload_is_not_uploaded_again(registry, service, other_run):
    version = candidate("one")
    service.before("UploadModel", lambda: other_run.register("digits", version, "challenger", ""))
    registry.register("digits", version, "champion", "")
    assert [version.artifact_uri for version in registry.list_versions("digits")] == [
        "gs://bucket/one/model"
    ]
    assert registry.find_champion("digits").name == "digits@1"


@pytest.mark.parametrize(
    "error", ["429 RESOURCE_EXHAUSTED", "502 UNKNOWN", "503 UNAVAILABLE", "504 DEADLINE_EXCEEDED"]
)
def test_transient_errors_are_retried(registry, service, error):
    promote_each(registry, "one")
    code, status = error.split()
    service.fail("ListModelVersions", int(code), status, times=2)
    service.drop("ListModelVersions")
    assert registry.find_champion("digits").name == "digits@1"


def test_unknown_model_has_no_champion(service):
    ours = RegisteredModel(model_name="digits", project="my-project", location="us-central1")
    assert ours.find_champion() is None
    assert dataclasses.replace(ours, model_name="").find_champion() is None
    assert service.names() == ["ListModelVersions"]


@pytest.mark.parametrize("image", ["", PREBUILT])
def test_prebuilt_image_keeps_its_own_port_and_routes(service, registry, image):
    registry.register(
        "digits",
        candidate("one", container=make_container(image, "digits/run", "")),
        "champion",
        "",
    )
    (upload,) = service.sent("UploadModel")
    assert upload.model.container_spec == types.ModelContainerSpec(image_uri=PREBUILT)


def test_rollback_never_returns_to_the_withdrawn_version(registry, service):
    promote_each(registry, "one", "two")
    registry.promote("digits", "1")
    parent = f"projects/{NUMBER}/locations/us-central1/models/digits"
    registry.client.delete_model_version(name=f"{parent}@2")
    assert "had no champion before digits@1" in refused(registry.roll_back, "digits")
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
    with pytest.raises(InputError, match="had no champion before digits@1; promote a version"):
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


def test_unpromoted_version_is_named_where_there_is_no_champion(registry):
    registry.register("digits", candidate("one"), "candidate", "")
    hint = r"1 is registered, but not as champion \(one: better\); .* --version 1` makes it the cha"
    assert re.search(hint, refused(registry.fetch_champion, "digits"))


def test_unknown_version_is_refused_with_the_known_ones(registry):
    with pytest.raises(InputError, match=r"no version '7' .*run its recipe first"):
        registry.promote("digits", "7")
    promote_each(registry, "one")
    assert re.search(r"no version '7' .*known: 1", refused(registry.promote, "digits", "7"))
