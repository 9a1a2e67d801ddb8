"""A ModelService for tests: slow operations, pages of two, project numbers in names, faults.

What it keeps, it keeps as the Model Registry of this machine does; what it is asked, it has
parsed with the official protos.
"""

import json
import re
from urllib.parse import unquote

from google.cloud.aiplatform_v1 import types
from google.protobuf import json_format

from pipelines.emulator.model_store import ModelStore, RefusedError
from tests.pipelines.vertex.servers import ApiError, Server

NUMBER = "123456"
_LOCATION = r"/v1/(?P<parent>projects/[^/]+/locations/[^/]+)"
_MODEL = _LOCATION.replace("parent", "location") + r"/models/(?P<id>[^/:]+)"


class ModelService(Server):
    routes = (
        ("POST", _LOCATION + "/models:upload", "UploadModel", "upload"),
        ("GET", _MODEL, "GetModel", "get"),
        ("GET", _MODEL + ":listVersions", "ListModelVersions", "versions"),
        ("POST", _MODEL + ":mergeVersionAliases", "MergeVersionAliases", "merge"),
        ("POST", _MODEL + "/evaluations:import", "ImportModelEvaluation", "import_evaluation"),
        ("GET", _MODEL + "/evaluations", "ListModelEvaluations", "evaluations"),
        # Google's REST client asks for operations below /ui.
        ("GET", r"/(?:v1|ui)/(?P<id>.+/operations/[^/]+)", "GetOperation", "operation"),
    )

    def __init__(self, folder):
        super().__init__()
        self.store = ModelStore(folder)
        self._operations = {}

    @property
    def environment(self):
        return {"VERTEX_AI_ENDPOINT": self.url}

    def upload(self, match, query, headers, body):
        request = self._parse("UploadModel", body, parent=match["parent"])
        request.parent = _numbered(request.parent)
        request.parent_model = _numbered(request.parent_model)
        response = self._asked(self.store.upload, request)
        name = f"{request.parent}/operations/{len(self._operations) + 1}"
        self._operations[name] = response
        return {"name": name}

    def operation(self, match, query, headers, body):
        content = _json(self._operations[match["id"]])
        kind = "type.googleapis.com/google.cloud.aiplatform.v1.UploadModelResponse"
        return {"name": match["id"], "done": True, "response": {"@type": kind, **content}}

    def get(self, match, query, headers, body):
        request = self._parse("GetModel", body, name=_name(match))
        return _json(self._asked(self.store.get, _numbered(request.name)))

    def versions(self, match, query, headers, body):
        request = self._parse("ListModelVersions", body, name=_name(match), **_paging(query))
        found = self._asked(self.store.versions, _numbered(request.name))
        return _page("models", found, request)

    def merge(self, match, query, headers, body):
        request = self._parse("MergeVersionAliases", body, name=_name(match))
        aliases = list(request.version_aliases)
        return _json(self._asked(self.store.merge_aliases, _numbered(request.name), aliases))

    def import_evaluation(self, match, query, headers, body):
        request = self._parse("ImportModelEvaluation", body, parent=_name(match))
        # What the test sees is what was sent.
        evaluation = types.ModelEvaluation(request.model_evaluation)
        parent = _numbered(request.parent)
        return _json(self._asked(self.store.import_evaluation, parent, evaluation))

    def evaluations(self, match, query, headers, body):
        request = self._parse("ListModelEvaluations", body, parent=_name(match), **_paging(query))
        found = self._asked(self.store.evaluations, _numbered(request.parent))
        return _page("modelEvaluations", found, request)

    def _parse(self, kind, body, **path):
        request = getattr(types, f"{kind}Request")()
        json_format.ParseDict({**json.loads(body or b"{}"), **path}, request._pb)
        # A copy: what is kept must not change what was sent.
        self.requests.append((kind, type(request)(request)))
        return request

    def _asked(self, method, *arguments):
        try:
            return method(*arguments)
        except RefusedError as error:
            raise ApiError(error.code, error.status, str(error)) from None


def _name(match):
    # Google's REST client sends `@` as %40.
    return unquote(match.string).removeprefix("/v1/").partition(":")[0].removesuffix("/evaluations")


def _numbered(name):
    return re.sub(r"^projects/[^/]+", f"projects/{NUMBER}", name)


def _paging(query):
    return {name: query[name] for name in ("pageToken",) if name in query}


def _page(field, items, request):
    start = int(request.page_token or 0)
    token = str(start + 2) if start + 2 < len(items) else ""
    return {field: [_json(one) for one in items[start : start + 2]], "nextPageToken": token}


def _json(message):
    return json.loads(type(message).to_json(message))
