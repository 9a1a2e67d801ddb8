"""Cloud Logging: the lines of training jobs."""

import json
import re
from collections.abc import Callable
from typing import Any

from pipelines.emulator.server import HttpRequest


class LogEntries:
    """A server of log lines.

    Args:
        entries: returns the entries in Cloud Logging's JSON, oldest first.
    """

    routes = (("POST", "/v2/entries:list", "ListLogEntries"),)

    def __init__(self, entries: Callable[[], list[dict[str, Any]]]) -> None:
        self._entries = entries

    def list_log_entries(self, request: HttpRequest) -> dict[str, Any]:
        """Return the newest entries whose resource has the filter's labels.

        https://cloud.google.com/logging/docs/reference/v2/rest/v2/entries/list
        """
        content = json.loads(request.body)
        wanted = dict(re.findall(r'resource\.labels\.(\w+)="([^"]*)"', content["filter"])).items()
        found = [one for one in self._entries() if wanted <= one["resource"]["labels"].items()]
        return {"entries": found[::-1][: content["pageSize"]]}
