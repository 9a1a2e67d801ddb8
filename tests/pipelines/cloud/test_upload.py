"""Uploads of compiled pipelines: versions, tags, and answers that are errors."""

import hashlib
import tomllib

import pytest

from pipelines.cloud import upload
from tests.child_processes import ROOT
from tests.pipelines.cloud.conftest import IMAGE
from vertex.client import vertex_client
from vertex.emulator.api_error import ApiError
from vertex.emulator.artifact_registry import check_names


def test_version_is_uploaded_once_and_tagged(registry, succeed, tmp_path, monkeypatch):
    monkeypatch.setattr(upload, "git_commit", lambda: "abc123")
    out = succeed("compile digits --upload")
    content = (tmp_path / "build" / "digits.yaml").read_bytes()
    version = f"sha256:{hashlib.sha256(content).hexdigest()}"
    package = registry.packages["training-digits"]
    assert package["versions"] == {version: content.decode()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    tag = f"v{project['version']}"
    assert package["tags"] == dict.fromkeys([tag, "commit-abc123", "latest"], version)
    assert f"uploaded  {registry.repository}/training-digits/{version}" in out
    assert IMAGE.encode() in content
    # The same bytes get the tag of a new commit.
    monkeypatch.setattr(upload, "git_commit", lambda: "def456")
    assert "unchanged" in succeed("compile digits --upload")
    assert registry.names().count("Upload") == 1
    assert registry.sent("CreateTag") == ["commit-def456"]
    assert registry.sent("UpdateTag") == []
    succeed("compile digits --upload --image", IMAGE.replace("1" * 64, "2" * 64))
    assert registry.names().count("Upload") == 2
    assert len(package["versions"]) == 2


@pytest.mark.parametrize(
    ("name", "tags", "reason"),
    [
        ("abc", ["latest"], "package name 'abc' is not 4 to 128"),
        ("training.digits", ["latest"], "package name 'training.digits' is not"),
        ("digits", [f"v{number}" for number in range(9)], "9 tags; at most 8"),
        ("digits", ["v 1"], "'v 1' is not a tag"),
    ],
)
def test_malformed_name_or_tag_is_refused(name, tags, reason):
    with pytest.raises(ApiError, match=reason):
        check_names(name, tags)


def test_image_without_a_digest_gives_a_warning(registry, command):
    tagged = f"{IMAGE.partition('@')[0]}:1"
    code, _, err = command(f"compile digits --upload --image {tagged}")
    assert (code, err.count("\n")) == (0, 1)
    assert err.startswith(f"warning: image {tagged} has no digest: ")


def test_bucket_gets_a_file_by_digest_and_tag(vertex, storage, succeed, tmp_path, monkeypatch):
    monkeypatch.setattr(upload, "git_commit", lambda: "abc123")
    line = "compile digits --upload --template-repository gs://bucket/pipelines"
    out = succeed(line)
    content = (tmp_path / "build" / "digits.yaml").read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    names = [digest, "v0.1.0", "commit-abc123", "latest"]
    assert storage.buckets["bucket"] == {
        f"pipelines/training-digits/{name}.yaml": content for name in names
    }
    assert f"uploaded  gs://bucket/pipelines/training-digits/{digest}.yaml" in out
    assert "unchanged" in succeed(line)
    written = storage.sent("InsertObject")
    assert written.count(f"pipelines/training-digits/{digest}.yaml") == 1


def test_upload_retries_faults_and_reports_refusals(registry, command):
    registry.drop("Upload")
    registry.fail("GetVersion", 503, "UNAVAILABLE")
    assert command("compile digits --upload")[0] == 0
    registry.fail("GetVersion", 403, "PERMISSION_DENIED", "no permission", times=9)
    code, _, err = command("compile digits --upload")
    assert (code, err.count("\n")) == (1, 1)
    assert err.startswith("error: uploading build/digits.yaml to http://127.0.0.1")
    assert "403" in err and "doctor" in err and "no permission" in err


def test_upload_whose_answer_is_lost_is_stored_once(registry, storage, command, succeed):
    def conflict():
        registry.fail("Upload", 409, "ALREADY_EXISTS", "version exists")

    registry.fail("Upload", 503, "UNAVAILABLE", after=True)
    registry.before("Upload", conflict)
    code, out, _ = command("compile digits --upload")
    assert (code, "\nuploaded  " in f"\n{out}") == (0, True)
    (package,) = registry.packages.values()
    assert len(package["versions"]) == 1
    assert package["tags"]["latest"] in package["versions"]
    # A conflict with something else is one.
    package["versions"].clear()
    conflict()
    code, _, err = command("compile digits --upload")
    assert (code, "409 version exists" in err) == (1, True)
    storage.drop("InsertObject", after=True)
    code, out, _ = command("compile digits --upload --template-repository gs://bucket/pipelines")
    assert (code, "\nuploaded  " in f"\n{out}") == (0, True)


def test_unreachable_repository_of_google_is_named(vertex, command, monkeypatch):
    monkeypatch.setattr(vertex_client, "_RETRY_SECONDS", 0.2)
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    repository = "https://us-central1-kfp.pkg.dev/my-project/pipelines"
    vertex.fail("GetVersion", 404, "NOT_FOUND")
    code, _, err = command(f"compile digits --upload --template-repository {repository}")
    *_, last = err.splitlines()
    assert code == 1
    assert last.startswith(f"error: uploading build/digits.yaml to {repository}: ")


@pytest.mark.parametrize(
    ("name", "answer", "message"),
    [
        ("Upload", "<html>Welcome</html>", "not the answer of a repository of pipelines"),
        ("Upload", "", "not the answer of a repository of pipelines"),
        ("Upload", '{"done": true}', "not the answer of a repository of pipelines"),
        ("GetVersion", [1], "(JSON that is not an object)"),
    ],
)
def test_foreign_answer_is_one_line(registry, command, monkeypatch, name, answer, message):
    call = registry.call

    def answered(called, function, request):
        return call(called, (lambda _: answer) if called == name else function, request)

    monkeypatch.setattr(registry, "call", answered)
    code, _, err = command("compile digits --upload")
    assert (code, err.count("\n")) == (1, 1)
    assert message in err
