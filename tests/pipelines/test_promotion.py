"""The command promote changes the champion, on this machine and in a project."""

import pytest

from tests.registry_service import ModelService, candidate, registry_at
from vertex.emulator.model_service import FOLDER_NAME

pytestmark = pytest.mark.usefixtures("elsewhere")
LOCAL = ("local", "local")
PROJECT = ("my-project", "us-central1")


def register(environment, place, *runs, folder=""):
    registry, compared_with = registry_at(environment, *place), ""
    for run in runs:
        version = candidate(f"{folder}/{run}/model", description=run, labels={"run": run})
        compared_with = registry.register("digits", version, "champion", compared_with).name
    return registry


def test_local_versions_are_listed_promoted_and_rolled_back(succeed, tmp_path):
    with ModelService(tmp_path / "runs" / FOLDER_NAME, project_number="") as server:
        register(server.environment, LOCAL, "one", "two")
    row = ["2", "champion,", "champion-2,", "default", "two", "/two/model"]
    assert succeed("promote digits --local").splitlines()[2].split() == row
    shown = succeed("promote digits --local --version 1")
    assert shown == "digits@1 is the champion of digits\n"
    shown = succeed("promote digits --local --rollback")
    assert shown == "digits@2 is the champion of digits again, after digits@1\n"
    shown = succeed("promote digits --local --rollback")
    assert shown.startswith("digits@1 is the champion of digits again")


def test_local_registry_needs_no_proxy_and_folders_are_escaped(succeed, tmp_path, monkeypatch):
    place = "/\x1b[2J[bold]/" + "long-" * 20
    with ModelService(tmp_path / "runs" / FOLDER_NAME, project_number="") as server:
        register(server.environment, LOCAL, "one", folder=place)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "intranet")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("COLUMNS", "120")
    shown = succeed("promote digits --local")
    assert "\x1b" not in shown
    place = place.replace("\x1b", r"\x1b")
    assert f"{place}/one/model" in "".join(line.split()[-1] for line in shown.splitlines())


def test_one_request_moves_the_alias_in_a_project(succeed, refused, tmp_path, monkeypatch):
    with ModelService(tmp_path / "service") as service:
        for name, value in service.environment.items():
            monkeypatch.setenv(name, value)
        registry = register(service.environment, PROJECT, "one", "two")
        before = len(service.requests)
        flags = "--project", PROJECT[0], "--region", PROJECT[1]
        succeed("promote digits --version 1", *flags)
        sent = service.requests[before:]
        merges = [request for name, request in sent if name == "MergeVersionAliases"]
        # The others take and leave the lock of promotions.
        (merge,) = [merge for merge in merges if "champion" in merge.version_aliases]
        assert merge.name.endswith("models/digits@1")
        assert set(merge.version_aliases) == {"champion", "default", "champion-3"}
        assert registry.find_champion("digits").name == "digits@1"

        service.fail("ListModelVersions", 403, "PERMISSION_DENIED", "no access")
        error = refused("promote digits --rollback", *flags, code=1)
        assert error.startswith("error: calling the Model Registry for 'digits': 403")


def test_rollback_whose_end_fails_is_not_kept_quiet(succeed, refused, tmp_path, monkeypatch):
    with ModelService(tmp_path / "service") as service:
        for name, value in service.environment.items():
            monkeypatch.setenv(name, value)
        register(service.environment, PROJECT, "one", "two", "three")
        flags = "--project", PROJECT[0], "--region", PROJECT[1]

        def refuse_to_unlock():
            service.fail("MergeVersionAliases", 400, "FAILED_PRECONDITION", "no", times=9)

        # The version is read after its alias has moved, before the lock is released.
        service.before("GetModel", lambda: service.before("GetModel", refuse_to_unlock))
        error = refused("promote digits --rollback", *flags, code=1)
        service.pardon()
        assert error.endswith("no; it may have taken effect: `promote digits` lists the champion\n")
        assert "2        champion" in succeed("promote digits", *flags)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--version 1 --rollback", "--version and --rollback exclude each other"),
        ("--local --version 4", "model 'digits' has no version '4'"),
        ("--local --rollback", "model 'digits' had no champion before now"),
        ("--version 1", "no project: give --project"),
        ("--project '' --version 1", "--project '' is empty; give a value, or leave"),
        ("--local --version 1 --project p", "--project is for the registry of Vertex AI; leave"),
        ("--local --runs-directory nowhere", "'nowhere': there is no such folder"),
        ("--runs-directory runs --version 1", "'runs' is for runs on this machine"),
    ],
)
def test_invalid_arguments_are_refused(refused, arguments, message):
    assert message in refused(f"promote digits {arguments}")
