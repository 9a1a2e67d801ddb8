"""Models of a registry and their versions, as a test has put them there."""

from google.cloud.aiplatform_v1 import types

from tests.pipelines.vertex.emulator.protos import P, ProtoServer, filtered
from tests.pipelines.vertex.servers import ApiError


class Models(ProtoServer):
    routes = (
        ("GET", P + "/models", "ListModels", "list_models"),
        ("GET", P + "/models/(?P<id>[^/:]+):listVersions", "ListModelVersions", "list_versions"),
        ("DELETE", P + "/models/(?P<id>[^/]+):deleteVersion", "DeleteModelVersion", "delete_model"),
        ("DELETE", P + "/models/(?P<id>[^/:]+)", "DeleteModel", "delete_whole_model"),
    )

    def __init__(self):
        super().__init__()
        self.models = {}

    def list_models(self, match, query, headers, body):
        request = self.parse("ListModels", match, query, body)
        latest = [versions[-1] for versions in self.models.values()]
        return self.page("models", types.ListModelsResponse, filtered(latest, request.filter),
                          request)  # fmt: skip

    def list_versions(self, match, query, headers, body):
        request = self.parse("ListModelVersions", match, query, body)
        versions = self.find(self.models, match["id"].partition("@")[0])
        return self.page("models", types.ListModelVersionsResponse, versions, request)

    def delete_model(self, match, query, headers, body):
        request = self.parse("DeleteModelVersion", match, query, body)
        model, _, version = match["id"].partition("@")
        versions = self.find(self.models, model)
        found = next((one for one in versions if one.version_id == version), None)
        if not found:
            raise ApiError(404, "NOT_FOUND", f"{request.name} not found")
        if "default" in found.version_aliases or len(versions) == 1:
            raise ApiError(400, "FAILED_PRECONDITION", "the default version can't be deleted")
        versions.remove(found)
        return self.operation()

    def delete_whole_model(self, match, query, headers, body):
        self.parse("DeleteModel", match, query, body)
        self.find(self.models, match["id"])
        del self.models[match["id"]]
        return self.operation()
