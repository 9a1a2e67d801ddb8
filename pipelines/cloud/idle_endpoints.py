"""Find endpoints that are billed but unused: left over from a killed step, or without traffic."""

import datetime
from collections.abc import Sequence
from typing import Any

from components.registry.endpoint_changes import EndpointChanges
from components.registry.endpoints import is_test
from components.vertex.cloud_errors import translated
from pipelines.cloud import deletions
from pipelines.project.connection import Connection
from pipelines.runs import vertex_jobs
from vertex_facts.jobs import ENDED

_LONGEST_TEST = datetime.timedelta(days=1)


def find_idle_endpoints(
    connection: Connection, before: datetime.datetime, labels: dict[str, str], jobs: Sequence[Any]
) -> tuple[list[deletions.Item], list[str]]:
    """Return test endpoints to delete, and why other idle endpoints are kept.

    A test takes minutes, so a test endpoint that was made before the time `before`, or a day ago,
    is left over.

    Args:
        jobs: the PipelineJobs of the project; one that has not ended may be using a test endpoint.
    """
    items, kept = [], []
    latest = max(before, datetime.datetime.now(datetime.timezone.utc) - _LONGEST_TEST).timestamp()
    changes = EndpointChanges(connection.endpoints, connection.say)
    with translated("listing the endpoints"):
        endpoints = list(connection.endpoints.list_endpoints(parent=connection.settings.parent))
    for endpoint in endpoints:
        if not vertex_jobs.has_labels(endpoint, labels):
            continue
        name, created = vertex_jobs.id_of(endpoint), vertex_jobs.seconds_of(endpoint.create_time)
        if not is_test(endpoint):
            if endpoint.deployed_models and not endpoint.traffic_split:
                kept.append(f"{name}: billed, without traffic; remove it with `deploy --undeploy`")
            continue
        users = [
            vertex_jobs.id_of(job)
            for job in jobs
            if vertex_jobs.state_of(job) not in ENDED
            and vertex_jobs.seconds_of(job.create_time) <= created
        ]
        left = f"{'billed, ' if endpoint.deployed_models else ''}left over from a step"
        if users:
            kept.append(f"{name}: the run {users[0]} may be using it for a test")
        elif created >= latest:
            kept.append(f"{name}: {left}; a shorter --older-than deletes it")
        else:
            items.append(deletions.endpoint_item(changes, endpoint.name, left))
    return items, kept
