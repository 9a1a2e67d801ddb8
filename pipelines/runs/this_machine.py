"""Runs on this machine, in a folder of runs."""

import dataclasses
import pathlib
from collections.abc import Iterator
from typing import Any

from pipelines.runs import failures, run_folders
from pipelines.runs.run import (
    ENDED,
    KILLED,
    Run,
    SearchTrial,
    TrainingJob,
    read_job,
    read_trials,
    to_role,
)
from vertex.emulator import files, job_state
from vertex.errors import InputError

_TAIL_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True)
class LocalRuns:
    """The runs of a folder."""

    folder: pathlib.Path

    def fetch(self, name: str) -> Run:
        """Return a run, with its tasks and jobs; raise InputError if there is none of this name."""
        directory = run_folders.find(self.folder, name)
        run = run_folders.load(directory)
        _check_jobs(run, directory)
        return dataclasses.replace(
            run, jobs=tuple(read_jobs(directory)), trials=read_search(directory)
        )

    def cancel(self, name: str) -> None:
        """Ask a run to end; raise InputError if it has ended."""
        run = run_folders.load_by_name(self.folder, name)
        if run.state in (*ENDED, KILLED):
            raise InputError(f"the run {run.name!r} has already ended: {run.state}")
        (pathlib.Path(run.link) / run_folders.CANCEL_FILE_NAME).touch()

    def read_log(self, run: Run, replica: str | None, count: int) -> list[str]:
        """Return the last log lines of a replica, such as chief-0 or workerpool0-0, or of "all".

        If no replica is given, return those of the replica or task that failed, else of the chief,
        without the runtime's own messages.
        """
        directory = pathlib.Path(run.link)
        shown = []
        logs = _choose_logs(directory, run, replica)
        for log in logs:
            lines = [line for line in failures.read_tail(log, _TAIL_BYTES) if line.strip()]
            if replica is None:
                lines = list(failures.remove_noise(lines))
            prefix = f"{log.stem}: " if len(logs) > 1 else ""
            shown += [f"{prefix}{line}" for line in lines[-count:]]
        return shown if logs else [f"no log lines yet: {directory / 'logs'}"]

    def job_lines(self, job: TrainingJob) -> list[str]:
        """Return no lines: the machines of a job are this one."""
        return []

    def cost_lines(self, run: Run) -> list[str]:
        """Return no lines: a run on this machine costs nothing."""
        return []

    def resume_command(self, run: Run) -> str:
        """Return the command line that resumes a run."""
        return run_folders.resume_command(pathlib.Path(run.link))


def read_jobs(directory: pathlib.Path) -> Iterator[TrainingJob]:
    """Yield the training jobs of the last attempt of a run, oldest first."""
    paths = sorted(directory.glob(f"logs/*/{job_state.FILE_NAME}"))
    found = [(path, job_state.read(path.parent)) for path in paths]
    for path, file in sorted(found, key=lambda item: str(item[1].job.get("createTime", ""))):
        with files.named(path):
            yield files.check_types(read_job({"name": "", **file.job}, file.replicas))


def read_search(directory: pathlib.Path) -> tuple[SearchTrial, ...]:
    """Return the trials of a run's search, if it has one.

    Raise InputError if their file is damaged, or missing beside the folders of the trials.
    """
    files_of_search = (job_state.TUNING_FILE_NAME, "trial-*")
    folders = {path.parent for name in files_of_search for path in directory.glob(f"logs/*/{name}")}
    for path in (folder / job_state.TUNING_FILE_NAME for folder in sorted(folders)):
        with files.named(path):
            return tuple(map(files.check_types, read_trials(job_state.read_message(path))))
    return ()


def _check_jobs(run: Run, directory: pathlib.Path) -> None:
    """Raise InputError for the job.json of a job that a task of another run has launched."""
    for task in run.tasks:
        folder = directory / "logs" / task.name.replace("/", ".")
        path = folder / job_state.FILE_NAME
        if task.custom_jobs and path.exists():
            name = job_state.read(folder).job.get("name")
            if name not in task.custom_jobs:
                raise InputError(
                    f"{path} belongs to {name}, which is not a job of {run.name}; restore the "
                    "file, or remove it"
                )


def read_batches(run: Run) -> list[dict[str, Any]]:
    """Return the entries of a run's summary.json about its batch predictions.

    Raise InputError if the file is damaged.
    """
    path = pathlib.Path(run.link) / run_folders.SUMMARY_FILE_NAME
    return (run_folders.read_json(path, dict[str, Any]) or {}).get("batch_predictions", [])


def _choose_logs(directory: pathlib.Path, run: Run, replica: str | None) -> list[pathlib.Path]:
    replicas = [state for job in run.jobs for state in job.replicas]
    if replica == "all":
        return [state.log for state in replicas]
    if replica is not None:
        name = to_role(replica)
        if not run.jobs:
            raise InputError(f"{run.name} has no training job, and so no replica {replica!r}")
        run.jobs[-1].check_replica(name, run.name)
        return [state.log for state in replicas if state.name == name][-1:]
    failed = [state.log for state in replicas if state.state == "FAILED"]
    failed += [
        directory / "logs" / f"{task.name.replace('/', '.')}.log"
        for task in run.tasks
        if task.state == "FAILED"
    ]
    return [*failed, *(state.log for state in replicas)][:1]
