"""Artifact Registry's repository of pipelines, and Cloud Storage, with faults."""

import json

from pipelines.emulator.artifact_registry import REPOSITORY, ArtifactRegistry, form, parts_of
from pipelines.emulator.cloud_storage import CloudStorage
from tests.emulator import OpenEmulator


class RegistryServer(OpenEmulator):
    """Artifact Registry; `requests` holds tags and versions."""

    def __init__(self):
        registry = ArtifactRegistry()
        self.packages = registry.packages
        super().__init__(registry)

    @property
    def repository(self):
        return f"{self.url}{REPOSITORY}"

    def noted(self, name, request):
        if name == "Upload":
            return form(request)["tags"].decode().split(",")
        named = request.match.groupdict()
        return named.get("version") or named.get("tag") or request.query["tagId"]


class StorageServer(OpenEmulator):
    """Cloud Storage; `requests` holds names of objects."""

    def __init__(self):
        self.buckets = {}
        self.service = CloudStorage(self.buckets)
        super().__init__(self.service)

    def noted(self, name, request):
        if name == "InsertObject":
            return json.loads(parts_of(request)[0].get_payload(decode=True))["name"]
        named = request.match.groupdict()
        return named.get("name") or request.query.get("prefix", named["bucket"])
