"""A Vertex AI on this machine for tests: REST, parsed and answered with the official protos.

Project IDs turn into the project's number in names, as they do there.
"""

import json
import re

from google.cloud.aiplatform_v1 import types

from tests.pipelines.vertex.emulator.contexts import Contexts
from tests.pipelines.vertex.emulator.models import Models
from tests.pipelines.vertex.emulator.pipeline_jobs import Outcome, PipelineJobs
from tests.pipelines.vertex.emulator.protos import NUMBER, REGION, P, answer, filtered, now
from tests.pipelines.vertex.emulator.schedules import Schedules

__all__ = ["NUMBER", "REGION", "Outcome", "VertexEmulator", "now"]


class VertexEmulator(PipelineJobs, Schedules, Models, Contexts):
    """All of it: the resources, the CustomJobs of runs, operations and log lines."""

    routes = (
        *PipelineJobs.routes,
        *Schedules.routes,
        *Models.routes,
        *Contexts.routes,
        ("GET", P + "/customJobs", "ListCustomJobs", "list_custom_jobs"),
        ("GET", P + "/customJobs/(?P<id>[^/:]+)", "GetCustomJob", "get_custom_job"),
        ("DELETE", P + "/customJobs/(?P<id>[^/:]+)", "DeleteCustomJob", "delete_custom_job"),
        ("GET", "/(v1|ui)/.+/operations/(?P<id>[^/]+)", "GetOperation", "get_operation"),
        ("POST", "/v2/entries:list", "ListLogEntries", "list_log_entries"),
    )

    def __init__(self):
        super().__init__()
        self.log_entries = []
        self.empty_log_pages = 0

    def list_custom_jobs(self, match, query, headers, body):
        request = self.parse("ListCustomJobs", match, query, body)
        jobs = filtered(self.custom_jobs.values(), request.filter)
        return self.page("custom_jobs", types.ListCustomJobsResponse, jobs, request)

    def get_custom_job(self, match, query, headers, body):
        self.parse("GetCustomJob", match, query, body)
        return answer(self.find(self.custom_jobs, match["id"]))

    def delete_custom_job(self, match, query, headers, body):
        self.parse("DeleteCustomJob", match, query, body)
        self.find(self.custom_jobs, match["id"])
        del self.custom_jobs[match["id"]]
        return self.operation()

    def get_operation(self, match, query, headers, body):
        self.requests.append(("GetOperation", None))
        return self.operation(done=True)

    def list_log_entries(self, match, query, headers, body):
        request = json.loads(body)
        self.requests.append(("ListLogEntries", request))
        wanted = dict(re.findall(r'resource\.labels\.(\w+)="([^"]*)"', request["filter"]))
        entries = [
            entry
            for entry in self.log_entries
            if wanted.items() <= entry["resource"]["labels"].items()
        ]
        # As documented: a page may be empty, with a token for where the search goes on.
        number = int(request.get("pageToken") or 0)
        if number < self.empty_log_pages:
            return {"nextPageToken": str(number + 1)}
        return {"entries": entries[::-1][: request["pageSize"]]}
