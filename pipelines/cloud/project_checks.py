"""Check whether a project lets runs happen: its APIs, rights, roles and quota."""

import dataclasses
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from pipelines.cloud.connection import Connection, console_link
from pipelines.machines import cost

APIS = tuple(
    f"{name}.googleapis.com" for name in ("aiplatform", "artifactregistry", "logging", "storage")
)
OWN_PERMISSIONS = (
    "aiplatform.pipelineJobs.create",
    "aiplatform.schedules.create",
    "aiplatform.customJobs.get",
    "aiplatform.endpoints.deploy",
    "logging.logEntries.list",
)
NEEDED = (
    ("roles/aiplatform.user", "aiplatform.customJobs.create"),
    ("roles/logging.logWriter", "logging.logEntries.create"),
    ("roles/storage.objectUser", "storage.objects.create"),
    ("roles/storage.legacyBucketReader", "storage.buckets.get"),
)
"""The usual role of the account of runs for each right that it needs."""
DEPLOYING = (("roles/aiplatform.user", "aiplatform.endpoints.deploy"),)
"""The same for what deploy_champion needs beside them."""

_BROAD_ROLES = ("roles/owner", "roles/editor")


@dataclasses.dataclass(frozen=True)
class Finding:
    """A check's subject, its result and the remedy; `ok` is None where it can't tell."""

    ok: bool | None
    what: str
    mend: str = ""


def api(connection: Connection, name: str) -> Finding:
    """Check whether an API is enabled."""
    project = connection.settings.project
    answer = connection.rest("serviceusage", "GET", f"v1/projects/{project}/services/{name}")
    return Finding(
        answer.get("state") == "ENABLED",
        f"API {name}",
        f"gcloud services enable {name} --project={project}",
    )


def own_permissions(
    connection: Connection, service: str, resource: str, wanted: Sequence[str]
) -> list[str]:
    """Return those of the wanted permissions that who is signed in has on a resource."""
    path, body = f"v1/{resource}:testIamPermissions", {"permissions": list(wanted)}
    return connection.rest(service, "POST", path, body).get("permissions", [])


def own_rights(connection: Connection) -> Finding:
    """Check whether who is signed in may start runs and read their logs."""
    project = connection.settings.project
    granted = own_permissions(
        connection, "cloudresourcemanager", f"projects/{project}", OWN_PERMISSIONS
    )
    missing = [one for one in OWN_PERMISSIONS if one not in granted]
    return Finding(
        not missing,
        "own rights" + (f": no {', '.join(missing)}" if missing else ""),
        f"an administrator: gcloud projects add-iam-policy-binding {project} --member=user:YOU "
        "--role=roles/aiplatform.user (and roles/logging.viewer)",
    )


def act_as(connection: Connection) -> Finding:
    """Check whether who is signed in may start runs that act as the account of the settings."""
    account = connection.settings.service_account
    right = "iam.serviceAccounts.actAs"
    path = f"projects/-/serviceAccounts/{account}"
    granted = own_permissions(connection, "iam", path, [right])
    return Finding(
        right in granted,
        f"own right to act as {account}",
        f"an administrator: gcloud iam service-accounts add-iam-policy-binding {account} "
        "--member=user:YOU --role=roles/iam.serviceAccountUser",
    )


def service_account(connection: Connection, *, deploys: bool = False) -> Finding:
    """Check whether the account of runs has its rights, by whichever role of the project's.

    Args:
        deploys: whether runs deploy their champions.
    """
    settings = connection.settings
    account = settings.service_account
    member = f"serviceAccount:{account}"
    # Version 3 is the one that has conditional bindings.
    policy = connection.rest(
        "cloudresourcemanager",
        "POST",
        f"v1/projects/{settings.project}:getIamPolicy",
        {"options": {"requestedPolicyVersion": 3}},
    )
    held = [one for one in policy.get("bindings", []) if member in one["members"]]
    missing, conditional = {}, []
    for role, permission in NEEDED + (DEPLOYING if deploys else ()):
        place = f"projects add-iam-policy-binding {settings.project}"
        bindings = _giving(connection, held, role, permission)
        if permission.startswith("storage."):
            place = f"storage buckets add-iam-policy-binding gs://{settings.bucket}"
            if not bindings:
                bucket = connection.storage.bucket(settings.bucket)
                own = bucket.get_iam_policy(requested_policy_version=3, retry=connection.retry)
                of_bucket = [one for one in own.bindings if member in one["members"]]
                bindings = _giving(connection, of_bucket, role, permission)
        if not bindings:
            missing[role] = f"gcloud {place} --member={member} --role={role}"
        elif all(one.get("condition") for one in bindings):
            conditional.append(bindings[0]["role"])
    what = f"service account {account}"
    if missing:
        return Finding(False, f"{what}: no {', '.join(missing)}", " && ".join(missing.values()))
    if conditional:
        return Finding(
            None,
            f"{what}: {', '.join(conditional)} under a condition",
            "see that the condition holds for runs",
        )
    return Finding(True, what)


def _giving(
    connection: Connection, bindings: list[Any], role: str, permission: str
) -> list[dict[str, Any]]:
    """Return those bindings whose role has a permission."""

    def has(held: str) -> bool:
        if held == role or held in _BROAD_ROLES:
            return True
        return permission in connection.rest("iam", "GET", f"v1/{held}").get(
            "includedPermissions", []
        )

    return [one for one in bindings if has(one["role"])]


def quota(connection: Connection, needed: cost.Quota) -> Finding:
    """Check whether the region's limit is as high as machines need it."""
    settings = connection.settings
    name, project = needed.metric.partition("/")[0], settings.project
    path = f"v1beta1/projects/{project}/services/{name}/consumerQuotaMetrics/"
    answer = connection.rest("serviceusage", "GET", path + quote(needed.metric, safe=""))
    buckets = [
        bucket
        for limit in answer.get("consumerQuotaLimits", [])
        for bucket in limit.get("quotaBuckets", [])
    ]
    # The region's limit, else that of all.
    own = [one for one in buckets if one.get("dimensions", {}).get("region") == settings.region]
    own += [one for one in buckets if not one.get("dimensions")]
    # The API leaves out a limit of 0 and has -1 for none.
    limit = int(own[0].get("effectiveLimit", 0)) if own else 0
    return Finding(
        limit < 0 or limit >= needed.amount,
        f"quota {needed.metric.rpartition('/')[2]}: {needed.amount} needed, "
        f"{'no limit' if limit < 0 else limit} in {settings.region}",
        f"ask for {needed.amount}: {console_link(settings, 'iam-admin/quotas')}, or take other "
        "machines",
    )
