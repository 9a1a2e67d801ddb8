"""Show a run on this machine: its status, its results and its logs."""

import pathlib
import textwrap
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rich.text import Text

from pipelines import run_history
from pipelines.console import Console, print_error, say, shorten_path
from pipelines.json_files import read_json
from pipelines.local import failures
from trainer.data.storage import is_object
from trainer.errors import InputError
from trainer.evaluation.gate_options import CANDIDATE
from trainer.formats import decimal
from trainer.training.cluster import ROLES
from vertex_emulator import job_state

if TYPE_CHECKING:
    from pipelines.local.run_state import RunState

_COLORS = {"SUCCEEDED": "bold green", "FAILED": "bold red", "CANCELLED": "bold yellow"}
_TAIL_BYTES = 1 << 20
_HEADLINE = ("accuracy", "f1", "roc_auc", "log_loss", "expected_calibration_error")
_NO_BREAK = "\xa0"
"""A non-breaking space."""


def show_status(folder: pathlib.Path, name: str) -> None:
    """Print a run's state, its tasks and replicas, and its result."""
    run = run_history.load_by_name(folder, name)
    directory = pathlib.Path(run.link)
    say(
        f"{run.name}  {run.state}",
        f"recipe    {run.recipe}",
        f"started   {run.started.astimezone():%Y-%m-%d %H:%M:%S}",
    )
    for task in _read_tasks(directory):
        say(f"task      {task.state:<13}  {task.display_name}")
    for replica in _read_replicas(directory):
        restarts = f", restarts: {replica.restarts}" if replica.restarts else ""
        # A replica that was killed with its run is still recorded as running.
        was_killed = replica.state == "RUNNING" and run.state == run_history.KILLED
        state = run_history.KILLED if was_killed else replica.state
        say(f"replica   {state:<13}  {replica.name}{restarts}")
    if summary := _read_summary(directory):
        show_results(vars(summary))
    say(f"run       {directory}")
    if run.error:
        say(f"error: {run.error}")
    if run.state in ("FAILED", "CANCELLED", run_history.KILLED):
        say(f"resume    {run_history.resume_command(directory)}")


def show_end(
    summary: Mapping[str, Any], run_state: "RunState", failure: failures.Failure | None
) -> None:
    """Print the run's result: its state, warnings and metrics, or the failure and its log."""
    state = summary["state"]
    line = Text(state, _COLORS[state])
    seconds = time.monotonic() - run_state.started
    Console().print(line.append(f" in {seconds:.1f} s", "default"))
    if failure:
        print_error(f"error: {failure.message}")
    if failure and failure.log:
        if not failure.is_complete:
            for last_line in failures.read_last_lines(failure.log):
                print_error(f"  {last_line}")
        print_error(f"log       {shorten_path(failure.log)}")
    for task in run_state.tasks.values():
        for warning in failures.find_warnings(task.log):
            say(f"warning   {warning}")
    show_results(summary)
    say(f"run       {shorten_path(run_state.folder)}")
    if state == "CANCELLED":
        say(f"resume    {run_history.resume_command(run_state.folder)}")


def show_results(summary: Mapping[str, Any]) -> None:
    """Print the results in a summary.json; on a terminal, break lines between words."""
    console = Console()
    for line in _format_results(summary):
        if console.is_terminal:
            line = textwrap.fill(
                line,
                max(40, console.width),
                subsequent_indent=" " * 10,
                break_long_words=False,
                break_on_hyphens=False,
            )
        say(line.replace(_NO_BREAK, " "))


