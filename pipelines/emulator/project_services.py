"""The responses of Google's other APIs to `doctor`, by default of a project that is set up.

https://docs.cloud.google.com/service-usage/docs/reference/rest
https://docs.cloud.google.com/resource-manager/reference/rest
https://docs.cloud.google.com/iam/docs/reference/rest
https://docs.cloud.google.com/artifact-registry/docs/reference/rest
"""

import json
import urllib.parse
from typing import Any

from pipelines.emulator.api_error import not_found
from pipelines.emulator.server import HttpRequest

_REPOSITORY = r"/v1/projects/[^/]+/locations/[^/]+/repositories/(?P<repository>[^/:]+)"


class ProjectServices:
    """Service Usage, Resource Manager, IAM and Artifact Registry.

    Args:
        account: the account that has `roles`.
    """

    routes = (
        ("GET", "/v1/projects/[^/]+/services/(?P<api>[^/]+)", "GetService"),
        ("GET", "/v1beta1/.+/consumerQuotaMetrics/(?P<metric>.+)", "GetQuota"),
        ("POST", "/v1/projects/.+:testIamPermissions", "TestPermissions"),
        ("POST", "/v1/projects/[^/]+:getIamPolicy", "GetPolicy"),
        ("POST", "/v1/projects/-/serviceAccounts/[^/]+:getIamPolicy", "GetAccountPolicy"),
        ("GET", "/v1/(?P<role>(?:projects/[^/]+/)?roles/[^/]+)", "GetRole"),
        ("GET", _REPOSITORY, "GetRepository"),
        ("GET", _REPOSITORY + "/packages/[^/]+/(?:tags|versions)/(?P<tag>[^/]+)", "GetImage"),
    )

    def __init__(self, account: str) -> None:
        self.disabled: set[str] = set()  # APIs that are not enabled
        self.missing: set[str] = set()  # permissions that the caller does not have
        self.gone: set[str] = set()  # repositories and image tags that do not exist
        # By quota metric, without its service; other metrics are unlimited.
        self.limits: dict[str, int] = {}
        self.roles = [
            "roles/aiplatform.user",
            "roles/logging.logWriter",
            "roles/storage.objectUser",
            "roles/storage.legacyBucketReader",
        ]
        self.roles_on_itself = ["roles/iam.serviceAccountUser"]
        self.conditional: set[str] = set()  # the account's roles that have a condition
        self.permissions_of: dict[str, list[str]] = {}  # by role
        self._account = account

    def get_service(self, request: HttpRequest) -> dict[str, Any]:
        return {"state": "DISABLED" if request.match["api"] in self.disabled else "ENABLED"}

    def get_quota(self, request: HttpRequest) -> dict[str, Any]:
        """Return the global and the region's limit; the API leaves out a limit of 0."""
        name = urllib.parse.unquote(request.match["metric"]).rpartition("/")[2]
        limit = self.limits.get(name, -1)
        regional: dict[str, Any] = {"dimensions": {"region": "us-central1"}}
        if limit:
            regional["effectiveLimit"] = str(limit)
        return {"consumerQuotaLimits": [{"quotaBuckets": [{"effectiveLimit": "1"}, regional]}]}

    def test_permissions(self, request: HttpRequest) -> dict[str, Any]:
        asked = json.loads(request.body)["permissions"]
        return {
            "permissions": [permission for permission in asked if permission not in self.missing]
        }

    def get_policy(self, request: HttpRequest) -> dict[str, Any]:
        """Return the bindings; bindings with a condition only if version 3 is requested."""
        version = json.loads(request.body).get("options", {}).get("requestedPolicyVersion", 1)
        bindings = []
        for role in self.roles:
            binding: dict[str, Any] = {"role": role, "members": [f"serviceAccount:{self._account}"]}
            if role in self.conditional:
                binding["condition"] = {"expression": "request.time < timestamp('2030')"}
            if version >= 3 or role not in self.conditional:
                bindings.append(binding)
        return {"version": version, "bindings": bindings}

    def get_account_policy(self, _: HttpRequest) -> dict[str, Any]:
        member = f"serviceAccount:{self._account}"
        return {"bindings": [{"role": role, "members": [member]} for role in self.roles_on_itself]}

    def get_role(self, request: HttpRequest) -> dict[str, Any]:
        role = request.match["role"]
        return {"name": role, "includedPermissions": self.permissions_of.get(role, [])}

    def get_repository(self, request: HttpRequest) -> dict[str, Any]:
        name = request.match["repository"]
        if name in self.gone:
            raise not_found(name)
        return {"format": "KFP" if name == "pipelines" else "DOCKER"}

    def get_image(self, request: HttpRequest) -> dict[str, Any]:
        if request.match["tag"] in self.gone:
            raise not_found(request.match["tag"])
        return {}
