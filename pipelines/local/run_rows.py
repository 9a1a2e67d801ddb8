"""The rows of a run on this machine: its tasks, and below a job's the replicas."""

import re
from collections.abc import Iterator

from pipelines.emulator.custom_job import CustomJob
from pipelines.emulator.restart_rules import MAX_RESTARTS
from pipelines.local.failures import progress
from pipelines.local.run_state import Board, seconds_between
from pipelines.run_view import STARTING, Row


def rows_of(board: Board, jobs: list[CustomJob]) -> Iterator[Row]:
    """Yield a row of every task, and below a job's of its replicas."""
    waiting = list(jobs)
    for task in list(board.tasks.values()):
        text = progress(task.log) or STARTING if task.state == "RUNNING" else ""
        own = [job for job in waiting if job.launched_by == task.key]
        if own:
            text = ""
        yield task.display_name, task.state, task.seconds, text
        for job in own:
            yield from _replica_rows(job, f"{board.folder}/")


def _replica_rows(job: CustomJob, folder: str) -> Iterator[Row]:
    for replica in job.replicas:
        name = f"{replica.role} {replica.index}"
        text = progress(replica.log) if replica.state != "FAILED" else ""
        text = re.sub(rf"^({name}:? |{replica.role}: )", "", text)
        if replica.state == "STOPPED" and "told to stop" not in text:
            text = "shut down with the job"
        elif replica.state == "RUNNING" and replica is job.replicas[0] and not text:
            others = len(job.replicas) - 1
            text = "starting: loads TensorFlow"
            if others:
                text += (
                    f", then waits for the other {f'{others} replicas' if others > 1 else 'one'}"
                )
        if replica.restarts and replica.state != "STOPPED":
            text = f"restart {replica.restarts} of {MAX_RESTARTS}  {text}".rstrip()
        # Its own folder stands above the table.
        seconds = seconds_between(replica.started, replica.ended)
        yield f"  {name}", replica.state, seconds, text.replace(folder, "")
