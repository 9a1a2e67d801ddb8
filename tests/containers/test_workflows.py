"""Test that GitHub's and Cloud Build's files hold no keys, few permissions, and real commands."""

import re

import pytest
import yaml

from tests.child_processes import ROOT
from tests.containers import image_files

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
RELEASE = ROOT / ".github" / "workflows" / "release.yml"


def load(path):
    return yaml.safe_load(path.read_text())


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

    from pipelines.cloud.settings import Settings, variables_of

    known = {name for field in fields(Settings) for name in variables_of(field.name)}
    settings = {name for name in read if name.startswith(("GOOGLE_", "VERTEX_"))}
    assert len(settings) > 4 and settings <= known


def test_cloud_build_uses_the_dockerfile_as_make_does():
    build = load(ROOT / "containers" / "cloudbuild.yaml")
    stages = {line.split(" AS ")[1] for line in image_files.instructions() if " AS " in line}
    declared = [line for line in image_files.instructions() if line.startswith("ARG ")]
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


def test_dependabot_watches_every_pinned_dependency():
    updates = load(ROOT / ".github" / "dependabot.yml")["updates"]
    watched = {(update["package-ecosystem"], update["directory"]) for update in updates}
    roots = {("github-actions", "/"), ("pip", "/")}
    assert watched == {*roots, ("docker", "/containers"), ("terraform", "/terraform")}
