"""Versions and champions, asked of a server that speaks the official protos."""

import os
import pathlib
import subprocess
import sys

import pytest
from google.cloud.aiplatform_v1 import types
from google.protobuf import json_format

from components.registry import model_upload
from components.registry.model_registry import find_champion
from components.registry.model_upload import METRICS_SCHEMA, label
from tests import model_service
from tests.model_service import NUMBER, ModelService, registry_at

PARENT = "projects/my-project/locations/us-central1"


def candidate(run, **changes):
    values = {
        "serving_image": "image:1",
        "description": f"{run}: better",
        "labels": {
            "recipe": "digits",
            "made-by": "vertex-tensorflow-training",
            "commit": "0123456789ab",
        },
        "metrics": {"auRoc": 0.5, "confusionMatrix": {"rows": [[3, 1], [0, 4]]}},
    }
    return model_service.candidate(f"gs://bucket/{run}/model", **{**values, **changes})


def promote_each(registry, *runs):
    """Registers candidates, each better than the one before."""
    compared_with = ""
    for run in runs:
        compared_with = registry.register("digits", candidate(run), "champion", compared_with).name
    return compared_with


def aliases(registry):
    return {one.version: set(one.aliases) for one in registry.versions("digits")}


def test_the_first_version_makes_the_model_and_brings_its_evaluation(registry, service):
    version = registry.register("digits", candidate("one"), "champion", "")
    (upload,) = service.sent("UploadModel")
    assert (upload.parent, upload.model_id, upload.parent_model) == (PARENT, "digits", "")
    assert upload.model.display_name == "digits"
    assert upload.model.artifact_uri == "gs://bucket/one/model"
    assert upload.model.container_spec.image_uri == "image:1"
    assert upload.model.labels["recipe"] == "digits"
    assert upload.model.version_description == "one: better"
    (imported,) = service.sent("ImportModelEvaluation")
    assert imported.parent == f"projects/{NUMBER}/locations/us-central1/models/digits@1"
    assert imported.model_evaluation.metrics_schema_uri == METRICS_SCHEMA
    assert json_format.MessageToDict(imported.model_evaluation._pb.metrics) == {
        "auRoc": 0.5,
        "confusionMatrix": {"rows": [[3, 1], [0, 4]]},
    }
    assert version.name == "digits@1"
    assert aliases(registry) == {"1": {"default", "champion", "champion-1", "commit-0123456789ab"}}


def test_later_versions_join_that_model_and_the_old_champion_keeps_its_place(registry, service):
    promote_each(registry, "one", "two", "three")
    uploads = service.sent("UploadModel")
    parent = f"{PARENT}/models/digits"
    assert [one.parent_model for one in uploads] == ["", parent, parent]
    assert [one.model_id for one in uploads] == ["digits", "", ""]
    assert aliases(registry) == {
        "1": {"champion-1"},
        "2": {"champion-2"},
        "3": {"default", "champion", "champion-3", "commit-0123456789ab"},
    }
    assert registry.champion("digits").artifact_uri == "gs://bucket/three/model"


def test_a_challenger_leaves_the_champion_alone(registry, service):
    promote_each(registry, "one")
    registry.register("digits", candidate("two"), "challenger", "digits@1")
    assert aliases(registry) == {
        "1": {"default", "champion", "champion-1"},
        "2": {"challenger", "commit-0123456789ab"},
    }
    registry.promote("digits", "2")
    assert "challenger" not in aliases(registry)["2"]


@pytest.mark.parametrize("role", ["champion", "challenger"])
@pytest.mark.parametrize(
    "name", ["UploadModel", "ImportModelEvaluation", "MergeVersionAliases", "GetModel"]
)
def test_a_step_that_lost_an_answer_and_is_retried_uploads_once(registry, service, role, name):
    service.drop(name, after=True)
    try:
        registry.register("digits", candidate("one"), role, "")
    except Exception as error:  # what a broken connection raises is the transport's business
        assert "onnection" in f"{type(error).__name__} {error}"
    first = registry.register("digits", candidate("one"), role, "")
    again = registry.register("digits", candidate("one"), role, "")
    assert first == again
    assert role in again.aliases
    assert len(registry.versions("digits")) == 1
    assert len(service.sent("UploadModel")) == 1
    assert len(list(registry.client.list_model_evaluations(parent=again.resource))) == 1


def test_a_champion_that_changed_since_the_comparison_is_not_displaced(registry, service):
    promote_each(registry, "one", "two")
    late = registry.register("digits", candidate("late"), "champion", "digits@1")
    assert "challenger" in late.aliases
    assert registry.champion("digits").name == "digits@2"


def test_an_evaluation_whose_matrix_is_refused_goes_without_it(registry, service):
    service.fail("ImportModelEvaluation", 400, "INVALID_ARGUMENT", "confusionMatrix.rows")
    version = registry.register("digits", candidate("one"), "champion", "")
    sent = [json_format.MessageToDict(one.model_evaluation._pb.metrics)
            for one in service.sent("ImportModelEvaluation")]  # fmt: skip
    assert [sorted(one) for one in sent] == [["auRoc", "confusionMatrix"], ["auRoc"]]
    assert len(list(registry.client.list_model_evaluations(parent=version.resource))) == 1


def test_an_evaluation_that_is_refused_fails_no_registration(registry, service, capsys):
    service.fail("ImportModelEvaluation", 403, "PERMISSION_DENIED", "not for you")
    assert "champion" in registry.register("digits", candidate("one"), "champion", "").aliases
    assert "warning: the registry did not import the evaluation: 403" in capsys.readouterr().out


