"""Lines of a run's replicas from Cloud Logging."""

import json
import re
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from pipelines.console import print_plain
from pipelines.vertex import runs
from pipelines.vertex.connection import CONSOLE, Connection
from pipelines.vertex.errors import CloudError, is_capacity, translated
from trainer.errors import InputError

_REPLICA = re.compile(r"\b(workerpool[0-9]+-[0-9]+)\b")
_SHOWN_AFTER_FAILURE = 20


def replica_in(message: str) -> str:
    """The replica that an error names, such as workerpool1-0; empty if it names none."""
    match = _REPLICA.search(message)
    return match.group(1) if match else ""


def lines(connection: Connection, job_id: str, replica: str = "", limit: int = 50) -> list[str]:
    """The last lines that a job's replicas wrote, oldest first.

    Args:
        job_id: of a CustomJob.
        replica: workerpool<pool>-<index>; empty: of all.
        limit: how many lines.

    Raises:
        CloudError: Cloud Logging refused or can't be reached.
    """
    terms = ['resource.type="ml_job"', f'resource.labels.job_id="{job_id}"']
    if replica:
        terms.append(f'resource.labels.task_name="{replica}"')
    body = {
        "resourceNames": [f"projects/{connection.settings.project}"],
        "filter": " AND ".join(terms),
        "orderBy": "timestamp desc",
        "pageSize": limit,
    }
    with translated("reading logs"):
        entries = connection.rest("logging", "POST", "v2/entries:list", body).get("entries", [])
    return [_line(entry, with_replica=not replica) for entry in reversed(entries[:limit])]


def source_of(connection: Connection, job: Any, jobs: Sequence[Any]) -> tuple[str, str]:
    """Where the lines about a run's failure, or else of its training, are: job_id and replica.

    Raises:
        InputError: nothing of the run has logged anything yet.
    """
    import datetime

    tasks = runs.tasks_of(job, datetime.datetime.now(datetime.timezone.utc))
    failed_jobs = [one for one in jobs if one.error.message]
    for custom_job in [*reversed(failed_jobs), *reversed(jobs)]:
        if failed_jobs or not any(task.state == "FAILED" for task in tasks):
            return runs.id_of(custom_job), replica_in(custom_job.error.message)
    logged = [task for task in tasks if task.logged_as]
    failed = [task for task in logged if task.state == "FAILED"]
    if not logged:
        raise InputError(f"nothing of the run {runs.id_of(job)!r} has logged anything yet")
    return (failed or logged)[-1].logged_as, ""


def show(console: Console, text: Sequence[str]) -> None:
    """Prints log lines as they are."""
    for line in text:
        print_plain(console, line)


def lack_machines(connection: Connection, job: Any) -> bool:
    """Whether a run that started no training job has logged that there are no such machines.

    Where Vertex AI refuses the job, its launcher ends with a stack trace, and the task's error
    tells no more than that.
    """
    try:
        job_id, replica = source_of(connection, job, [])
        text = lines(connection, job_id, replica, _SHOWN_AFTER_FAILURE)
    except (CloudError, InputError):
        return False
    return any(is_capacity(line) for line in text)


def show_failure(connection: Connection, job: Any, jobs: Sequence[Any], console: Console) -> None:
    """The failing replica's last lines, if they can be had; where to see them all."""
    try:
        job_id, replica = source_of(connection, job, jobs)
        text = lines(connection, job_id, replica, _SHOWN_AFTER_FAILURE)
    except (CloudError, InputError) as error:
        show(console, [f"logs      {error}"])
        return
    show(console, [f"  {line}" for line in text])
    show(console, [f"logs      {link(connection, job_id)}"])


def link(connection: Connection, job_id: str) -> str:
    """The console's page of a job's log."""
    query = f'resource.labels.job_id%3D"{job_id}"'
    return f"{CONSOLE}/logs/query;query={query}?project={connection.settings.project}"


def _line(entry: dict[str, Any], *, with_replica: bool) -> str:
    payload = entry.get("jsonPayload", {})
    message = payload.get("message") or entry.get("textPayload") or json.dumps(payload)
    name = entry.get("resource", {}).get("labels", {}).get("task_name", "")
    return f"{name}: {message.rstrip()}" if with_replica and name else message.rstrip()
