"""Extract a process's progress, warnings and error from its log, and a run's failure from all."""

import dataclasses
import os
import pathlib
import re
import shutil
import signal
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from vertex.errors import EXIT_CODE, RETRY_EXIT_CODE, escape_controls
from vertex.formats import size

if TYPE_CHECKING:
    from vertex.emulator.engine.pipeline_run import PipelineRun, Task
    from vertex.emulator.replica_process import Replica

LAST_LINES = 20
_ERROR_LINES = 30
"""Number of lines at the end of a log that are searched for the error of a full disk, or for lack
of memory or threads. A stack trace of C++ has 20."""

_TAIL_BYTES = 65536
_INPUT_ERROR = re.compile(r"(?:[\w.]+\.)?InputError: (.+)")
_USAGE_ERROR = re.compile(r"error: (.+)")
_WARNING = re.compile(r"warning: (.+)")
_EXECUTOR = "[KFP Executor"
_CRASHES = ("SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV")
_REMEDIES = {
    "SIGKILL": ", most often for lack of memory; free memory and run it again",
    "SIGTERM": " from outside this run; run it again",
}
_SEE_LOG = "; its log shows what it did last"
_TRACEBACK = "Traceback (most recent call last):"

# Runtime noise that shows no progress: lines of glog, absl, gRPC and kfp's executor.
_NOISE = re.compile(
    r"[IWE]\d{4} |WARNING: All log messages|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IWE] "
    r"|To enable the following instructions|\[KFP Executor|(?:INFO|WARNING):"
    r"|<frozen runpy>|--- restart |Additional GRPC error|:UNKNOWN:|To disable this warning"
)
_SHORTAGES = {
    r"pthread_create\(\) failed|can't start new thread|Resource temporarily unavailable": (
        "it could not start a thread; raise the limit of processes (ulimit -u, or --pids-limit of "
        "a container) or of memory (ulimit -v), or use fewer replicas"
    ),
    r"bad_alloc|MemoryError|Cannot allocate memory|failed to map segment|OOM when allocating": (
        "it ran out of memory; free memory, raise its limit (ulimit -v), lower batch_size, or use "
        "fewer replicas"
    ),
}
"""Meaning of an error of TensorFlow, Python or the operating system, and the remedy."""

_FULL = re.compile(r"No space left on device|Disk quota exceeded")
_PATH = re.compile(r"/[^\s'\"(),;]+")
_NO_PROGRESS = re.compile(f"{_NOISE.pattern}|{_USAGE_ERROR.pattern}")


@dataclasses.dataclass(frozen=True)
class Failure:
    """The failure that ended a run."""

    message: str  # in one line
    log: pathlib.Path | None = None  # of the process that failed; None if no process failed
    is_complete: bool = True  # the message says all, so that lines of the log would not help


def find_failure(run: "PipelineRun", error: str) -> Failure:
    """Return why a run failed; `error` is the engine's own exception as text, if any."""
    task = run.failed
    failure = _find_reason(run, task) if task else Failure(error or "a group of tasks failed")
    lines = [failure.message, *(read_tail(failure.log)[-_ERROR_LINES:] if failure.log else [])]
    text = "\n".join(lines)
    shortages = (meaning for error, meaning in _SHORTAGES.items() if re.search(error, text))
    if full := find_full_disk(lines, run.folder):
        failure = Failure(full, failure.log)
    elif shortage := next(shortages, ""):
        # A log shows no more than where in C++ the process ended.
        what = failure.message.removesuffix(_SEE_LOG).rstrip(".")
        failure = Failure(f"{what}: {shortage}", failure.log)
    name = f"{task.display_name}: " if task else ""
    return dataclasses.replace(failure, message=f"{name}{failure.message}")


def explain(run: "PipelineRun") -> str:
    """Return why a run failed, from the logs of its tasks."""
    return find_failure(run, "").message


def _find_reason(run: "PipelineRun", task: "Task") -> Failure:
    jobs = run.processes.jobs_of(task.path)
    if jobs and jobs[-1].error:
        replica = jobs[-1].failed_replica
        if not replica:
            return Failure(jobs[-1].error, task.log)
        user_error = find_user_error(replica.log, replica.returncode)
        message = user_error or _describe_kill(replica) or jobs[-1].error
        return Failure(message, replica.log, bool(user_error))
    if not jobs and (refusal := run.processes.find_refusal(task.path)):
        return Failure(f"the job was refused: {refusal}", task.log)
    ending = describe_end(task.returncode)
    if jobs and jobs[-1].state == "CANCELLED":
        ending = ending or describe_end(-signal.SIGTERM)
        return Failure(f"its job was cancelled, since the job's launcher {ending}", task.log)
    if ending:
        return Failure(f"the step {ending}", task.log, not ending.startswith("crashed"))
    message = find_user_error(task.log, task.returncode)
    last = read_last_lines(task.log, 1) or [task.error or "failed"]
    return Failure(message or last[0], task.log, bool(message))