def _format_results(summary: Mapping[str, Any]) -> Iterator[str]:
    if validation := summary.get("validation"):
        accuracy, loss = (decimal(validation[name], 4) for name in ("accuracy", "loss"))
        yield f"validation accuracy {accuracy}, loss {loss} (epoch {validation['epoch']:g})"
    metrics = summary["metrics"]
    if names := [name for name in _HEADLINE if name in metrics] or list(metrics):
        figures = (f"{name}_{decimal(metrics[name], 4)}" for name in names)
        yield f"test set  {', '.join(figures).replace('_', _NO_BREAK)}"
    if verdict := summary.get("verdict"):
        reason = summary.get("gate", {}).get("reason")
        yield f"verdict   {verdict}{f': {reason}' if reason else ''}"
    if registered := summary.get("registered"):
        role, version = summary["registered_as"], registered.rpartition("@")[2]
        hint = f"; promote --version {version} makes it the champion" if role == CANDIDATE else ""
        yield f"registry  {registered}, {role}{hint}"
    for batch in summary.get("batch_predictions", ()):
        yield f"instances {batch['successful']:,} predicted, {batch['failed']:,} failed"
        if batch["folder"]:  # A job that can't read its input creates no folder.
            yield f"output    {_format_path(batch['folder'])}"
    if report := summary["report"]:
        yield f"report    {_format_path(report)}"
    if is_object(summary["artifacts"]):
        yield f"artifacts {summary['artifacts']}"


def _format_path(path: str) -> str:
    """Return a path relative to the working folder, with spaces that don't break lines."""
    return shorten_path(path).replace(" ", _NO_BREAK)


def show_logs(folder: pathlib.Path, name: str, replica: str | None, count: int) -> None:
    """Print the last log lines of a replica, such as chief-0 or workerpool0-0, or of "all".

    If no replica is given, print the run's error and the log of the replica or task that failed;
    if none failed, print the chief's log.
    """
    run = run_history.load_by_name(folder, name)
    directory = pathlib.Path(run.link)
    logs = _choose_logs(directory, replica)
    error = run.error if replica is None else ""
    if error:
        say(f"error: {error}")
    for log in logs:
        lines = [line for line in failures.read_tail(log, _TAIL_BYTES) if line.strip()]
        if replica is None:
            lines = [
                line
                for line in failures.remove_noise(lines)
                if not (error and error.endswith(line.removeprefix("error: ")))
            ]
        for line in lines[-count:]:
            say(f"{log.stem}: {line}" if len(logs) > 1 else line)
    if not logs:
        say(f"no lines yet: {directory / 'logs'}")


def _choose_logs(directory: pathlib.Path, replica: str | None) -> list[pathlib.Path]:
    replicas = _read_replicas(directory)
    if replica == "all":
        return [state.log for state in replicas]
    if replica is not None:
        logs = {state.name: state.log for state in replicas}
        logs |= {
            f"workerpool{ROLES.index(state.role)}-{state.index}": state.log for state in replicas
        }
        if replica not in logs:
            known = ", ".join(state.name for state in replicas) or "none yet"
            raise InputError(f"--replica {replica!r} is not a replica of {directory.name}: {known}")
        return [logs[replica]]
    failed = [state.log for state in replicas if state.state == "FAILED"]
    failed += [
        directory / "logs" / f"{task.name}.log"
        for task in _read_tasks(directory)
        if task.state == "FAILED"
    ]
    return [*failed, *(state.log for state in replicas)][:1]


def _read_summary(directory: pathlib.Path) -> run_history.Summary | None:
    return read_json(directory / run_history.SUMMARY_FILE_NAME, run_history.Summary)


def _read_tasks(directory: pathlib.Path) -> list[run_history.PastTask]:
    """Return the names and states of the run's tasks so far."""
    if summary := _read_summary(directory):
        return summary.tasks
    from pipelines.local.cache import Journal
    from pipelines.package import Package

    recipe = run_history.read_record(directory).recipe
    tasks = Journal(directory).tasks
    names = Package(directory / f"{recipe}.yaml").tasks if tasks else {}
    return [
        run_history.PastTask(name=task, display_name=names[task], state="SUCCEEDED")
        for task in tasks
    ]


def _read_replicas(directory: pathlib.Path) -> list[job_state.ReplicaState]:
    jobs = sorted(directory.glob(f"logs/*/{job_state.FILE_NAME}"))
    return [replica for job in jobs for replica in job_state.read(job.parent).replicas]
