"""Contexts of Vertex ML Metadata: experiments, and the runs that are their children."""

import json

from google.cloud.aiplatform_v1 import types

from tests.pipelines.vertex.emulator.protos import LOCATION, ProtoServer, answer
from tests.pipelines.vertex.servers import ApiError

_STORE = r"/v1/(?P<parent>projects/[^/]+/locations/[^/]+/metadataStores/default)/contexts"


class Contexts(ProtoServer):
    routes = (
        ("POST", _STORE, "CreateContext", "create_context"),
        ("POST", _STORE + "/(?P<child>[^/:]+):addContextChildren", "AddContextChildren",
         "add_context_children"),
    )  # fmt: skip

    def __init__(self):
        super().__init__()
        self.experiments = {}

    def create_context(self, match, query, headers, body):
        request = self.parse("CreateContext", match, query, body, "context")
        if request.context_id in self.experiments:
            raise ApiError(409, "ALREADY_EXISTS", f"{request.context_id} already exists")
        self.experiments[request.context_id] = []
        name = f"{LOCATION}/metadataStores/default/contexts/{request.context_id}"
        return answer(types.Context(request.context, name=name))

    def add_context_children(self, match, query, headers, body):
        children = json.loads(body)["childContexts"]
        self.find(self.experiments, match["child"])
        for child in children:
            # A run's context is of this project's number, as its experiment.
            assert child.startswith(f"{LOCATION}/metadataStores/default/contexts/")
            self.experiments[match["child"]].append(child.rpartition("/")[2])
        self.requests.append(("AddContextChildren", json.loads(body)))
        return {}
