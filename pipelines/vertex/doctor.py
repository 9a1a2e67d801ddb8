"""Whether a project is ready: each check one line, and how to mend what is wrong.

Reads only. What can't be checked, for want of a right perhaps, is said to be so.
"""

import dataclasses
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import quote

from pipelines import cost
from pipelines.vertex import runs
from pipelines.vertex.connection import Connection, attempt, is_loopback
from pipelines.vertex.errors import CloudError, described, status_of, translated
from pipelines.vertex.settings import Settings
from trainer.errors import InputError

APIS = ("aiplatform", "artifactregistry", "logging", "storage")
OWN_PERMISSIONS = (
    "aiplatform.pipelineJobs.create",
    "aiplatform.schedules.create",
    "aiplatform.customJobs.get",
    "logging.logEntries.list",
)
RUNNING_ROLES = ("roles/aiplatform.user", "roles/logging.logWriter")
"""What the account of runs needs in the project; its right to the bucket is checked apart."""

BUCKET_ROLES = ("roles/storage.admin", "roles/storage.objectAdmin", "roles/storage.objectUser")
_IMAGE = re.compile(
    r"(?P<location>[a-z0-9-]+)-docker\.pkg\.dev/(?P<project>[^/]+)/(?P<repository>[^/]+)/"
    r"(?P<name>[^:@]+)(:(?P<tag>[^@]+))?(@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_PIPELINES = re.compile(
    r"https://(?P<location>[a-z0-9-]+)-kfp\.pkg\.dev/(?P<project>[^/]+)/(?P<repository>[^/]+)"
)
_NOT_FOUND = 404
_BROAD_ROLES = ("roles/owner", "roles/editor")


@dataclasses.dataclass(frozen=True)
class Finding:
    """What a check came to.

    Attributes:
        ok: None where it could not be checked.
        what: was looked at, and what was found.
        mend: what to do where it is not ok.
    """

    ok: bool | None
    what: str
    mend: str = ""


def examine(
    connection: Connection, pools: Sequence[dict[str, Any]] = (), *, preemptible: bool = False
) -> Iterator[Finding]:
    """Checks one thing after the other; each that goes wrong leaves the others to go on.

    Without credentials nothing else can be looked at: one line says so.

    Args:
        pools: worker pools that there must be quota for.
        preemptible: whether they are spot or flex-start machines.
    """
    signed_in = _checked("credentials", lambda: _credentials(connection))
    yield signed_in
    checks = _checks(connection, cost.quotas(pools, preemptible=preemptible))
    if signed_in.ok:
        for name, check in checks.items():
            yield _checked(name, check)
    else:
        yield Finding(None, f"not checked without credentials: {', '.join(checks)}")
    for machine_type in cost.unknown_machines(pools):
        yield Finding(
            None,
            f"quota for the vCPUs of {machine_type}: not a machine type that is known here",
            "see that Vertex AI has it: "
            "https://cloud.google.com/vertex-ai/docs/training/configure-compute",
        )


def _checks(
    connection: Connection, quotas: Sequence[cost.Quota]
) -> dict[str, Callable[[], Finding]]:
    """By name, all that only who is signed in may look at."""
    checks: dict[str, Callable[..., Finding]] = {"Vertex AI": _vertex}
    for api in APIS:
        checks[f"API {api}.googleapis.com"] = functools.partial(_api, api=api)
    checks |= {"own rights": _own_rights, "bucket": _bucket}
    checks |= {"pipeline repository": _pipeline_repository, "image": _image}
    if connection.settings.service_account:
        checks["service account"] = _roles
    for quota in quotas:
        checks[f"quota {quota.metric.rpartition('/')[2]}"] = functools.partial(_quota, quota=quota)
    return {name: functools.partial(check, connection) for name, check in checks.items()}


