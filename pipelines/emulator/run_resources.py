"""Traces of runs in other services: their CustomJobs, and log lines."""

import json
import re
from typing import Any

from pipelines.emulator.api_error import not_found
from pipelines.emulator.custom_job_files import CustomJobFiles
from pipelines.emulator.labels import filtered
from pipelines.emulator.operations import PAGE_SIZE, Operations, page
from pipelines.emulator.server import HttpRequest


class RunResources:
    """Serves what is kept in files, or what a test puts there.

    Args:
        files: of the CustomJobs; None: a test sets the attributes.

    Attributes:
        custom_jobs: messages by ID.
        log_entries: in Cloud Logging's JSON, the oldest first.
    """

    page_size = PAGE_SIZE
    routes = (("POST", "/v2/entries:list", "ListLogEntries"),)

    def __init__(self, operations: Operations, files: CustomJobFiles | None = None) -> None:
        self.custom_jobs: dict[str, Any] = {}
        self.log_entries: list[dict[str, Any]] = []
        self._operations, self._files = operations, files

    def create_custom_job(self, request: Any) -> Any:
        assert self._files
        return self._files.create(request)

    def get_custom_job(self, request: Any) -> Any:
        self._refresh()
        return self._find(request.name)

    def cancel_custom_job(self, request: Any) -> None:
        assert self._files
        self._files.cancel(_id(self.get_custom_job(request)))

    def list_custom_jobs(self, request: Any) -> Any:
        from google.cloud.aiplatform_v1 import types

        self._refresh()
        found = filtered(self.custom_jobs.values(), request.filter)
        jobs, token = page(found, request, self.page_size)
        return types.ListCustomJobsResponse(custom_jobs=jobs, next_page_token=token)

    def delete_custom_job(self, request: Any) -> Any:
        job_id = _id(self.get_custom_job(request))
        if self._files:
            self._files.delete(job_id)
        del self.custom_jobs[job_id]
        return self._operations.start(request.name)

    def list_log_entries(self, request: HttpRequest) -> dict[str, Any]:
        """Return the newest entries whose resource has the labels of the filter.

        https://cloud.google.com/logging/docs/reference/v2/rest/v2/entries/list
        """
        self._refresh()
        content = json.loads(request.body)
        wanted = dict(re.findall(r'resource\.labels\.(\w+)="([^"]*)"', content["filter"]))
        found = [
            entry
            for entry in self.log_entries
            if wanted.items() <= entry["resource"]["labels"].items()
        ]
        return {"entries": found[::-1][: content["pageSize"]]}

    def _refresh(self) -> None:
        if self._files:
            self.custom_jobs, self.log_entries = self._files.jobs(), self._files.log_entries()

    def _find(self, name: str) -> Any:
        job_id = name.rpartition("/")[2]
        if job_id not in self.custom_jobs:
            raise not_found(name)
        return self.custom_jobs[job_id]


def _id(resource: Any) -> str:
    return str(resource.name.rpartition("/")[2])
