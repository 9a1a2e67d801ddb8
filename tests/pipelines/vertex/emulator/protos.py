"""What all of the emulator shares: requests and answers are the official protos."""

import datetime
import json
import re

from google.cloud.aiplatform_v1 import types
from google.protobuf import json_format

from tests.pipelines.vertex.servers import ApiError, Server

NUMBER = "123456"
REGION = "us-central1"
LOCATION = f"projects/{NUMBER}/locations/{REGION}"
P = r"/v1/(?P<parent>projects/[^/]+/locations/[^/]+)"
_LABEL = re.compile(r"[a-z0-9_-]{0,63}")


class ProtoServer(Server):
    """Speaks the REST of google.cloud.aiplatform.v1; its resources are attributes of subclasses."""

    def __init__(self):
        super().__init__()
        self._number = 1000

    def parse(self, name, match, query, body, field=""):
        """The request's proto, from path, query and body as google.api.http has it."""
        request = getattr(types, f"{name}Request")()
        document = {key: value for key, value in query.items() if not key.startswith("$")}
        if "id" in match.groupdict():
            document["name"] = match.string.removeprefix("/v1/").partition(":")[0]
        else:
            document["parent"] = match["parent"]
        if field:
            document[field] = json.loads(body)
        try:
            json_format.ParseDict(document, request._pb)
        except json_format.ParseError as error:
            raise ApiError(400, "INVALID_ARGUMENT", str(error)) from None
        self.requests.append((name, request))
        return request

    def find(self, resources, key):
        if key not in resources:
            raise ApiError(404, "NOT_FOUND", f"{key} is not found.")
        return resources[key]

    def page(self, field, response, items, request):
        """Two at a time, so that a client that forgets further pages is caught."""
        start = int(request.page_token or 0)
        token = str(start + 2) if start + 2 < len(items) else ""
        return answer(response(**{field: items[start : start + 2], "next_page_token": token}))

    def operation(self, done=False):
        operation = {"name": f"{LOCATION}/operations/{self.next()}"}
        empty = {"@type": "type.googleapis.com/google.protobuf.Empty"}
        return {**operation, "done": True, "response": empty} if done else operation

    def next(self):
        self._number += 1
        return str(self._number)


def answer(message):
    return json.loads(type(message).to_json(message, use_integers_for_enums=False))


def now():
    return datetime.datetime.now(datetime.timezone.utc)


def numbered(parent):
    return re.sub(r"^projects/[^/]+", f"projects/{NUMBER}", parent)


def filtered(resources, text):
    found = list(resources)
    for term in filter(None, text.split(" AND ")):
        match = re.fullmatch(r'(?:labels\.([\w-]+)|pipelineName)="([^"]*)"', term)
        if not match:
            raise ApiError(400, "INVALID_ARGUMENT", f"invalid filter {term!r}")
        key, value = match.groups()
        if key:
            found = [one for one in found if one.labels.get(key) == value]
        else:
            found = [one for one in found if one.pipeline_spec["pipelineInfo"]["name"] == value]
    return found


def masked(job, mask):
    """A PipelineJob as lists have it: the fields asked for, and never its tasks."""
    shown = types.PipelineJob()
    if mask.paths:
        mask.MergeMessage(job._pb, shown._pb)
    else:
        shown._pb.CopyFrom(job._pb)
    shown._pb.ClearField("job_detail")
    return shown


def check_job(job):
    """Refuses a PipelineJob as the service does."""
    document = json_format.MessageToDict(job._pb)
    runtime = document.get("runtimeConfig", {})
    if not runtime.get("gcsOutputDirectory", "").startswith("gs://"):
        raise ApiError(400, "INVALID_ARGUMENT", "gcs_output_directory is required")
    known = document["pipelineSpec"]["root"]["inputDefinitions"]["parameters"]
    for name in runtime.get("parameterValues", {}):
        if name not in known:
            raise ApiError(400, "INVALID_ARGUMENT", f"unknown parameter {name}")
    for key, value in job.labels.items():
        if not _LABEL.fullmatch(key) or not _LABEL.fullmatch(value):
            raise ApiError(400, "INVALID_ARGUMENT", f"invalid label {key}={value}")