def _checked(name: str, check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except (CloudError, InputError) as error:
        return Finding(False, f"{name}: {error}")
    except Exception as error:
        if not status_of(error) and not isinstance(error, (OSError, ValueError)):
            # Neither an answer nor a broken connection: a bug of ours.
            module = type(error).__module__
            if not module.startswith(("google", "requests", "urllib3")):
                raise
        return Finding(None, f"{name}: could not be checked", described(error))


def _credentials(connection: Connection) -> Finding:
    from google.auth.transport.requests import Request

    if is_loopback(connection.settings.endpoint):
        return Finding(True, "credentials: none needed for a server of this machine")
    credentials = connection.credentials
    with translated("signing in"):
        attempt(lambda: credentials.refresh(Request()), tries=3)
    who = getattr(credentials, "service_account_email", "") or "your own account"
    return Finding(True, f"credentials: {who}")


def _vertex(connection: Connection) -> Finding:
    settings = connection.settings
    found = runs.recent(connection, limit=1)
    last = f", last run {runs.id_of(found[0])}" if found else ""
    return Finding(True, f"Vertex AI: answers for {settings.project} in {settings.region}{last}")


def _api(connection: Connection, api: str) -> Finding:
    project = connection.settings.project
    name = f"{api}.googleapis.com"
    answer = connection.rest("serviceusage", "GET", f"v1/projects/{project}/services/{name}")
    return Finding(
        answer.get("state") == "ENABLED",
        f"API {name}",
        f"gcloud services enable {name} --project={project}",
    )


def _own_rights(connection: Connection) -> Finding:
    project = connection.settings.project
    granted = connection.rest(
        "cloudresourcemanager",
        "POST",
        f"v1/projects/{project}:testIamPermissions",
        {"permissions": list(OWN_PERMISSIONS)},
    ).get("permissions", [])
    missing = [one for one in OWN_PERMISSIONS if one not in granted]
    return Finding(
        not missing,
        "own rights" + (f": no {', '.join(missing)}" if missing else ""),
        f"an administrator: gcloud projects add-iam-policy-binding {project} --member=user:YOU "
        "--role=roles/aiplatform.user (and roles/logging.viewer)",
    )


def _bucket(connection: Connection) -> Finding:
    settings = connection.settings
    if not settings.bucket:
        settings.require("pipeline_root")
    create = (
        f"gcloud storage buckets create gs://{settings.bucket} --project={settings.project} "
        f"--location={settings.region} --uniform-bucket-level-access"
    )
    try:
        bucket = attempt(lambda: connection.storage.get_bucket(settings.bucket))
    except Exception as error:
        if status_of(error) != _NOT_FOUND:
            raise
        return Finding(False, f"bucket gs://{settings.bucket}: there is none", create)
    location = str(bucket.location).lower()
    return Finding(
        location == settings.region,
        f"bucket gs://{settings.bucket}: in {location}",
        f"take one in {settings.region}, or reading costs money and time: {create}",
    )


def _pipeline_repository(connection: Connection) -> Finding:
    settings = connection.settings
    repository = settings.template_repository
    if not repository or repository.startswith("gs://"):
        where = repository or "none set; runs and schedules carry their pipeline themselves"
        return Finding(True, f"pipeline repository: {where}")
    match = _PIPELINES.match(repository)
    if not match:
        return Finding(None, f"pipeline repository {repository}: not in Artifact Registry")
    return _repository(connection, match, "KFP")


def _repository(connection: Connection, match: re.Match[str], kind: str) -> Finding:
    location, project, name = match["location"], match["project"], match["repository"]
    path = f"v1/projects/{project}/locations/{location}/repositories/{name}"
    create = (
        f"gcloud artifacts repositories create {name} --project={project} --location={location} "
        f"--repository-format={kind.lower()}"
    )
    try:
        answer = connection.rest("artifactregistry", "GET", path)
    except Exception as error:
        if status_of(error) != _NOT_FOUND:
            raise
        return Finding(False, f"repository {name}: there is none in {location}", create)
    found = answer.get("format", "")
    what = f"repository {name}: of format {found}, in {location}"
    return Finding(found == kind, what, f"its format must be {kind}: {create}")


def _image(connection: Connection) -> Finding:
    image = connection.settings.require("image").image
    match = _IMAGE.fullmatch(image)
    if not match:
        return Finding(None, f"image {image}: not in Artifact Registry; could not be checked")
    repository = _repository(connection, match, "DOCKER")
    if not repository.ok:
        return repository
    name = quote(match["name"], safe="")
    tag = f"tags/{match['tag'] or 'latest'}"
    version = f"versions/{match['digest']}" if match["digest"] else tag
    path = (
        f"v1/projects/{match['project']}/locations/{match['location']}/repositories/"
        f"{match['repository']}/packages/{name}/{version}"
    )
    try:
        connection.rest("artifactregistry", "GET", path)
    except Exception as error:
        if status_of(error) != _NOT_FOUND:
            raise
        return Finding(False, f"image {image}: it is not there", "build it and push it")
    return Finding(True, f"image {image}")


def _roles(connection: Connection) -> Finding:
    settings = connection.settings
    account = settings.service_account
    member = f"serviceAccount:{account}"
    policy = connection.rest(
        "cloudresourcemanager", "POST", f"v1/projects/{settings.project}:getIamPolicy", {}
    )
    granted = [one["role"] for one in policy.get("bindings", []) if member in one["members"]]
    if any(role in granted for role in _BROAD_ROLES):
        return Finding(True, f"service account {account}: {', '.join(granted)}")
    missing = [role for role in RUNNING_ROLES if role not in granted]
    if not any(role in granted for role in BUCKET_ROLES) and not _may_write(connection, member):
        missing.append("roles/storage.objectUser")
    flags = [
        f"gcloud projects add-iam-policy-binding {settings.project} --member={member} --role={role}"
        for role in missing
    ]
    what = f"service account {account}"
    return Finding(not missing, f"{what}: no {', '.join(missing)}" if missing else what,
                   " && ".join(flags))  # fmt: skip


def _may_write(connection: Connection, member: str) -> bool:
    """Whether the bucket itself lets an account write."""
    bucket = connection.storage.bucket(connection.settings.bucket)
    policy = attempt(lambda: bucket.get_iam_policy(requested_policy_version=3))
    return any(one["role"] in BUCKET_ROLES and member in one["members"] for one in policy.bindings)


def _quota(connection: Connection, quota: cost.Quota) -> Finding:
    settings = connection.settings
    service = quota.metric.partition("/")[0]
    answer = connection.rest(
        "serviceusage",
        "GET",
        f"v1beta1/projects/{settings.project}/services/{service}/consumerQuotaMetrics/"
        f"{quote(quota.metric, safe='')}",
    )
    limit = _limit(answer, settings)
    # The API leaves out a limit of 0 and has -1 for none.
    enough = limit < 0 or limit >= quota.amount
    shown = "no limit" if limit < 0 else str(limit)
    return Finding(
        enough,
        f"quota {quota.metric.rpartition('/')[2]}: {quota.amount} needed, {shown} in "
        f"{settings.region}",
        f"ask for {quota.amount}: https://console.cloud.google.com/iam-admin/quotas?project="
        f"{settings.project}, or take other machines",
    )


def _limit(answer: dict[str, Any], settings: Settings) -> int:
    """The limit of a region, else that of all."""
    buckets = [
        bucket
        for limit in answer.get("consumerQuotaLimits", [])
        for bucket in limit.get("quotaBuckets", [])
    ]
    own = [one for one in buckets if one.get("dimensions", {}).get("region") == settings.region]
    general = [one for one in buckets if not one.get("dimensions")]
    for bucket in [*own, *general]:
        return int(bucket.get("effectiveLimit", 0))
    return 0