REGISTER = """
import os, pathlib, sys
from tests.model_service import candidate, registry_at
me, other, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
registry = registry_at(os.environ)
for n in range(rounds):
    pathlib.Path(f"{me}-{n}").touch()
    while not pathlib.Path(f"{other}-{n}").exists():
        pass
    judged = []
    made = registry.register(f"m{n}", candidate(f"/{me}"), "champion", "",
                             lambda champion: judged.append(champion.artifact_uri) or "")
    print(n, made.name if made else "", *judged)
"""


def test_two_equal_runs_at_once_leave_one_champion(service, tmp_path):
    path = str(pathlib.Path(__file__).parents[2])
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", REGISTER, *names, "4"],
            env={**os.environ, **service.environment, "PYTHONPATH": path},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
        )
        for names in (("a", "b"), ("b", "a"))
    ]
    try:
        shown = [process.communicate(timeout=240)[0].splitlines() for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [len(lines) for lines in shown] == [4, 4]
    for one, other in zip(*shown, strict=True):
        # One is champion unjudged; the other was judged against it, rejected, and has left.
        fields = sorted((one.split(" ", 1)[1], other.split(" ", 1)[1]))
        assert fields[0] in (" /a", " /b")
        assert "@" in fields[1]
        assert " " not in fields[1]
    registry = registry_at(service.environment)
    for n in range(4):
        (version,) = registry.versions(f"m{n}")
        assert set(version.aliases) >= {"champion", "default"}
        assert not any(alias.startswith("promoting-") for alias in version.aliases)


def test_a_lock_that_a_crash_has_left_is_taken_away(registry, monkeypatch):
    monkeypatch.setattr("components.registry.promotion_lock.LEASE_SECONDS", 0.3)
    promote_each(registry, "one", "two")
    for number in ("1", "2"):
        name = registry.versions("digits")[0].resource.partition("@")[0]
        request = {"name": f"{name}@{number}", "version_aliases": [f"promoting-{number}"]}
        registry.client.merge_version_aliases(request)
    registry.register("digits", candidate("three"), "champion", "digits@2")
    assert registry.champion("digits").name == "digits@3"
    assert aliases(registry)["1"] == {"champion-1"}


@pytest.fixture
def other(service, tmp_path):
    """The registry as another run sees it, through a server of its own."""
    with ModelService(tmp_path / "registry") as second:
        yield registry_at(second.environment)


def test_a_champion_that_came_while_a_version_was_uploaded_is_not_displaced(
    registry, service, other
):
    promote_each(registry, "one")
    better = candidate("other")
    service.before("GetOperation", lambda: other.register("digits", better, "champion", "digits@1"))
    late = registry.register("digits", candidate("late"), "champion", "digits@1")
    assert "challenger" in late.aliases
    assert registry.champion("digits").artifact_uri == "gs://bucket/other/model"


def test_two_runs_that_register_the_first_version_at_once_both_do(registry, service, other):
    first = candidate("other")
    service.before("UploadModel", lambda: other.register("digits", first, "champion", ""))
    second = registry.register("digits", candidate("late"), "champion", "")
    assert (second.name, "challenger" in second.aliases) == ("digits@2", True)
    assert registry.champion("digits").name == "digits@1"


def test_a_model_that_an_upload_given_up_has_made_is_not_uploaded_again(registry, service, other):
    one = candidate("one")
    service.before("UploadModel", lambda: other.register("digits", one, "challenger", ""))
    registry.register("digits", one, "champion", "")
    assert [one.artifact_uri for one in registry.versions("digits")] == ["gs://bucket/one/model"]
    assert registry.champion("digits").name == "digits@1"


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (429, "RESOURCE_EXHAUSTED"),
        (502, "UNKNOWN"),
        (503, "UNAVAILABLE"),
        (504, "DEADLINE_EXCEEDED"),
    ],
)
def test_what_passes_is_waited_for(registry, service, code, status):
    promote_each(registry, "one")
    service.fail("ListModelVersions", code, status, times=2)
    service.drop("ListModelVersions")
    assert registry.champion("digits").name == "digits@1"


def test_there_is_no_champion_of_a_model_that_nobody_has_made(service):
    assert find_champion("digits", "my-project", "us-central1") is None
    assert find_champion("", "my-project", "us-central1") is None
    assert service.names() == ["ListModelVersions"]


def test_labels_are_brought_into_their_alphabet():
    assert label("Digits 2: The/Run" + "x" * 99) == ("digits-2--the-run" + "x" * 99)[:63]


def served(service, registry, **changes):
    """Return how the registry has the version of a candidate served."""
    made = registry.register("digits", candidate("one", **changes), "champion", "")
    return service.store.get_model(types.GetModelRequest(name=made.resource)).container_spec


def test_a_version_names_how_the_serving_image_is_asked(service, registry):
    spec = served(service, registry, labels={"run": "digits-1"})
    assert spec.image_uri == "image:1"
    assert [port.container_port for port in spec.ports] == [8080]
    assert (spec.health_route, spec.predict_route) == ("/health", "/predict")
    assert [(one.name, one.value) for one in spec.env] == [("MODEL_VERSION", "digits/digits-1")]


@pytest.mark.parametrize("image", ["", model_upload.PREBUILT])
def test_google_s_own_image_knows_its_port_and_routes(service, registry, image):
    spec = served(service, registry, serving_image=image)
    assert spec == types.ModelContainerSpec(image_uri=model_upload.PREBUILT)
