"""Uploads: the same bytes once, tags that follow, and one line when it is refused."""

import hashlib
from pathlib import Path

import pytest

from pipelines.cloud import upload
from tests.pipelines.cloud.conftest import IMAGE
from trainer.toml_reader import tomllib


@pytest.fixture
def commit(monkeypatch):
    """Sets the commit that is checked out."""

    def set_to(value):
        monkeypatch.setattr(upload, "git_commit", lambda: value)

    set_to("abc123")
    return set_to


def test_a_pipeline_is_stored_with_version_commit_and_latest(
    registry, compile_py, tmp_path, commit
):
    code, out, err = compile_py("digits", "--upload")
    assert (code, err) == (0, "")
    content = (tmp_path / "build" / "digits.yaml").read_bytes()
    version = f"sha256:{hashlib.sha256(content).hexdigest()}"
    package = registry.packages["training-digits"]
    assert package["versions"] == {version: content}
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    tag = f"v{project['version'].replace('.', '-')}"
    assert package["tags"] == dict.fromkeys([tag, "commit-abc123", "latest"], version)
    assert f"uploaded  {registry.repository}/training-digits/{version}" in out
    assert IMAGE.encode() in content


def test_the_same_bytes_are_no_new_version_but_get_the_new_commits_tag(
    registry, compile_py, commit
):
    assert compile_py("digits", "--upload")[0] == 0
    commit("def456")
    code, out, _ = compile_py("digits", "--upload")
    assert code == 0
    assert "unchanged" in out
    assert registry.names().count("Upload") == 1
    assert registry.sent("CreateTag") == ["commit-def456"]
    assert registry.sent("UpdateTag") == []
    assert compile_py("digits", "--upload", "--image", IMAGE.replace("1" * 64, "2" * 64))[0] == 0
    assert registry.names().count("Upload") == 2
    assert len(registry.packages["training-digits"]["versions"]) == 2


def test_an_image_without_a_digest_is_warned_of(registry, compile_py, commit):
    tagged = f"{IMAGE.partition('@')[0]}:1"
    code, _, err = compile_py("digits", "--upload", "--image", tagged)
    assert (code, err.count("\n")) == (0, 1)
    assert err.startswith(f"warning: image {tagged} has no digest: ")


def test_a_bucket_holds_the_bytes_by_digest_and_tags_beside_them(
    vertex, storage, compile_py, tmp_path, commit
):
    arguments = ["digits", "--upload", "--template-repository", "gs://bucket/pipelines"]
    code, out, err = compile_py(*arguments)
    assert (code, err) == (0, "")
    content = (tmp_path / "build" / "digits.yaml").read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    names = [digest, "v0-1-0", "commit-abc123", "latest"]
    assert storage.buckets["bucket"] == {
        f"pipelines/training-digits/{name}.yaml": content for name in names
    }
    assert f"uploaded  gs://bucket/pipelines/training-digits/{digest}.yaml" in out
    assert "unchanged" in compile_py(*arguments)[1]
    written = storage.sent("InsertObject")
    assert written.count(f"pipelines/training-digits/{digest}.yaml") == 1


def test_faults_are_waited_out_and_refusals_told_in_a_line(registry, compile_py, commit):
    registry.drop("Upload")
    registry.fail("GetVersion", 503, "UNAVAILABLE")
    assert compile_py("digits", "--upload")[0] == 0
    registry.fail("GetVersion", 403, "PERMISSION_DENIED", "no permission", times=9)
    code, _, err = compile_py("digits", "--upload")
    assert code == 1
    assert err.startswith("error: uploading build/digits.yaml to http://127.0.0.1")
    assert "403" in err and "doctor" in err
    assert err.count("\n") == 1
    assert "no permission" in err


def test_a_repository_of_google_beside_a_server_of_this_machine_is_named(
    vertex, compile_py, monkeypatch
):
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    repository = "https://us-central1-kfp.pkg.dev/my-project/pipelines"
    vertex.fail("GetVersion", 404, "NOT_FOUND")
    code, _, err = compile_py("digits", "--upload", "--template-repository", repository)
    *_, last = err.splitlines()
    assert code == 1
    assert last.startswith(f"error: uploading build/digits.yaml to {repository}: ")


@pytest.mark.parametrize(
    ("asked", "answer", "message"),
    [
        ("Upload", "<html>Welcome</html>", "not the answer of a repository of pipelines"),
        ("Upload", "", "not the answer of a repository of pipelines"),
        ("Upload", '{"done": true}', "not the answer of a repository of pipelines"),
        ("GetVersion", [1], "(JSON that is not an object)"),
    ],
)
def test_an_answer_that_is_not_of_a_repository_of_pipelines_is_one_line(
    registry, compile_py, commit, monkeypatch, asked, answer, message
):
    original = registry.call

    def call(name, function, request):
        return original(name, (lambda _: answer) if name == asked else function, request)

    monkeypatch.setattr(registry, "call", call)
    code, _, err = compile_py("digits", "--upload")
    assert (code, err.count("\n")) == (1, 1)
    assert message in err
