"""The responses of Google's other APIs to `doctor`, of a project that is set up.

https://docs.cloud.google.com/service-usage/docs/reference/rest
https://docs.cloud.google.com/resource-manager/reference/rest
https://docs.cloud.google.com/iam/docs/reference/rest
https://docs.cloud.google.com/artifact-registry/docs/reference/rest
"""

import dataclasses
import json
from typing import Any

from vertex_emulator.server import HttpRequest

ROLES = (
    "roles/aiplatform.user",
    "roles/logging.logWriter",
    "roles/storage.objectUser",
    "roles/storage.legacyBucketReader",
)
_REPOSITORY = r"/v1/projects/[^/]+/locations/[^/]+/repositories/(?P<repository>[^/:]+)"


@dataclasses.dataclass
class ProjectServices:
    """Service Usage, Resource Manager, IAM and Artifact Registry."""

    account: str  # the account that runs act as

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
