"""Check whether a project is ready: a line for each check, with the fix if it fails.

The checks change nothing. A check that can't be made, perhaps for lack of permission, says so.
"""

import dataclasses
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote, urlsplit

from pipelines.cloud.upload import ARTIFACT_REGISTRY, repository_path
from pipelines.parameters import ParameterSet
from pipelines.project.connection import Connection, console_link
from pipelines.runs import vertex_jobs
from trainer.data.source_options import SourceOptions
from trainer.data.sources import SourceKind, parse_source
from vertex.client import vertex_client
from vertex.client.cloud_errors import NOT_FOUND, CloudError, tolerated, translated
from vertex.client.vertex_client import is_loopback
from vertex.errors import InputError
from vertex.formats import size

APIS = tuple(
    f"{name}.googleapis.com" for name in ("aiplatform", "artifactregistry", "logging", "storage")
)
CALLER_PERMISSIONS = (
    "aiplatform.pipelineJobs.create",
    "aiplatform.schedules.create",
    "aiplatform.customJobs.get",
    "aiplatform.endpoints.deploy",
    "logging.logEntries.list",
)
ACCOUNT_ROLES = (
    ("roles/aiplatform.user", "aiplatform.customJobs.create"),
    ("roles/logging.logWriter", "logging.logEntries.create"),
    ("roles/storage.objectUser", "storage.objects.create"),
    ("roles/storage.legacyBucketReader", "storage.buckets.get"),
    ("roles/iam.serviceAccountUser", "iam.serviceAccounts.actAs"),
    ("roles/artifactregistry.reader", "artifactregistry.repositories.downloadArtifacts"),
)
"""The permissions that the service account of runs needs, each after a role that grants it; the
last only to run a pipeline that was uploaded to Artifact Registry."""
DEPLOYMENT_ROLES = (("roles/aiplatform.user", "aiplatform.endpoints.deploy"),)
"""The same for the permission that deploy_champion also needs."""
TENSORBOARD_ROLES = (("roles/storage.admin", "storage.buckets.update"),)
"""The same for a job that streams to a TensorBoard, whose page names only the role.

https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/experiments/tensorboard-setup
"""
DATAFLOW_APIS = ("dataflow.googleapis.com", "compute.googleapis.com")
DATAFLOW_ROLES = (
    ("roles/dataflow.developer", "dataflow.jobs.create"),
    ("roles/dataflow.worker", "dataflow.workItems.lease"),
)
"""The same for records_engine=dataflow: the step and the workers act as the account of runs."""
PULL_ROLES = (("roles/artifactregistry.reader", "artifactregistry.repositories.downloadArtifacts"),)
"""The same on the repository of the image, which Dataflow's workers pull as that account."""

