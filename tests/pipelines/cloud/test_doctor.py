"""python -m pipelines doctor checks what a run needs, and prints the fix of what is wrong."""

import json
import shlex
import urllib.parse

import pytest

from pipelines.cloud.doctor import ACCOUNT_ROLES, DEPLOYMENT_ROLES
from tests.child_processes import ROOT
from tests.faulty_emulator import OpenEmulator
from tests.pipelines.cloud.cloud_servers import expired_sign_in
from vertex.emulator.api_error import not_found
from vertex.emulator.project_services import ROLES, ProjectServices

ACCOUNT = "trainer@my-project.iam.gserviceaccount.com"
DIGITS_ON_T4 = "doctor digits --set accelerator_type=NVIDIA_TESLA_T4 --set accelerator_count=1"


class SpoiledProject(ProjectServices):
    """The project's APIs and BigQuery's, from which a test takes something away."""

    routes = (
        *ProjectServices.routes,
        ("GET", "/bigquery/v2/projects/public/datasets/taxi/tables/trips", "GetTable"),
        ("POST", "/bigquery/v2/projects/my-project/queries", "Query"),
    )

    def __init__(self):
        super().__init__(ACCOUNT)
        self.disabled, self.missing, self.gone = set(), set(), set()  # APIs, permissions, names
        self.limits = {}  # by quota metric, without its service; other metrics are unlimited
        self.roles, self.roles_on_itself = list(ROLES), ["roles/iam.serviceAccountUser"]
        self.roles_on = {
            name: ["roles/artifactregistry.reader"] for name in ("images", "pipelines")
        }
        self.conditional, self.permissions_of = set(), {}

    def get_service(self, request):
        return {"state": "DISABLED" if request.match["api"] in self.disabled else "ENABLED"}

    def get_quota(self, request):
        """Return the global and the region's limit; the API leaves out a limit of 0."""
        name = urllib.parse.unquote(request.match["metric"]).rpartition("/")[2]
        limit = self.limits.get(name, -1)
        regional = {"dimensions": {"region": "us-central1"}}
        if limit:
            regional["effectiveLimit"] = str(limit)
        return {"consumerQuotaLimits": [{"quotaBuckets": [{"effectiveLimit": "1"}, regional]}]}

    def test_permissions(self, request):
        asked = json.loads(request.body)["permissions"]
        return {
            "permissions": [permission for permission in asked if permission not in self.missing]
        }

    def get_policy(self, request):
        """Return the bindings; bindings with a condition only if version 3 is requested."""
        version = json.loads(request.body).get("options", {}).get("requestedPolicyVersion", 1)
        condition = {"condition": {"expression": "request.time < timestamp('2030')"}}
        bindings = [
            {**self.bind(role), **(condition if role in self.conditional else {})}
            for role in self.roles
            if version >= 3 or role not in self.conditional
        ]
        # As gcloud leaves it after the last member is removed.
        empty = {"role": "roles/viewer"}
        return {"version": version, "bindings": [empty, *bindings]}

    def get_account_policy(self, request):
        empty = {"role": "roles/viewer"}
        return {"bindings": [empty, *(self.bind(role) for role in self.roles_on_itself)]}

    def get_repository_policy(self, request):
        return {
            "bindings": [self.bind(role) for role in self.roles_on[request.match["repository"]]]
        }

    def get_role(self, request):
        role = request.match["role"]
        return {"name": role, "includedPermissions": self.permissions_of.get(role, [])}

    def get_repository(self, request):
        return self._find(request, "repository") or super().get_repository(request)

    def get_image(self, request):
        return self._find(request, "tag") or {}

    def get_table(self, request):
        return {"numBytes": "75000000000"}

    def query(self, request):
        asked = json.loads(request.body)
        assert asked["dryRun"] and not asked["useLegacySql"] and not asked["useQueryCache"]
        return {"totalBytesProcessed": "1230000000"}

    def _find(self, request, kind):
        if request.match[kind] in self.gone:
            raise not_found(request.match[kind])


RETAINED = {"retentionPolicy": {"retentionPeriod": "86400"}}


