"""Whether a project lets runs happen: its APIs, rights, roles and quota."""

from typing import Any
from urllib.parse import quote

from pipelines import cost
from pipelines.vertex.connection import Connection
from pipelines.vertex.finding import Finding
from pipelines.vertex.settings import Settings

APIS = tuple(
    f"{name}.googleapis.com" for name in ("aiplatform", "artifactregistry", "logging", "storage")
)
OWN_PERMISSIONS = (
    "aiplatform.pipelineJobs.create",
    "aiplatform.schedules.create",
    "aiplatform.customJobs.get",
    "logging.logEntries.list",
)
RUNNING_ROLES = ("roles/aiplatform.user", "roles/logging.logWriter")
"""What the account of runs needs in the project; its right to the bucket is checked apart."""

BUCKET_ROLES = ("roles/storage.admin", "roles/storage.objectAdmin", "roles/storage.objectUser")
_BROAD_ROLES = ("roles/owner", "roles/editor")


def api(connection: Connection, name: str) -> Finding:
    """Whether an API is enabled."""
    project = connection.settings.project
    answer = connection.rest("serviceusage", "GET", f"v1/projects/{project}/services/{name}")
    return Finding(
        answer.get("state") == "ENABLED",
        f"API {name}",
        f"gcloud services enable {name} --project={project}",
    )


def own_rights(connection: Connection) -> Finding:
    """Whether who is signed in may start runs and read their logs."""
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


def service_account(connection: Connection) -> Finding:
    """Whether the account of runs has its roles."""
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
    policy = bucket.get_iam_policy(requested_policy_version=3, retry=connection.retry)
    return any(one["role"] in BUCKET_ROLES and member in one["members"] for one in policy.bindings)


def quota(connection: Connection, needed: cost.Quota) -> Finding:
    """Whether the region's limit is as high as machines need it."""
    settings = connection.settings
    service = needed.metric.partition("/")[0]
    answer = connection.rest(
        "serviceusage",
        "GET",
        f"v1beta1/projects/{settings.project}/services/{service}/consumerQuotaMetrics/"
        f"{quote(needed.metric, safe='')}",
    )
    limit = _limit(answer, settings)
    # The API leaves out a limit of 0 and has -1 for none.
    enough = limit < 0 or limit >= needed.amount
    shown = "no limit" if limit < 0 else str(limit)
    return Finding(
        enough,
        f"quota {needed.metric.rpartition('/')[2]}: {needed.amount} needed, {shown} in "
        f"{settings.region}",
        f"ask for {needed.amount}: https://console.cloud.google.com/iam-admin/quotas?project="
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
