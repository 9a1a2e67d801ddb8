"""Test that the infrastructure is complete, closed by default, and names nobody's resources.

Continuous integration runs terraform validate.
"""

import re
from pathlib import Path

from tests.child_processes import ROOT

FOLDER = ROOT / "terraform"
CODE = "\n".join(path.read_text() for path in sorted(FOLDER.glob("*.tf")))
DECLARED = set(re.findall(r'^resource "(\w+)" "(\w+)"', CODE, re.MULTILINE))


def body(kind: str, name: str) -> str:
    start = CODE.index(f'resource "{kind}" "{name}" {{')
    return CODE[start : CODE.index("\n}\n", start)]


def test_referenced_variables_and_resources_are_declared():
    variables = set(re.findall(r'^variable "(\w+)"', CODE, re.MULTILINE))
    assert variables and variables == set(re.findall(r"\bvar\.(\w+)", CODE))
    resources = set(re.findall(r"(?<![\w.])(google_\w+)\.(\w+)", CODE))
    data = {("google_project", "this")}
    assert len(resources) > 6 and resources <= DECLARED | data


def test_bucket_is_private_uniform_and_deletes_old_objects():
    bucket = body("google_storage_bucket", "this")
    assert re.search(r"uniform_bucket_level_access += true", bucket)
    assert re.search(r'public_access_prevention += "enforced"', bucket)
    assert bucket.count("lifecycle_rule {") >= 2


def test_images_and_pipelines_have_a_repository_each():
    kind = "google_artifact_registry_repository"
    formats = {
        re.search(r'format += "(\w+)"', body(*declared))[1]
        for declared in DECLARED
        if declared[0] == kind
    }
    assert formats == {"DOCKER", "KFP"}


def test_accounts_have_least_privileges():
    roles = set(re.findall(r'role += "(roles/[\w.]+)"', CODE))
    assert "roles/aiplatform.user" in roles
    # Of the one bucket: TensorBoard's documentation requires it.
    admin = {role for role in roles if re.search(r"(owner|editor|[aA]dmin)$", role)}
    assert admin == {"roles/storage.admin"}
    tensorboard = body("google_storage_bucket_iam_member", "runner_tensorboard")
    assert "google_storage_bucket.this" in tensorboard
    releaser = body("google_artifact_registry_repository_iam_member", "releaser_pipelines")
    assert '"roles/artifactregistry.writer"' in releaser
    scheduler = body("google_project_iam_custom_role", "scheduler")
    assert all(f"schedules.{verb}" in scheduler for verb in ("create", "update", "delete"))
    # Vertex AI's service agents pull the images.
    repositories = {name for kind, name in DECLARED if kind.endswith("repository_iam_member")}
    assert repositories == {"runner_pipelines", "releaser_images", "releaser_pipelines"}
    assert "google_service_account_key" not in CODE
    assert not re.search(r"allUsers|allAuthenticatedUsers", CODE)


def test_only_tags_of_one_repository_can_release():
    provider = body("google_iam_workload_identity_pool_provider", "github")
    for part in ("environment == 'release'", "repository_id ==", "refs/tags/v"):
        assert part in provider
    # GitHub sends the subject in two forms, by the repository's age.
    assert "assertion.sub" not in re.sub("#.*", "", provider)
    binding = body("google_service_account_iam_member", "github_as_releaser")
    assert "subject/repository:${var.github_repository_id}:environment:release" in binding


def test_delivery_files_name_no_account_or_key():
    paths = [
        *FOLDER.glob("*"),
        *(ROOT / ".github").rglob("*.yml"),
        *(path for path in (ROOT / "containers").iterdir() if path.suffix != ".lock"),
        *(ROOT / name for name in (".pre-commit-config.yaml", "docs/delivery.md")),
    ]
    patterns = {
        "private key": r"-----BEGIN|\"private_key\"",
        "API key": r"AIza[0-9A-Za-z_-]{35}|ghp_\w{36}",
        "billing account": r"\b[0-9A-F]{6}-[0-9A-F]{6}-[0-9A-F]{6}\b",
        "account": r"[\w.-]+@[\w-]+\.iam\.gserviceaccount\.com",
        "e-mail address": r"\b[\w.]+@[\w-]+\.(com|org|net|io)\b",
        "bucket": r"gs://[a-z0-9][\w-]+",
        "project": r"projects/[a-z0-9]",
    }
    for path in filter(Path.is_file, paths):
        for name, pattern in patterns.items():
            assert not re.search(pattern, path.read_text()), (path, name)