@pytest.fixture
def cloud(vertex, storage, monkeypatch):
    """The other APIs of a project, at an endpoint of their own."""
    project, others = SpoiledProject(), ("CLOUDRESOURCEMANAGER", "ARTIFACTREGISTRY", "IAM")
    with OpenEmulator(project) as server:
        for service in ("SERVICEUSAGE", "BIGQUERY", *others):
            monkeypatch.setenv(f"CLOUDSDK_API_ENDPOINT_OVERRIDES_{service}", server.url)
        monkeypatch.setenv("VERTEX_SERVICE_ACCOUNT", ACCOUNT)
        repository = "https://us-central1-kfp.pkg.dev/my-project/pipelines"
        monkeypatch.setenv("VERTEX_TEMPLATE_REPOSITORY", repository)
        server.project, server.storage = project, storage
        yield server


def test_ready_project_passes_every_check(cloud, succeed):
    lines = succeed(DIGITS_ON_T4).splitlines()
    assert [line for line in lines if not line.startswith("✓ ")] == []
    assert len(lines) == 18
    assert cloud.names().count("GetQuota") == 3


@pytest.mark.parametrize(
    ("spoil", "line", "mend"),
    [
        (lambda c: c.project.disabled.add("logging.googleapis.com"),
         "✗ API logging.googleapis.com", "gcloud services enable logging.googleapis.com"),
        (lambda c: c.project.missing.add("aiplatform.schedules.create"),
         "✗ your permissions: no aiplatform.schedules.create", "--role=roles/aiplatform.user"),
        (lambda c: c.project.missing.add("iam.serviceAccounts.actAs"),
         f"✗ your permission to act as {ACCOUNT}", "--role=roles/iam.serviceAccountUser"),
        (lambda c: c.project.missing.add("artifactregistry.repositories.uploadArtifacts"),
         "✗ your permission to upload to https://us-central1-kfp.pkg.dev/my-project/pipelines",
         "--role=roles/artifactregistry.writer"),
        (lambda c: c.storage.buckets.remove("bucket"),
         "✗ bucket gs://bucket: does not exist", "buckets create gs://bucket"),
        (lambda c: setattr(c.storage.service, "location", "EUROPE-WEST4"),
         "✗ bucket gs://bucket: in europe-west4", "use one in us-central1"),
        (lambda c: c.storage.fields_of_a_bucket.update(RETAINED),
         "✗ bucket gs://bucket: keeps every file for 86400 s", "--clear-retention-period"),
        (lambda c: c.project.gone.add("pipelines"),
         "✗ repository pipelines: does not exist", "--repository-format=kfp"),
        (lambda c: c.project.gone.add("images"),
         "✗ repository images: does not exist", "--repository-format=docker"),
        (lambda c: c.project.gone.add("sha256:" + 64 * "1"),
         "✗ image us-central1-docker.pkg.dev", "build it and push it"),
        (lambda c: c.project.roles.remove("roles/logging.logWriter"),
         f"✗ service account {ACCOUNT}: no roles/logging.logWriter", "--role=roles/logging.logW"),
        (lambda c: c.project.roles.remove("roles/storage.legacyBucketReader"),
         f"✗ service account {ACCOUNT}: no roles/storage.legacyBucketReader",
         "gcloud storage buckets add-iam-policy-binding gs://bucket --member="),
        (lambda c: c.project.roles_on_itself.clear(),
         f"✗ service account {ACCOUNT}: no roles/iam.serviceAccountUser",
         f"gcloud iam service-accounts add-iam-policy-binding {ACCOUNT} --member=serviceAccount:"),
        (lambda c: c.project.roles_on["pipelines"].clear(),
         f"✗ service account {ACCOUNT}: no roles/artifactregistry.reader",
         "repositories add-iam-policy-binding pipelines --project=my-project --location=us-cen"),
        (lambda c: c.project.limits.update(custom_model_training_nvidia_t4_gpus=1),
         "✗ quota custom_model_training_nvidia_t4_gpus: 2 needed, 1 in us-central1", "ask for 2"),
        (lambda c: c.project.limits.update(custom_model_training_cpus=0),
         "✗ quota custom_model_training_cpus: 8 needed, 0 in us-central1", "ask for 8"),
    ],
)  # fmt: skip
def test_failed_check_names_its_fix(cloud, command, spoil, line, mend):
    spoil(cloud)
    code, out, _ = command(DIGITS_ON_T4)
    assert code == 1
    (wrong,) = [text for text in out.splitlines() if not text.startswith("✓")]
    assert wrong.startswith(line)
    assert mend in wrong.partition(" -> ")[2]