_IMAGE = re.compile(
    r"(?P<location>[a-z0-9-]+)-docker\.pkg\.dev/(?P<project>[^/]+)/(?P<repository>[^/]+)/"
    r"(?P<name>[^:@]+)(:(?P<tag>[^@]+))?(@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_BROAD_ROLES = ("roles/owner", "roles/editor")


@dataclasses.dataclass(frozen=True)
class CheckResult:
    """The result of a check and its fix; `ok` is None if the check could not be made."""

    ok: bool | None
    what: str
    remedy: str = ""


def examine(
    connection: Connection, parameters: ParameterSet | None, quotas: Mapping[str, int]
) -> Iterator[CheckResult]:
    """Yield the result of each check; a check that fails does not stop the others.

    Without credentials, or after a server does not answer in time, the last result names the checks
    that were skipped. Permissions are checked for runs with `parameters`, which need amounts of
    `quotas`, by metric.
    """
    signed_in = _run_check("credentials", lambda: _examine_credentials(connection))
    yield signed_in
    checks = _list_checks(connection, parameters, quotas)
    if not signed_in.ok:
        yield CheckResult(None, f"not checked without credentials: {', '.join(checks)}")
        return
    seen = set()
    while checks:
        name = next(iter(checks))
        began = time.monotonic()
        result = _run_check(name, checks.pop(name))
        # Two images in one missing repository have the same result.
        if result not in seen:
            seen.add(result)
            yield result
        if checks and not result.ok and time.monotonic() - began > vertex_client.ANSWER_SECONDS:
            yield CheckResult(None, f"not checked, as no answer came in time: {', '.join(checks)}")
            return


def _list_checks(
    connection: Connection, parameters: ParameterSet | None, quotas: Mapping[str, int]
) -> dict[str, Callable[[], CheckResult]]:
    """Return, by name, the checks that need credentials."""
    settings = connection.settings
    apis, roles = _list_needs(parameters) if parameters else ((), ())
    if settings.tensorboard or (parameters and parameters.job.tensorboard):
        roles += TENSORBOARD_ROLES
    checks: dict[str, Callable[..., CheckResult]] = {
        "Vertex AI": _examine_vertex,
        **{f"API {name}": partial(examine_api, name=name) for name in (*APIS, *apis)},
        "your permissions": examine_caller,
        "bucket": examine_bucket,
        "pipeline repository": examine_pipeline_repository,
        "image": examine_image,
    }
    registry = parameters.registry if parameters else None
    if registry and registry.registers and not registry.serving_image:
        checks["serving image"] = partial(examine_image, setting="serving_image")
    for setting, name in (("gpu_image", "image for GPUs"), ("serving_image", "serving image")):
        if getattr(settings, setting):
            checks[name] = partial(examine_image, setting=setting)
    if settings.template_repository:
        checks["your permission to upload"] = examine_upload_permission
    if settings.service_account:
        name = "your permission to act as the service account"
        checks[name] = examine_act_as_permission
        checks["service account"] = partial(examine_service_account, roles=ACCOUNT_ROLES + roles)
        image = _IMAGE.fullmatch(settings.image)
        if image and parameters and parameters.engine.records_engine == "dataflow":
            pull = partial(examine_service_account, roles=PULL_ROLES, repository=image)
            checks["the service account's permission to pull the image"] = pull
    if parameters:
        kind, place = parse_source(parameters.records.source)
        if kind.billed:
            checks["source"] = partial(
                examine_billed_source, kind=kind, place=place, options=parameters.records
            )
    for metric, amount in quotas.items():
        quota = partial(examine_quota, metric=metric, amount=amount)
        checks[f"quota {metric.rpartition('/')[2]}"] = quota
    return {name: partial(check, connection) for name, check in checks.items()}


def _list_needs(parameters: ParameterSet) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Return the APIs and the account's roles that runs need beside those of every run."""
    kind, place = parse_source(parameters.records.source)
    apis, roles = kind.list_needs(place)
    if parameters.engine.records_engine == "dataflow":
        apis, roles = apis + DATAFLOW_APIS, roles + DATAFLOW_ROLES
    if parameters.pipeline.deploy_champion:
        roles += DEPLOYMENT_ROLES
    return apis, roles


def _run_check(name: str, check: Callable[[], CheckResult]) -> CheckResult:
    unchecked = "could not be checked"
    try:
        with translated(unchecked):
            return check()
    except (CloudError, InputError) as error:
        # An error that names its own call is a failure; other errors may be missing permissions.
        _, unnamed, why = str(error).partition(f"{unchecked}: ")
        if unnamed:
            return CheckResult(None, f"{name}: {unchecked}", why)
        return CheckResult(False, f"{name}: {error}")


def _examine_credentials(connection: Connection) -> CheckResult:
    if is_loopback(connection.settings.endpoint):
        return CheckResult(True, "credentials: none needed for a server on this machine")
    who = getattr(connection.credentials, "service_account_email", "") or "your own account"
    return CheckResult(True, f"credentials: {who}")


def _examine_vertex(connection: Connection) -> CheckResult:
    settings = connection.settings
    latest = vertex_jobs.list_runs(connection, limit=1)
    last = f", last run {vertex_jobs.id_of(latest[0])}" if latest else ""
    return CheckResult(
        True, f"Vertex AI: answers for {settings.project} in {settings.region}{last}"
    )


def examine_api(connection: Connection, name: str) -> CheckResult:
    """Check whether an API is enabled."""
    project = connection.settings.project
    answer = connection.call_api("serviceusage", "GET", f"v1/projects/{project}/services/{name}")
    return CheckResult(
        answer.get("state") == "ENABLED",
        f"API {name}",
        f"gcloud services enable {name} --project={project}",
    )


def _examine_permissions(
    connection: Connection, what: str, resource: str, wanted: Sequence[str], grant: str
) -> CheckResult:
    """Check whether the caller has permissions on SERVICE/RESOURCE."""
    service, _, path = resource.partition("/")
    body = {"permissions": list(wanted)}
    answer = connection.call_api(service, "POST", f"v1/{path}:testIamPermissions", body)
    return _make_result(answer.get("permissions", []), what, wanted, grant)


def _make_result(
    granted: Sequence[str], what: str, wanted: Sequence[str], grant: str
) -> CheckResult:
    missing = ", ".join(permission for permission in wanted if permission not in granted)
    remedy = f"an administrator: {grant}"
    return CheckResult(not missing, f"{what}: no {missing}" if missing else what, remedy)


def _grant(collection: str, name: str, role: str, member: str = "user:YOU") -> str:
    """Return the command that grants a role on a resource, such as P of "projects"."""
    return f"gcloud {collection} add-iam-policy-binding {name} --member={member} --role={role}"


def _repository_target(match: re.Match[str]) -> tuple[str, str]:
    name = f"{match['repository']} --project={match['project']} --location={match['location']}"
    return "artifacts repositories", name


def examine_caller(connection: Connection) -> CheckResult:
    """Check whether the caller may start runs and read their logs."""
    project = connection.settings.project
    grant = f"{_grant('projects', project, 'roles/aiplatform.user')} (and roles/logging.viewer)"
    resource = f"cloudresourcemanager/projects/{project}"
    return _examine_permissions(connection, "your permissions", resource, CALLER_PERMISSIONS, grant)


def examine_act_as_permission(connection: Connection) -> CheckResult:
    """Check whether the caller may start runs that act as the service account of the settings."""
    account = connection.settings.service_account
    grant = _grant("iam service-accounts", account, "roles/iam.serviceAccountUser")
    resource = f"iam/projects/-/serviceAccounts/{account}"
    what = f"your permission to act as {account}"
    return _examine_permissions(connection, what, resource, ["iam.serviceAccounts.actAs"], grant)


def examine_billed_source(
    connection: Connection, kind: type[SourceKind], place: str, options: SourceOptions
) -> CheckResult:
    """Tell how much a run is billed for reading its source, which your own account may read."""
    billed = kind.measure(place, options, connection.settings.project, connection.call_api)
    return CheckResult(
        True, f"source: {size(billed.size)} are billed in each run, even if unchanged"
    )


def examine_service_account(
    connection: Connection,
    *,
    roles: Sequence[tuple[str, str]] = ACCOUNT_ROLES,
    repository: re.Match[str] | None = None,
) -> CheckResult:
    """Check whether the service account of runs has the permission that is given with each role.

    Roles of Artifact Registry are those on a repository, by default that of pipelines.
    """
    settings = connection.settings
    account = settings.service_account
    member = f"serviceAccount:{account}"
    # Only version 3 has conditional bindings.
    policy = connection.call_api(
        "cloudresourcemanager",
        "POST",
        f"v1/projects/{settings.project}:getIamPolicy",
        {"options": {"requestedPolicyVersion": 3}},
    )
    of_project = [item for item in policy.get("bindings", []) if member in item.get("members", [])]
    missing, conditional = {}, []
    targets = {
        "storage": ("storage buckets", f"gs://{settings.bucket}"),
        "iam": ("iam service-accounts", account),
    }
    repository = repository or ARTIFACT_REGISTRY.match(settings.template_repository)
    if repository:
        targets["artifactregistry"] = _repository_target(repository)
    for role, permission in roles:
        service = permission.partition(".")[0]
        if service == "artifactregistry" and not repository:
            continue
        target = targets.get(service, ("projects", settings.project))
        bindings = _find_bindings(connection, of_project, role, permission)
        if not bindings and service in targets:
            of_resource = _read_bindings(connection, service, repository)
            held = [item for item in of_resource if member in item.get("members", [])]
            bindings = _find_bindings(connection, held, role, permission)
        if not bindings:
            missing[role] = _grant(*target, role, member)
        elif all(binding.get("condition") for binding in bindings):
            conditional.append(bindings[0]["role"])
    what = f"service account {account}"
    if missing:
        return CheckResult(False, f"{what}: no {', '.join(missing)}", " && ".join(missing.values()))
    if conditional:
        return CheckResult(
            None,
            f"{what}: {', '.join(conditional)} under a condition",
            "check that the condition holds for runs",
        )
    return CheckResult(True, what)


def _read_bindings(
    connection: Connection, service: str, repository: re.Match[str] | None
) -> list[Any]:
    """Return the bindings on the bucket, the account of runs (iam) or the repository."""
    settings = connection.settings
    if service == "storage":
        bucket = connection.storage.bucket(settings.bucket)
        policy = bucket.get_iam_policy(requested_policy_version=3, retry=connection.retry)
        return list(policy.bindings)
    method, resource = "POST", f"projects/-/serviceAccounts/{settings.service_account}"
    if repository and service != "iam":
        method, resource = "GET", repository_path(repository)
    path = f"v1/{resource}:getIamPolicy?options.requestedPolicyVersion=3"
    return list(connection.call_api(service, method, path).get("bindings", []))


def _find_bindings(
    connection: Connection, bindings: list[Any], role: str, permission: str
) -> list[dict[str, Any]]:
    """Return the bindings whose role has a permission."""

    def has(held: str) -> bool:
        if held == role or held in _BROAD_ROLES:
            return True
        answer = connection.call_api("iam", "GET", f"v1/{held}")
        return permission in answer.get("includedPermissions", [])

    return [binding for binding in bindings if has(binding["role"])]


def examine_quota(connection: Connection, metric: str, amount: int) -> CheckResult:
    """Check whether the region's quota is enough for the machines."""
    settings = connection.settings
    name, project = metric.partition("/")[0], settings.project
    path = f"v1beta1/projects/{project}/services/{name}/consumerQuotaMetrics/"
    answer = connection.call_api("serviceusage", "GET", path + quote(metric, safe=""))
    # The API leaves out a limit of 0; -1 means no limit.
    limits = {
        bucket.get("dimensions", {}).get("region"): int(bucket.get("effectiveLimit", 0))
        for limit in answer.get("consumerQuotaLimits", [])
        for bucket in limit.get("quotaBuckets", [])
    }
    # The region's own limit takes precedence over the limit for all regions.
    limit = limits.get(settings.region, limits.get(None, 0))
    return CheckResult(
        limit < 0 or limit >= amount,
        f"quota {metric.rpartition('/')[2]}: {amount} needed, "
        f"{'no limit' if limit < 0 else limit} in {settings.region}",
        f"ask for {amount}: {console_link(settings, 'iam-admin/quotas')}, or use other machines",
    )


def examine_bucket(connection: Connection) -> CheckResult:
    """Check whether the bucket of runs exists, is in their region, and lets them replace files."""
    settings = connection.settings.require("pipeline_root")
    create = (
        f"gcloud storage buckets create gs://{settings.bucket} --project={settings.project} "
        f"--location={settings.region} --uniform-bucket-level-access"
    )
    with tolerated(NOT_FOUND):
        found = connection.storage.get_bucket(settings.bucket, retry=connection.retry)
        location = str(found.location).lower()
        if seconds := found.retention_period:
            return CheckResult(
                False,
                f"bucket gs://{settings.bucket}: keeps every file for {seconds} s, although runs "
                "replace and delete files",
                "use another bucket, or remove its retention policy: gcloud storage buckets update "
                f"gs://{settings.bucket} --clear-retention-period",
            )
        return CheckResult(
            location == settings.region,
            f"bucket gs://{settings.bucket}: in {location}",
            f"use one in {settings.region}; reading across regions is slow and billed: {create}",
        )
    return CheckResult(False, f"bucket gs://{settings.bucket}: does not exist", create)


def examine_pipeline_repository(connection: Connection) -> CheckResult:
    """Check whether the repository of templates, if set, exists and holds pipelines."""
    settings = connection.settings
    repository = settings.template_repository
    if not repository or repository.startswith("gs://"):
        where = repository or "none set; runs and schedules include their pipeline"
        return CheckResult(True, f"pipeline repository: {where}")
    match = ARTIFACT_REGISTRY.match(repository)
    if not match:
        return CheckResult(None, f"pipeline repository {repository}: not in Artifact Registry")
    return _examine_repository(connection, match, "KFP")


def examine_upload_permission(connection: Connection) -> CheckResult:
    """Check whether the caller may upload pipelines to the repository of the settings."""
    repository = connection.settings.template_repository
    match = ARTIFACT_REGISTRY.match(repository)
    what = f"your permission to upload to {repository}"
    if match:
        permission = "artifactregistry.repositories.uploadArtifacts"
        grant = _grant(*_repository_target(match), "roles/artifactregistry.writer")
        resource = f"artifactregistry/{repository_path(match)}"
        return _examine_permissions(connection, what, resource, [permission], grant)
    if not repository.startswith("gs://"):
        return CheckResult(None, f"{what}: not in Artifact Registry")
    permissions, name = ["storage.objects.create"], urlsplit(repository).netloc
    bucket = connection.storage.bucket(name)
    granted = bucket.test_iam_permissions(permissions, retry=connection.retry)
    grant = _grant("storage buckets", f"gs://{name}", "roles/storage.objectUser")
    return _make_result(granted, what, permissions, grant)


def examine_image(connection: Connection, setting: str = "image") -> CheckResult:
    """Check whether the image of a setting has been pushed."""
    image = getattr(connection.settings.require(setting), setting)
    match = _IMAGE.fullmatch(image)
    if not match:
        return CheckResult(None, f"image {image}: not in Artifact Registry; could not be checked")
    repository = _examine_repository(connection, match, "DOCKER")
    if not repository.ok:
        return repository
    name = quote(match["name"], safe="")
    tag = f"tags/{match['tag'] or 'latest'}"
    version = f"versions/{match['digest']}" if match["digest"] else tag
    path = f"v1/{repository_path(match)}/packages/{name}/{version}"
    with tolerated(NOT_FOUND):
        connection.call_api("artifactregistry", "GET", path)
        if match["project"] != connection.settings.project:
            return CheckResult(
                None,
                f"image {image}: it is in another project than the runs",
                "check that Vertex AI's service agents may pull it; they need "
                f"roles/artifactregistry.reader on {match['repository']} in {match['project']}: "
                "docs/vertex-special.md, Accounts and keys",
            )
        return CheckResult(True, f"image {image}")
    return CheckResult(False, f"image {image}: does not exist", "build it and push it")


def _examine_repository(connection: Connection, match: re.Match[str], kind: str) -> CheckResult:
    location, project, name = match["location"], match["project"], match["repository"]
    create = (
        f"gcloud artifacts repositories create {name} --project={project} --location={location} "
        f"--repository-format={kind.lower()}"
    )
    with tolerated(NOT_FOUND):
        answer = connection.call_api("artifactregistry", "GET", f"v1/{repository_path(match)}")
        found = answer.get("format", "")
        what = f"repository {name}: of format {found}, in {location}"
        return CheckResult(found == kind, what, f"its format must be {kind}: {create}")
    return CheckResult(False, f"repository {name}: does not exist in {location}", create)
