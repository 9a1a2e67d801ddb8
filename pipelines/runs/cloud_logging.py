"""Log lines of a run's replicas, from Cloud Logging."""

import datetime
import json
import re
from typing import Any

from pipelines.project.connection import Connection, console_link
from pipelines.runs.failures import is_noise
from pipelines.runs.run import Run, to_role
from vertex.client.cloud_errors import CloudError, translated
from vertex.errors import InputError
from vertex.facts.jobs import ROLES

_REPLICA = re.compile(r"\b(workerpool[0-9]+-[0-9]+)\b")
_SHOWN_AFTER_FAILURE = 20
_MARGIN = datetime.timedelta(hours=1)
"""Margin for clock skew between replicas and Vertex AI, and for lines that arrive late."""


def fetch_lines(
    connection: Connection,
    run: Run,
    job_id: str,
    replica: str = "",
    limit: int = 50,
    *,
    noise: bool = False,
) -> list[str]:
    """Return the last log lines of a run's job, from one replica or all, oldest first.

    Leaves out runtime noise unless `noise`.
    """
    # Cloud Logging searches slowly without bounds.
    terms = [
        'resource.type="ml_job"',
        f'resource.labels.job_id="{job_id}"',
        f'timestamp>="{(run.started - _MARGIN).isoformat()}"',
    ]
    if run.seconds is not None:
        end = run.started + datetime.timedelta(seconds=run.seconds)
        terms.append(f'timestamp<="{(end + _MARGIN).isoformat()}"')
    if replica:
        terms.append(f'resource.labels.task_name="{replica}"')
    body = {
        "resourceNames": [f"projects/{connection.settings.project}"],
        "filter": " AND ".join(terms),
        "orderBy": "timestamp desc",
        "pageSize": limit,
    }
    entries: list[dict[str, Any]] = []
    with translated("reading logs"):
        while len(entries) < limit:
            page = connection.call_api("logging", "POST", "v2/entries:list", body)
            found = page.get("entries", [])
            entries += [entry for entry in found if noise or not is_noise(_text_of(entry))]
            # A page may be empty although later pages are not.
            if not page.get("nextPageToken"):
                break
            body["pageToken"] = page["nextPageToken"]
    return [_format_entry(entry, with_replica=not replica) for entry in reversed(entries[:limit])]


def fetch_progress(connection: Connection, run: Run, job_id: str) -> dict[str, str]:
    """Return the last line of each replica of a run's training job, by name, such as chief-0."""
    lines = (line.partition(": ") for line in fetch_lines(connection, run, job_id, limit=100))
    return {to_role(replica): text for replica, _, text in lines if text}


def find_source(run: Run) -> tuple[str, str]:
    """Return the job whose log explains a run's failure, or else the job that trains.

    Returns:
        The ID of a CustomJob, or of the job that Vertex AI runs a task as, and the replica that
        failed; the replica is empty if the error names none.
    """
    failed_jobs = [job for job in run.jobs if job.error]
    if run.jobs and (failed_jobs or not any(task.state == "FAILED" for task in run.tasks)):
        job = (failed_jobs or run.jobs)[-1]
        match = _REPLICA.search(job.error)
        return job.name.rpartition("/")[2], match[1] if match else ""
    logged = [task for task in run.tasks if task.logged_as]
    failed = [task for task in logged if task.state == "FAILED"]
    if not logged:
        raise InputError(f"no task of the run {run.name!r} has logged anything yet")
    return (failed or logged)[-1].logged_as, ""


def fetch_failure_lines(connection: Connection, run: Run) -> tuple[list[str], str]:
    """Return a failed run's last lines and a link to all of them, or no lines and the reason."""
    try:
        job_id, replica = find_source(run)
        text = fetch_lines(connection, run, job_id, replica, _SHOWN_AFTER_FAILURE)
        return text, link(connection, job_id)
    except (CloudError, InputError) as error:
        return [], str(error)


def to_task_name(replica: str) -> str:
    """Return a replica's name in Cloud Logging, workerpool0-0 for chief-0; empty for "all"."""
    role, _, index = replica.rpartition("-")
    return (
        f"workerpool{ROLES.index(role)}-{index}" if role in ROLES else replica.removeprefix("all")
    )


def link(connection: Connection, job_id: str) -> str:
    """Return the URL of a job's log in the console."""
    query = f"logs/query;query=resource.labels.job_id%3D%22{job_id}%22"
    return console_link(connection.settings, query)


def _format_entry(entry: dict[str, Any], *, with_replica: bool) -> str:
    name = entry.get("resource", {}).get("labels", {}).get("task_name", "")
    return f"{name}: {_text_of(entry)}" if with_replica and name else _text_of(entry)


def _text_of(entry: dict[str, Any]) -> str:
    payload = entry.get("jsonPayload", {})
    message = payload.get("message") or entry.get("textPayload") or payload
    return (message if isinstance(message, str) else json.dumps(message)).rstrip()
