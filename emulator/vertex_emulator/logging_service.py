"""Cloud Logging, as far as it is asked for the lines of training jobs."""

import dataclasses
import json
import re
from collections.abc import Callable
from typing import Any

from vertex_emulator.server import HttpRequest


@dataclasses.dataclass
class LogEntries:
    """Cloud Logging's server of the lines of training jobs."""

    entries: Callable[[], list[dict[str, Any]]]  # returns them in the API's JSON, oldest first

    routes = (("POST", "/v2/entries:list", "ListLogEntries"),)

    def list_log_entries(self, request: HttpRequest) -> dict[str, Any]:
        """Return the newest entries whose resource has the filter's labels.

        https://cloud.google.com/logging/docs/reference/v2/rest/v2/entries/list
        """
        content = json.loads(request.body)
        wanted = dict(re.findall(r'resource\.labels\.(\w+)="([^"]*)"', content["filter"])).items()
        entries = [
            entry for entry in self.entries() if wanted <= entry["resource"]["labels"].items()
        ]
        first = int(content.get("pageToken") or 0)
        last = first + content["pageSize"]
        token = {"nextPageToken": str(last)} if last < len(entries) else {}
        return {"entries": entries[::-1][first:last], **token}