def test_accelerator_of_an_evaluation_needs_quota(cloud, command, own_recipe):
    own_recipe('source = "digits"\n[step_machines]\nevaluation = {accelerator_type = "NVIDIA_L4"}')
    cloud.project.limits.update(custom_model_training_nvidia_l4_gpus=0)
    code, out, _ = command("doctor mine")
    line = "✗ quota custom_model_training_nvidia_l4_gpus: 1 needed, 0 in us-central1  -> ask for 1"
    assert (code, line in out) == (1, True), out


def test_deployment_needs_quota_of_serving(cloud, command, own_recipe):
    own_recipe('source = "digits"\nserving = {max_replicas = 2, machine_type = "n1-standard-8"}')
    cloud.project.limits.update(custom_model_serving_cpus=16)
    code, out, _ = command("doctor mine --set deploy_champion=true")
    # Two versions with two machines each, and one for the test of a deployment.
    line = "✗ quota custom_model_serving_cpus: 40 needed, 16 in us-central1  -> ask for 40"
    assert (code, line in out) == (1, True), out


def test_search_needs_quota_of_its_trials_too(cloud, command):
    cloud.project.limits.update(custom_model_training_cpus=27)
    code, out, _ = command("doctor digits-search")
    line = "✗ quota custom_model_training_cpus: 28 needed, 27 in us-central1  -> ask for 28"
    assert (code, line in out) == (1, True), out


@pytest.mark.parametrize(
    ("flags", "api", "role", "billed"),
    [
        ("--set source=bigquery:public.taxi.trips", "bigquerystorage", "bigquery.readSessionUser",
         ["✓ source: 75.0 GB are billed in each run, even if unchanged"]),
        ("--set 'source=bigquery:SELECT * FROM public.taxi.trips'", "bigquery", "bigquery.jobUser",
         ["✓ source: 1.2 GB are billed in each run, even if unchanged"]),
        ("--set source=csv:gs://b/a.csv --set records_engine=dataflow", "dataflow",
         "dataflow.worker", []),
    ],
)  # fmt: skip
def test_needs_of_bigquery_and_dataflow_are_checked(
    cloud, command, succeed, flags, api, role, billed
):
    line = ["doctor", "chicago_taxi", *shlex.split(flags)]
    lines = succeed(*line).splitlines()
    assert [line for line in lines if "source" in line] == billed
    assert all(line.startswith("✓ ") for line in lines)
    cloud.project.disabled.add(f"{api}.googleapis.com")
    cloud.project.roles.remove(f"roles/{role}")
    _, out, _ = command(*line)
    wrong = [text for text in out.splitlines() if not text.startswith("✓")]
    assert wrong[0].startswith(f"✗ API {api}.googleapis.com  -> gcloud services enable {api}.goo")
    assert wrong[1].startswith(f"✗ service account {ACCOUNT}: no roles/{role}  -> gcloud projects")


def test_workers_of_dataflow_need_to_pull_the_image(cloud, command):
    cloud.project.roles_on["images"].clear()
    line = "doctor chicago_taxi --set source=csv:gs://b/a.csv --set records_engine="
    assert "✗" not in command(f"{line}local")[1]
    _, out, _ = command(f"{line}dataflow")
    (wrong,) = [text for text in out.splitlines() if not text.startswith("✓")]
    assert wrong.startswith(f"✗ service account {ACCOUNT}: no roles/artifactregistry.reader  -> gc")
    assert "repositories add-iam-policy-binding images --project=my-project" in wrong