def _describe_kill(replica: "Replica") -> str:
    """Return a message about the signal that ended a replica; empty if none did."""
    ending = describe_end(replica.returncode)
    if not ending or replica.returncode == RETRY_EXIT_CODE:
        return ""
    starts = f", started {replica.starts} times," if replica.starts > 1 else ""
    return f"{replica.role} {replica.index}{starts} {ending}"


def read_tail(log: pathlib.Path, size: int = _TAIL_BYTES) -> list[str]:
    """Return the last whole lines of a log, at most `size` bytes; [] if the log can't be read.

    A carriage return overwrites its line, as on a terminal; other control characters are escaped.
    """
    if not log.is_file():  # Opening a named pipe would wait for a writer.
        return []
    try:
        with log.open("rb") as file:
            start = max(0, file.seek(0, 2) - size)
            file.seek(start)
            lines = file.read().decode(errors="replace").replace("\r\n", "\n").split("\n")
    except OSError:
        return []
    return [escape_controls(line.rsplit("\r", 1)[-1]) for line in (lines[1:] if start else lines)]


def read_progress(log: pathlib.Path) -> str:
    """Return the last line in which a process reports its progress; empty if there is none."""
    lines = read_tail(log, 4096)
    if any(_TRACEBACK in line for line in lines):
        return ""
    for line in reversed(lines):
        text = line.strip()
        if text and line[:1] not in " {}[]\t" and not _NO_PROGRESS.match(text):
            return text
    return ""


def find_user_error(log: pathlib.Path, returncode: int | None) -> str:
    """Return the message of the InputError that ended the process; empty if none did.

    Recognize both forms: `error: message` with exit code 2, from a command line, and the last
    line of a traceback, from a component that did not catch the InputError.
    """
    lines = [line.strip() for line in read_tail(log) if line.strip()]
    for line in reversed(lines[-5:]):
        match = _INPUT_ERROR.fullmatch(line)
        if not match and returncode == EXIT_CODE:
            match = _USAGE_ERROR.fullmatch(line)
        if match:
            return match[1]
    return ""


def describe_end(returncode: int | None) -> str:
    """Describe the signal that ended a process, and what to do about it; empty if none did."""
    if returncode is None:
        return ""
    # A shell, and a container's engine, report signal n as the status 128 + n.
    number = -returncode if returncode < 0 else returncode - 128
    if number not in list(signal.Signals):
        return ""
    name = signal.Signals(number).name
    if name in _CRASHES:
        return f"crashed with {name}{_SEE_LOG}"
    return f"was ended by {name}{_REMEDIES.get(name, '; run it again')}"


def find_warnings(log: pathlib.Path) -> list[str]:
    """Return the messages of the lines `warning: message` at the end of a log."""
    found = (_WARNING.fullmatch(line.strip()) for line in read_tail(log))
    return [match[1] for match in found if match]


def read_last_lines(log: pathlib.Path, count: int = LAST_LINES) -> list[str]:
    """Return the last non-empty lines of a log, with only the exceptions of tracebacks."""
    kept = []
    in_traceback = False
    for line in remove_noise(read_tail(log)):
        if line.endswith(_TRACEBACK):
            in_traceback = True
        elif not in_traceback or not line[:1].isspace():
            in_traceback = False
            kept.append(line)
    return kept[-count:]


def remove_noise(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines without empty ones, runtime noise and the inputs that KFP prints as JSON."""
    in_inputs = False
    for line in lines:
        in_inputs = line.startswith(_EXECUTOR) or (in_inputs and line[:1] in ("", " ", "{", "}"))
        if not in_inputs and not is_noise(line):
            yield line.rstrip()


def is_noise(line: str) -> bool:
    """Return True for an empty line and one of runtime noise, which no user acts on."""
    return not line.strip() or bool(_NOISE.match(line))


def find_full_disk(lines: Iterable[str], directory: pathlib.Path) -> str:
    """Return a message that names the full disk; empty if no line reports one.

    If the line names no file, the disk is that of the run's folder, `directory`.
    """
    line = next((line for line in lines if _FULL.search(line)), "")
    if not line:
        return ""
    named = _PATH.search(line)
    path = pathlib.Path(named[0]) if named else directory
    disk = next(folder for folder in (path, *path.parents) if os.path.ismount(folder))
    written = sum(file.lstat().st_size for file in directory.rglob("*") if file.is_file())
    free = shutil.disk_usage(disk).free
    return (
        f"the disk of {disk} is full: the run has written {size(written)}, and its next file "
        f"needs more than the {size(free)} that is free; free some space and run it again"
    )
