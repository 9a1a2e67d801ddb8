"""Google's other APIs, as far as the commands use them, of a project that is set up.

https://docs.cloud.google.com/service-usage/docs/reference/rest
https://docs.cloud.google.com/resource-manager/reference/rest
https://docs.cloud.google.com/iam/docs/reference/rest
https://docs.cloud.google.com/artifact-registry/docs/reference/rest
https://docs.cloud.google.com/logging/docs/reference/v2/rest
"""

import dataclasses
import json
import re
from collections.abc import Callable
from typing import Any

from vertex.emulator.api_error import not_found
from vertex.emulator.server import HttpRequest

ROLES = (
    "roles/aiplatform.user",
    "roles/logging.logWriter",
    "roles/storage.objectUser",
    "roles/storage.legacyBucketReader",
    "roles/bigquery.jobUser",
    "roles/bigquery.readSessionUser",
    "roles/dataflow.developer",
    "roles/dataflow.worker",
)
_REPOSITORY = r"/v1/projects/[^/]+/locations/[^/]+/repositories/(?P<repository>[^/:]+)"


@dataclasses.dataclass
class ProjectServices:
    """The responses of Service Usage, Resource Manager, IAM and Artifact Registry to `doctor`."""

    account: str  # the account that runs act as
    project: str  # ID
    number: str

    routes = (
        ("GET", "/v1/projects/[^/]+/services/(?P<api>[^/]+)", "GetService"),
        ("GET", "/v1beta1/.+/consumerQuotaMetrics/(?P<metric>.+)", "GetQuota"),
        ("POST", "/v1/projects/.+:testIamPermissions", "TestPermissions"),
        ("POST", "/v1/projects/[^/]+:getIamPolicy", "GetPolicy"),
        ("POST", "/v1/projects/-/serviceAccounts/[^/]+:getIamPolicy", "GetAccountPolicy"),
        ("GET", "/v1/(?P<role>(?:projects/[^/]+/)?roles/[^/]+)", "GetRole"),
        ("GET", _REPOSITORY + ":getIamPolicy", "GetRepositoryPolicy"),
        ("GET", _REPOSITORY, "GetRepository"),
        ("GET", _REPOSITORY + "/packages/[^/]+/(?:tags|versions)/(?P<tag>[^/]+)", "GetImage"),
    )

    def get_project(self, request: Any) -> Any:
        """Return the project, by its ID or number."""
        from google.cloud.resourcemanager_v3 import types

        if request.name not in (f"projects/{self.project}", f"projects/{self.number}"):
            raise not_found(request.name)
        return types.Project(
            name=f"projects/{self.number}", project_id=self.project, state="ACTIVE"
        )

    def get_service(self, _: HttpRequest) -> dict[str, Any]:
        return {"state": "ENABLED"}

    def get_quota(self, _: HttpRequest) -> dict[str, Any]:
        return {"consumerQuotaLimits": [{"quotaBuckets": [{"effectiveLimit": "-1"}]}]}

    def test_permissions(self, request: HttpRequest) -> dict[str, Any]:
        return {"permissions": json.loads(request.body)["permissions"]}

    def get_policy(self, _: HttpRequest) -> dict[str, Any]:
        return {"version": 3, "bindings": [self.bind(role) for role in ROLES]}

    def get_account_policy(self, _: HttpRequest) -> dict[str, Any]:
        return {"bindings": [self.bind("roles/iam.serviceAccountUser")]}

    def bind(self, role: str) -> dict[str, Any]:
        """Return a binding of a role to the account."""
        return {"role": role, "members": [f"serviceAccount:{self.account}"]}

    def get_role(self, request: HttpRequest) -> dict[str, Any]:
        return {"name": request.match["role"], "includedPermissions": []}

    def get_repository(self, request: HttpRequest) -> dict[str, Any]:
        return {"format": "KFP" if request.match["repository"] == "pipelines" else "DOCKER"}

    def get_repository_policy(self, _: HttpRequest) -> dict[str, Any]:
        return {"bindings": [self.bind("roles/artifactregistry.reader")]}

    def get_image(self, _: HttpRequest) -> dict[str, Any]:
        return {}


@dataclasses.dataclass
class LogEntries:
    """Cloud Logging's server of the lines of training jobs."""

    entries: Callable[[], list[dict[str, Any]]]  # returns them in the API's JSON, oldest first

    routes = (("POST", "/v2/entries:list", "ListLogEntries"),)

    def list_log_entries(self, request: HttpRequest) -> dict[str, Any]:
        """Return the newest entries whose resource has the filter's labels."""
        content = json.loads(request.body)
        wanted = dict(re.findall(r'resource\.labels\.(\w+)="([^"]*)"', content["filter"])).items()
        entries = [
            entry for entry in self.entries() if wanted <= entry["resource"]["labels"].items()
        ]
        first = int(content.get("pageToken") or 0)
        last = first + content["pageSize"]
        token = {"nextPageToken": str(last)} if last < len(entries) else {}
        return {"entries": entries[::-1][first:last], **token}
