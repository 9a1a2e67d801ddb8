"""Read the results of runs on this machine.

    run = run_history.load_by_name(pathlib.Path("runs"), "latest")
    run.state, run.metrics["accuracy"], run.parameters["epochs"]

A run writes run.json when it starts and summary.json when it ends. In between it holds a lock
on its folder, which distinguishes a running process from one that was killed.
"""

import contextlib
import dataclasses
import datetime
import fcntl
import json
import os
import pathlib
import re
import shlex
import time
from collections.abc import Iterator, Mapping
from typing import Any

from pipelines.json_files import read_json
from trainer import checked_json
from trainer.data import storage
from trainer.errors import InputError

RECORD_FILE_NAME = "run.json"
SUMMARY_FILE_NAME = "summary.json"
LATEST = "latest"
KILLED = "KILLED"
RUNNING = "RUNNING"
THIS_MACHINE = "this machine"
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class PastTask:
    """A task of a run."""

    name: str
    display_name: str
    state: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Summary:
    """The fields of a run's summary.json that commands read."""

    state: str
    tasks: list[PastTask]
    seconds: float | None = None
    metrics: dict[str, float] = dataclasses.field(default_factory=dict)
    validation: dict[str, float] = dataclasses.field(default_factory=dict)
    verdict: str = ""
    gate: dict[str, Any] = dataclasses.field(default_factory=dict)
    error: str = ""
    predictions: str | None = ""
    registered: str = ""
    registered_as: str = ""
    batch_predictions: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    report: str | None = None
    artifacts: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PastRun:
    """A run that has ended or is running."""

    name: str  # name of the run; on this machine, also of its folder
    place: str  # "this machine" or "Vertex AI"
    recipe: str  # name of the recipe
    # RUNNING, SUCCEEDED, FAILED, CANCELLED, or KILLED if the process ended without a summary; on
    # Vertex AI also PENDING and the like, and EXPIRED: `runs.find_expiry`.
    state: str
    started: datetime.datetime  # an aware datetime
    seconds: float | None = None  # time from start to end; None before the end
    # All parameters, including defaults.
    parameters: dict[str, Any] = dataclasses.field(default_factory=dict)
    # Metrics of the test split, by name.
    metrics: dict[str, float] = dataclasses.field(default_factory=dict)
    # Accuracy and loss of the validation split, and the epoch, whose weights the model has.
    validation: dict[str, float] = dataclasses.field(default_factory=dict)
    verdict: str = ""  # accepted, rejected or skipped; empty without a verdict
    reason: str = ""  # reason of the verdict
    error: str = ""  # error of a failed run, in one line
    training: str = ""  # URI of the training job's base_output_directory, which may not exist yet
    predictions: str = ""  # URI of the predictions of the test split; empty if none were kept
    link: str = ""  # path of its folder, or URL of its page in the console

    @property
    def on_vertex(self) -> bool:
        """Return True unless it is a run on this machine."""
        return self.place != THIS_MACHINE


def check_name(name: str) -> None:
    """Raise InputError for a name that a new run can't have."""
    if not _GIVEN_NAME.fullmatch(name):
        raise InputError(
            f"--name {name!r} is not up to 63 of a-z, 0-9 and -, starting with a letter"
        )


def list_runs(
    runs_directory: pathlib.Path, recipe: str = "", errors: list[str] | None = None
) -> list[PastRun]:
    """Return the runs of a folder, of one recipe or of all, the latest first.

    Adds an error for each run that can't be read to `errors`.
    """
    runs = []
    for record in sorted(runs_directory.glob(f"*/{RECORD_FILE_NAME}")):
        try:
            # `latest` is a link to one of the others.
            runs += [] if record.parent.is_symlink() else [load(record.parent)]
        except InputError as error:
            if errors is not None:
                errors.append(str(error))
    runs.sort(key=lambda run: (run.started, run.name), reverse=True)
    return [run for run in runs if recipe in ("", run.recipe)]


def load_by_name(runs_directory: pathlib.Path, name: str) -> PastRun:
    """Return a run by name; "latest" is the run that was started or resumed last."""
    if exists(runs_directory, name):
        return load((runs_directory / name).resolve())
    raise InputError(f"no run {name!r} in {runs_directory}; `python -m pipelines runs` lists them")


def is_local(runs_directory: pathlib.Path, name: str) -> bool:
    """Return True if `name` is a run in a folder on this machine, or "latest"."""
    return name == LATEST or exists(runs_directory, name)


def exists(runs_directory: pathlib.Path, name: str) -> bool:
    """Return True if a folder of runs has the run `name`."""
    return bool(_NAME.fullmatch(name)) and (runs_directory / name / RECORD_FILE_NAME).is_file()


def load(directory: pathlib.Path) -> PastRun:
    """Read the run of a folder; raise InputError if a file that describes it is damaged."""
    record = read_record(directory)
    try:
        started = datetime.datetime.fromisoformat(record.started).astimezone()
    except (ValueError, OverflowError):
        raise InputError(
            f"{directory / RECORD_FILE_NAME}: started={record.started!r} is not a time"
        ) from None
    # Check the lock first: a run writes its summary before it releases the lock.
    state = RUNNING if is_running(directory) else KILLED
    summary = read_json(directory / SUMMARY_FILE_NAME, Summary) or Summary(state=state, tasks=[])
    return PastRun(
        name=directory.name,
        place=THIS_MACHINE,
        recipe=record.recipe,
        state=summary.state,
        started=started,
        seconds=summary.seconds,
        parameters=record.parameters,
        metrics=summary.metrics,
        validation=summary.validation,
        verdict=summary.verdict,
        reason=str(summary.gate.get("reason", "")),
        error=summary.error,
        training=record.parameters.get("resume_from")
        or f"{artifacts_of(record, directory)}/plan-training/training",
        predictions=summary.predictions or "",
        link=str(directory),
    )


def select_validation(training: Mapping[str, float]) -> dict[str, float]:
    """Return accuracy, loss and epoch of the model in validation from the metrics of a training."""
    if "validation_accuracy" not in training:
        return {}
    names = ("validation_accuracy", "validation_loss", "kept_epoch")
    return dict(zip(("accuracy", "loss", "epoch"), map(training.__getitem__, names), strict=True))


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
    text = json.dumps(content, indent=1) + "\n"
    storage.write_atomically(str(directory / RECORD_FILE_NAME), text.encode())


def is_running(directory: pathlib.Path) -> bool:
    """Return True if a process holds the lock of a run's folder."""
    try:
        with (directory / _LOCK_FILE_NAME).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


@contextlib.contextmanager
def locked(directory: pathlib.Path) -> Iterator[int]:
    """Hold the lock of a run's folder; yield its file descriptor, which a child may inherit.

    Raises InputError if another process holds it and does not release it within seconds.
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
                    raise InputError(
                        f"{directory.name} is still running; wait for its end, or cancel it first"
                    ) from None
                time.sleep(_POLL_SECONDS)
        yield descriptor
    finally:
        os.close(descriptor)
