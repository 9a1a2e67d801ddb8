"""Test that Terraform's, GitHub's and Cloud Build's files are complete, and closed by default.

Continuous integration runs terraform validate.
"""

import re
from pathlib import Path

import pytest
import yaml

from tests.child_processes import ROOT
from tests.containers import container_files
from tests.containers.delivery_files import CODE, DECLARED, FOLDER, body, load, run_stubbed


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


def test_old_versions_are_deleted_by_age_and_by_number():
    bucket = body("google_storage_bucket", "this")
    conditions = re.findall(r"condition \{\n(.*?)\n +\}", bucket, re.DOTALL)
    # All conditions of a rule must be met.
    alone = {" ".join(text.split()) for text in conditions if "\n" not in text}
    assert {"days_since_noncurrent_time = 30", "num_newer_versions = 3"} <= alone


def test_no_rule_deletes_an_image_that_is_named_by_digest():
    assert "cleanup_policies" not in CODE
    assert "prevent_destroy = true" in body("google_artifact_registry_repository", "images")


def test_budget_without_addresses_has_no_empty_rule():
    rule = body("google_billing_budget", "this").partition("all_updates_rule")[2]
    assert re.search(r"for_each += length\(var.alert_emails\) == 0 \? \[\]", rule)


def test_budget_is_in_the_currency_of_the_billing_account():
    # Google refuses another one, and takes its own if none is given.
    assert not re.search(r"currency_code +=", body("google_billing_budget", "this"))


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
    # The run that a schedule starts may be the project's first.
    assert '"aiplatform.metadataStores.create"' in scheduler
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
        "account": r"[\w.-]+@(?!gcp-sa-)[\w-]+\.iam\.gserviceaccount\.com",
        "e-mail address": r"\b[\w.]+@[\w-]+\.(com|org|net|io)\b",
        "bucket": r"gs://[a-z0-9][\w-]+",
        "project": r"projects/[a-z0-9]",
    }
    for path in filter(Path.is_file, paths):
        for name, pattern in patterns.items():
            assert not re.search(pattern, path.read_text()), (path, name)


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
RELEASE = ROOT / ".github" / "workflows" / "release.yml"


