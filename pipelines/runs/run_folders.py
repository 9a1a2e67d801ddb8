"""Read the results of runs on this machine.

    run = run_folders.load_by_name(pathlib.Path("runs"), "latest")
    run.state, run.metrics["accuracy"], run.parameters["epochs"]

A run writes run.json when it starts, its PipelineJob to pipeline_job.json whenever a task starts
or ends, and summary.json when it ends. In between it holds a lock on its folder, which
distinguishes a running process from one that was killed.
"""

import contextlib
import dataclasses
import datetime
import fcntl
import os
import pathlib
import re
import shlex
import time
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from pipelines.runs.run import (
    ENDED,
    KILLED,
    PLAN,
    RUNNING,
    THIS_MACHINE,
    TRAINING,
    Run,
    read_run,
    state_of,
)
from trainer.data import storage
from vertex import checked_json
from vertex.emulator import files
from vertex.emulator.job_state import is_locked
from vertex.errors import InputError

T = TypeVar("T")

RECORD_FILE_NAME = "run.json"
JOB_FILE_NAME = "pipeline_job.json"
SUMMARY_FILE_NAME = "summary.json"
REPORT_FILE_NAME = "report.html"
SEARCH_FILE_NAME = "search.html"
CANCEL_FILE_NAME = "cancel"
"""File in a run's folder by which another process cancels it."""
LATEST = "latest"
_LOCK_FILE_NAME = ".lock"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_GIVEN_NAME = re.compile(r"[a-z][a-z0-9-]{0,62}")
"""Vertex AI's form, so that a name is valid there and on this machine."""
_LOCK_SECONDS = 5.0
_POLL_SECONDS = 0.05


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunRecord:
    """The recipe, parameters and options that a run was started with: the content of run.json."""

    recipe: str  # name of the recipe, and of the YAML in the run's folder
    parameters: dict[str, Any]  # all parameters, including defaults
    started: str  # time in RFC 3339, in UTC
    package: str  # SHA-256 of the YAML
    cache: bool = True  # reuse outputs of earlier runs
    in_containers: bool = False  # run components and replicas in containers
    root: str = ""  # gs:// folder of the artifacts; empty: they are in the run's folder
    code: str = ""  # digest of the code that its steps run


def read_json(path: pathlib.Path, form: type[T]) -> T | None:
    """Read a JSON file into a dataclass; return None if there is no file.

    Raise InputError if the file is damaged, or of another version of this project.
    """
    try:
        return files.read_checked(path, form)
    except FileNotFoundError:
        return None


def check_name(name: str) -> None:
    """Raise InputError for a name that a new run can't have."""
    if not _GIVEN_NAME.fullmatch(name):
        raise InputError(
            f"--name {name!r}: names may have up to 63 characters: a-z, 0-9, -, the first a letter"
        )


def list_runs(runs_directory: pathlib.Path, recipe: str, errors: list[str]) -> list[Run]:
    """Return the runs of a folder, of one recipe or, if it is empty, of all, the latest first.

    Adds an error for each run that can't be read to `errors`.
    """
    runs = []
    written = (RECORD_FILE_NAME, JOB_FILE_NAME)
    folders = {path.parent for name in written for path in runs_directory.glob(f"*/{name}")}
    for folder in sorted(folders):
        try:
            # `latest` is a link to one of the others.
            runs += [] if folder.is_symlink() else [load(folder)]
        except InputError as error:
            errors.append(str(error))
    runs.sort(key=lambda run: (run.started, run.name), reverse=True)
    return [run for run in runs if recipe in ("", run.recipe)]


def find(runs_directory: pathlib.Path, name: str) -> pathlib.Path:
    """Return the folder of a run by name; "latest" is the run that was started or resumed last."""
    if exists(runs_directory, name):
        return (runs_directory / name).resolve()
    raise InputError(
        f"no run {name!r} in {runs_directory}; `python -m pipelines runs` lists the runs"
    )


def load_by_name(runs_directory: pathlib.Path, name: str) -> Run:
    """Return a run by name, as `find` takes it."""
    return load(find(runs_directory, name))


def is_local(runs_directory: pathlib.Path, name: str) -> bool:
    """Return True if `name` is a run in a folder on this machine, or "latest"."""
    return name == LATEST or exists(runs_directory, name)


def exists(runs_directory: pathlib.Path, name: str) -> bool:
    """Return True if a folder of runs has the run `name`."""
    return bool(_NAME.fullmatch(name)) and (runs_directory / name / RECORD_FILE_NAME).exists()


def load(directory: pathlib.Path) -> Run:
    """Read the run of a folder.

    Raise InputError if a file that describes it is damaged.
    """
    record = read_record(directory)
    # Check the lock first: a run writes its state before it releases the lock.
    unfinished = RUNNING if is_locked(directory) else KILLED
    path = directory / JOB_FILE_NAME
    job = read_json(path, dict[str, Any])
    if job is None and (directory / SUMMARY_FILE_NAME).exists():
        raise InputError(
            f"{directory} has no {JOB_FILE_NAME}: another version of this project wrote it, or the "
            "file was lost; restore it, or remove the folder"
        )
    if job is None:
        return Run(state=unfinished, **_describe_folder(record, directory))
    _check_start(path, job.get("createTime"), record)
    with files.named(path):
        job = _relocate(job, record, directory)
        return files.check_types(as_run(job, record, directory, unfinished=unfinished))


