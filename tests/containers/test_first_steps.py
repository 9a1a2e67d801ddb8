"""Test the commands of steps 1 and 3 of docs/vertex.md, with a stub of gcloud, and Terraform."""

import re

import pytest

from tests.child_processes import ROOT
from tests.containers.delivery_files import CODE, DECLARED, body, load, run_stubbed


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    """The commands that steps 1 and 3, and their special cases, call, with their arguments."""
    page = (ROOT / "docs" / "vertex.md").read_text()
    special = (ROOT / "docs" / "vertex-special.md").read_text()
    steps = page[page.index("\n## 1.") : page.index("\n## 2.")]
    steps += special[special.index("\n## Accounts") : special.index("\n## Runs")]
    steps += page[page.index("\n## 3.") : page.index("\n## 4.")]
    script = "".join(re.findall(r"```sh\n(.*?)```", steps, re.DOTALL))
    return run_stubbed(script, tmp_path_factory.mktemp("steps"))


def flags(call):
    """Return the flags of a gcloud command."""
    return dict(re.findall(r"--([\w-]+)[= ](\S+)", call))


def test_steps_create_an_account_before_they_grant_it_a_role(calls):
    created, granted = {}, set()
    makers = {
        r"iam service-accounts create (\S+)": "{}@my-project.iam",
        r"identity create --service=(aiplatform)\.": "service-123@gcp-sa-{}.iam",
        r"identity create --service=(aiplatform)\.\S+": "service-123@gcp-sa-{}-cc.iam",
        r"enable .*(compute)\.googleapis\.com": "123-{}@developer",
    }
    for number, call in enumerate(calls):
        for pattern, account in makers.items():
            if found := re.search(pattern, call):
                created[account.format(found[1]) + ".gserviceaccount.com"] = number
        member = flags(call).get("member", "").removeprefix("serviceAccount:")
        if member and member not in granted:
            assert created[member] < number, call
            granted.add(member)
    assert granted == set(created)
    # A new account is not known everywhere at once; the command that creates a service agent waits.
    for account in granted:
        if not account.startswith("service-"):
            first = next(number for number, call in enumerate(calls) if f":{account}" in call)
            assert any(call.startswith("sleep") for call in calls[created[account] : first])


def repositories():
    """Return Terraform's repositories: their names and formats."""
    kind = "google_artifact_registry_repository"
    bodies = [body(*declared) for declared in DECLARED if declared[0] == kind]
    fields = [re.findall(r'(?:repository_id|format) += "(\w+)"', text) for text in bodies]
    return {(name, form.lower()) for name, form in fields}


def test_steps_and_terraform_make_the_same(calls):
    lines = "\n".join(calls)
    created = re.findall(r"repositories create (\w+) --repository-format=(\w+)", lines)
    assert set(created) == repositories()
    (bucket,) = re.findall(r"buckets create gs://my-project-(\w+)", lines)
    assert f'"${{var.project}}-{bucket}"' in body("google_storage_bucket", "this")
    assert 'account_id   = "training-runner"' in body("google_service_account", "runner")
    held = {flags(call)["role"] for call in calls if ":training-runner@" in call}
    bodies = [body(*declared) for declared in DECLARED if declared[1].startswith("runner_")]
    given = {re.search(r'role += "(\S+)"', text)[1] for text in bodies}
    # A job that streams to a TensorBoard needs the other, and the steps make no TensorBoard.
    assert given - held == {"roles/storage.admin"} and held <= given


def test_terraform_can_import_what_the_steps_make(calls):
    page = (ROOT / "docs" / "delivery.md").read_text()
    script = page.partition("```sh\ncd terraform")[2].partition("```")[0]
    imported = set(re.findall(r"terraform import google_(\w+)\.[\w$]+", script))
    assert imported == {"storage_bucket", "service_account", "artifact_registry_repository"}
    names = re.search(r"for name in (.*);", script)[1].split()
    assert set(names) == {name for name, _ in repositories()}
    given = set(re.findall(r"TF_VAR_(\w+)=", script))
    declared = re.findall(r'variable "(\w+)" \{(.*?)\n\}', CODE, re.DOTALL)
    assert {name for name, text in declared if "default " not in text} | {"region"} == given


def test_steps_enable_what_terraform_and_builds_call(calls):
    (enabled,) = (set(call.split()[3:]) for call in calls if "services enable" in call)
    # The provider reads the project before it enables an API.
    bootstrap = {"cloudresourcemanager.googleapis.com", "serviceusage.googleapis.com"}
    assert bootstrap <= enabled
    apis = set(re.findall(r'"(\w+\.googleapis\.com)"', body("google_project_service", "this")))
    assert {"aiplatform.googleapis.com", "cloudbuild.googleapis.com"} <= enabled & apis
    # A verified build fails, after all its steps, without Container Analysis.
    verified = load(ROOT / "containers" / "cloudbuild.yaml")["options"].get("requestedVerifyOption")
    assert not verified or "containeranalysis.googleapis.com" in enabled & apis


def test_steps_build_every_image_that_a_run_needs(calls):
    builds = [flags(call) for call in calls if "builds submit" in call]
    substitutions = [
        dict(pair.split("=") for pair in build["substitutions"].split(",")) for build in builds
    ]
    assert {given["_TARGET"] for given in substitutions} == {"cpu", "serving"}
    known = load(ROOT / "containers" / "cloudbuild.yaml")["substitutions"]
    for build, given in zip(builds, substitutions, strict=True):
        assert set(given) <= set(known)
        assert given["_IMAGE"] == "us-central1-docker.pkg.dev/my-project/images/training"
        # Otherwise gcloud creates a bucket in the US, for which a role may be missing.
        assert build["gcs-source-staging-dir"].startswith("gs://my-project-training/")


def test_upload_to_cloud_build_leaves_out_what_commands_write():
    # Without a .gcloudignore, gcloud uploads what .gitignore does not list.
    assert not (ROOT / ".gcloudignore").exists()
    ignored = (ROOT / ".gitignore").read_text().split()
    assert {"/runs/", "build/", "/emulated/", ".venv"} <= set(ignored)


def headings(page):
    """Return the anchors that GitHub gives to a page's headings."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    lines = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-") for line in lines}


def test_links_between_pages_lead_to_headings():
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        for link in re.findall(r"\]\((?!https:)([^)]+)\)", text):
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            assert target.exists(), (page.name, link)
            assert not anchor or anchor in headings(target), (page.name, link)


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.stem)
def test_gcloud_names_the_region_of_vertex_ai(page):
    text = page.read_text().replace("\\\n", " ")
    typed = re.findall(r"gcloud ai [^`\n]*", text)
    assert [command for command in typed if "--region=" not in command] == []