def steps(workflow):
    return [step for job in workflow["jobs"].values() for step in job.get("steps", [])]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_have_few_permissions_and_plain_scripts(path):
    workflow = load(path)
    assert workflow["permissions"] == {}
    for job in workflow["jobs"].values():
        assert job["permissions"]["contents"] == "read"
        assert set(job["permissions"]) <= {"contents", "id-token"}
        assert "timeout-minutes" in job or "uses" in job
        if "id-token" in job["permissions"]:
            assert path == RELEASE and job["environment"] == "release"
    assert "secrets." not in path.read_text()
    assert not [step for step in steps(workflow) if "${{" in step.get("run", "")]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_commit_with_their_version(path):
    lines = [line for line in path.read_text().splitlines() if "uses:" in line]
    assert lines
    for line in lines:
        if "$/" not in line:
            assert re.search(r"uses: [\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line
    for step in steps(load(path)):
        if "checkout" in step.get("uses", ""):
            assert step["with"]["persist-credentials"] is False


def test_only_a_checked_version_tag_is_released():
    workflow = load(RELEASE)
    # YAML 1.1 reads the key `on` as a boolean.
    assert workflow[True] == {"push": {"tags": ["v*"]}}
    needs = {name: job.get("needs") for name, job in workflow["jobs"].items()}
    assert needs == {"version": None, "ci": "version", "image": "ci", "pipeline": "image"}


def test_terraform_is_installed_before_use():
    for path in WORKFLOWS:
        for job in load(path)["jobs"].values():
            ready = False
            for step in job.get("steps", []):
                ready = ready or "hashicorp/setup-terraform@" in step.get("uses", "")
                assert ready or not re.search(r"^terraform ", step.get("run", ""), re.MULTILINE)


def test_commands_of_workflows_exist(succeed, monkeypatch):
    makefile = (ROOT / "Makefile").read_text()
    scripts = "\n".join(step.get("run", "") for path in WORKFLOWS for step in steps(load(path)))
    for target in re.findall(r"\bmake ([a-z][\w-]*)", scripts):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    flags = set(re.findall(r" (--\w+)", "".join(re.findall(r"compile\.py(.*)", scripts))))
    assert flags == {"--upload"}
    monkeypatch.setenv("COLUMNS", "200")
    shown = succeed("compile --help")
    assert all(flag in shown for flag in flags)
    assert "-m pipelines schedule apply" in scripts
    succeed("schedule apply --help")


def test_terraform_outputs_every_variable_of_a_release():
    read = set(re.findall(r"vars\.(\w+)", RELEASE.read_text()))
    outputs = (ROOT / "terraform" / "outputs.tf").read_text()
    assert read == set(re.findall(r"^ +([A-Z][A-Z_]+) +=", outputs, re.MULTILINE))
    from dataclasses import fields

    from pipelines.project.settings import Settings, variables_of

    # `schedule apply` stops if it would remove a setting that a release leaves out.
    passed = load(RELEASE)["jobs"]["pipeline"]["env"].keys()
    settings = {variables_of(field.name)[0] for field in fields(Settings)}
    assert passed == settings - {variables_of(name)[0] for name in ("endpoint", "transport")}


def test_cloud_build_uses_the_dockerfile_as_make_does():
    build = load(ROOT / "containers" / "cloudbuild.yaml")
    stages = {line.split(" AS ")[1] for line in container_files.instructions() if " AS " in line}
    declared = [line for line in container_files.instructions() if line.startswith("ARG ")]
    arguments = {line.split()[1].split("=")[0] for line in declared}
    words = [argument for step in build["steps"] for argument in step["args"]]
    for target in ("cpu", "gpu", "serving"):
        targets = [
            argument.replace("${_TARGET}", target) for argument in words if "--target=" in argument
        ]
        assert targets and {argument.removeprefix("--target=") for argument in targets} <= stages
    passed = {argument.split("=")[1] for argument in words if argument.startswith("--build-arg=")}
    assert {"VERSION", "COMMIT", "BACKBONES"} <= passed <= {*arguments, "BUILDKIT_INLINE_CACHE"}
    used = set(re.findall(r"\$\{(_\w+)\}", yaml.safe_dump(build)))
    assert used == set(build["substitutions"])


def test_release_passes_digests_on_without_asking_the_registry(tmp_path):
    jobs = load(RELEASE)["jobs"]
    (push,) = (step for step in jobs["image"]["steps"] if step.get("id") == "push")
    targets = jobs["image"]["strategy"]["matrix"]["target"]
    named = {name: f"${{{{ steps.push.outputs.{name} }}}}" for name in targets}
    assert jobs["image"]["outputs"] == named
    passed = {value for name, value in jobs["pipeline"]["env"].items() if name.endswith("IMAGE")}
    assert passed == {f"${{{{ needs.image.outputs.{name} }}}}" for name in targets}
    # gcloud's `images describe` needs roles of Container Analysis, which the releaser lacks.
    assert "artifacts docker" not in RELEASE.read_text()
    variables = {
        "TARGET": "serving",
        "IMAGE": "host/p/images/training",
        "GITHUB_REF_NAME": "v1",
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
    }
    make = "mkdir build; echo i@sha256:1 > build/image-serving.txt"
    calls = run_stubbed(push["run"], tmp_path, variables, make=make)
    assert [call.split()[:2] for call in calls] == [["gcloud", "auth"], ["make", "push"]]
    assert (tmp_path / "output").read_text() == "serving=i@sha256:1\n"


def test_dependabot_watches_every_pinned_dependency():
    updates = load(ROOT / ".github" / "dependabot.yml")["updates"]
    watched = {(update["package-ecosystem"], update["directory"]) for update in updates}
    roots = {("github-actions", "/"), ("pip", "/")}
    assert watched == {*roots, ("docker", "/containers"), ("terraform", "/terraform")}