def _relocate(job: dict[str, Any], record: RunRecord, directory: pathlib.Path) -> dict[str, Any]:
    """Return a job with the present paths of files, if its folder of runs has been moved."""
    artifacts = job.get("runtimeConfig", {}).get("gcsOutputDirectory", "")
    written, present = pathlib.PurePath(artifacts).parent, directory.resolve()
    if record.root or not artifacts or written == present:
        return job
    for old, new in ((written, present), (written.parent, present.parent)):
        job = files.replace_text(job, f"{old}/", f"{new}/")
    return job


def as_run(
    job: Mapping[str, Any],
    record: RunRecord,
    directory: pathlib.Path,
    *,
    unfinished: str = RUNNING,
) -> Run:
    """Return the run of a folder, given its PipelineJob as JSON."""
    state = state_of(job)
    run = read_run(
        job,
        state=state if state in ENDED else unfinished,
        error=job.get("error", {}).get("message", "") if state == "FAILED" else "",
        **_describe_folder(record, directory),
    )
    copy = directory / REPORT_FILE_NAME
    return dataclasses.replace(run, report=str(copy)) if copy.is_file() else run


def _describe_folder(record: RunRecord, directory: pathlib.Path) -> dict[str, Any]:
    """Return the fields of a Run that its folder and run.json determine."""
    try:
        started = datetime.datetime.fromisoformat(record.started).astimezone()
    except (ValueError, OverflowError):
        raise InputError(
            f"{directory / RECORD_FILE_NAME}: started={record.started!r} is not a time"
        ) from None
    return {
        "name": directory.name,
        "backend": THIS_MACHINE,
        "link": str(directory),
        "recipe": record.recipe,
        "started": started,
        "parameters": record.parameters,
        "training": training_of(record, directory),
        "artifacts": artifacts_of(record, directory),
    }


def _check_start(path: pathlib.Path, started: Any, record: RunRecord) -> None:
    """Raise InputError if a run with another start than that of run.json wrote a file beside it."""
    if started != record.started:
        raise InputError(
            f"{path} and {RECORD_FILE_NAME} beside it belong to different runs, started "
            f"{started!r} and {record.started!r}; restore the one that was replaced"
        )


def training_of(record: RunRecord, directory: pathlib.Path) -> str:
    """Return the folder of a run's training job, which may not exist yet."""
    resumed = record.parameters.get("resume_from")
    return resumed or f"{artifacts_of(record, directory)}/{PLAN}/{TRAINING}"


def resume_command(directory: pathlib.Path) -> str:
    """Return the command line that resumes a run on this machine."""
    elsewhere = directory_flag(directory.parent)
    return f"python -m pipelines run {directory.name} --local --resume{elsewhere}"


def directory_flag(runs_directory: pathlib.Path) -> str:
    """Return the flag of a command about runs in a folder, with a space before it."""
    folder = os.path.relpath(runs_directory)
    return "" if folder == "runs" else f" --runs-directory {shlex.quote(folder)}"


def read_record(directory: pathlib.Path) -> RunRecord:
    """Read run.json; raise InputError if it is missing or damaged."""
    record = read_json(directory / RECORD_FILE_NAME, RunRecord)
    if record is None:
        raise InputError(f"{directory} is not the folder of a run: it has no {RECORD_FILE_NAME}")
    return record


def artifacts_of(record: RunRecord, directory: pathlib.Path) -> str:
    """Return the path or URI of the folder of a run's artifacts."""
    return f"{record.root}/{directory.name}" if record.root else str(directory / "artifacts")


def write_record(record: RunRecord, directory: pathlib.Path) -> None:
    """Write run.json atomically."""
    content = checked_json.with_checksum(dataclasses.asdict(record))
    storage.write_json(str(directory / RECORD_FILE_NAME), content)


@contextlib.contextmanager
def locked(
    directory: pathlib.Path,
    problem: str = "",
    remedy: str = "wait for its end, or cancel it first",
) -> Iterator[int]:
    """Hold the lock of a folder; yield its file descriptor, which children inherit.

    Raises InputError if another process holds it and does not release it within seconds. By default
    the `problem` is that the run of this folder is still running.
    """
    descriptor = os.open(directory / _LOCK_FILE_NAME, os.O_RDWR | os.O_CREAT, 0o644)
    deadline = time.monotonic() + _LOCK_SECONDS
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    holders = ", ".join(_list_holders(directory / _LOCK_FILE_NAME))
                    problem = problem or f"{directory.name} is still running"
                    by = holders and f" (process {holders})"
                    raise InputError(f"{problem}{by}; {remedy}") from None
                time.sleep(_POLL_SECONDS)
        yield descriptor
    finally:
        os.close(descriptor)


def _list_holders(lock: pathlib.Path) -> list[str]:
    """Return the IDs of the processes that have a file open; none on a system without /proc."""
    holders = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        # Processes of other users, and those that end now, are left out.
        with contextlib.suppress(OSError):
            if str(lock.resolve()) in map(os.readlink, (process / "fd").iterdir()):
                holders.append(process.name)
    return holders