def test_tensorboard_needs_the_role_of_its_page(cloud, command, succeed, monkeypatch):
    board = "projects/1/locations/us-central1/tensorboards/2"
    line = f"✗ service account {ACCOUNT}: no roles/storage.admin  -> gcloud storage buckets add-iam"
    flags = f"--set tensorboard={board} --set service_account={ACCOUNT}"
    code, out, _ = command(f"doctor digits {flags}")
    assert (code, line in out) == (1, True), out
    monkeypatch.setenv("VERTEX_TENSORBOARD", board)
    code, out, _ = command("doctor")
    assert (code, line in out) == (1, True), out
    cloud.project.roles.append("roles/storage.admin")
    succeed("doctor")


def test_missing_serving_image_is_named(cloud, command, succeed, monkeypatch):
    monkeypatch.delenv("VERTEX_SERVING_IMAGE")
    assert "serving" not in succeed("doctor")
    code, out, _ = command("doctor digits")
    assert (code, "no serving_image: give --serving-image" in out) == (1, True), out
    own = "us-central1-docker.pkg.dev/my-project/images/serving:1"
    assert "serving_image" not in succeed(f"doctor digits --set serving_image={own}")


def test_impossible_check_is_no_failure(cloud, vertex, command, succeed, monkeypatch):
    cloud.fail("GetService", 403, "PERMISSION_DENIED", "no", times=4)
    cloud.project.conditional.add("roles/aiplatform.user")
    monkeypatch.setenv("VERTEX_IMAGE", "us-central1-docker.pkg.dev/our-images/images/training:1")
    out = succeed("doctor")
    assert out.count("? API ") == out.count("could not be checked  -> 403 no") == 4
    assert f"? service account {ACCOUNT}: roles/aiplatform.user under a condition  -> " in out
    (line,) = [line for line in out.splitlines() if "our-images" in line]
    assert line.startswith("? image us-central1-docker.pkg.dev/our-images/images/training:1: it is")
    assert "service agents may pull it; they need roles/artifactregistry.reader on images" in line
    page, heading = line.rpartition(": ")[2].split(", ")
    commands = (ROOT / page).read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    assert "gcp-sa-aiplatform-cc" in commands and "add-iam-policy-binding REPOSITORY" in commands

    vertex.fail("ListPipelineJobs", 403, "PERMISSION_DENIED", "Permission denied", times=9)
    code, out, _ = command("doctor")
    assert code == 1
    assert "✗ Vertex AI: listing the runs: 403 Permission denied" in out
    assert "✓ bucket" in out


def test_malformed_answer_is_one_line(cloud, succeed, monkeypatch):
    monkeypatch.setattr(cloud.storage, "call", lambda *_: [])
    cloud.project.roles.remove("roles/storage.objectUser")
    out = succeed("doctor")
    for name in ("bucket", "service account"):
        assert f"? {name}: could not be checked  -> the answer is not from Google's API (" in out


@pytest.mark.parametrize("role", ["roles/aiplatform.admin", "projects/my-project/roles/trainer"])
def test_permissions_of_a_role_count_not_its_name(cloud, command, succeed, role):
    cloud.project.roles = [role]
    cloud.project.permissions_of[role] = [permission for _, permission in ACCOUNT_ROLES]
    assert f"✓ service account {ACCOUNT}\n" in succeed("doctor")
    deploys = "doctor digits --set deploy_champion=true"
    code, out, _ = command(deploys)
    assert (code, f"✗ service account {ACCOUNT}: no roles/aiplatform.user" in out) == (1, True)
    cloud.project.permissions_of[role] += [permission for _, permission in DEPLOYMENT_ROLES]
    succeed(deploys)


def test_unusable_credentials_are_reported_once(monkeypatch, command, tmp_path):
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    with expired_sign_in(tmp_path) as expired:
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", expired)
        code, out, err = command("doctor digits --project my-project")
    assert (code, err) == (1, "")
    first, second = out.splitlines()
    assert first.startswith("✗ credentials: signing in: ") and "expired or revoked." in first
    assert "sign in: gcloud auth application-default login" in first
    assert second.startswith("? not checked without credentials: Vertex AI, API aiplatform.goog")
    for name in ("your permissions", "bucket", "image", "quota custom_model_training_cpus"):
        assert f", {name}" in second
