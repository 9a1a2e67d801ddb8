"""Print a run: the same for a run on this machine and on Vertex AI."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pipelines.printing import Console, say, shorten_path
from pipelines.runs.live_view import UNUSED, format_trial
from pipelines.runs.run import KILLED, Run
from pipelines.runs.this_machine import LocalRuns
from trainer.data.storage import is_object
from trainer.evaluation.gate_options import CANDIDATE
from vertex.formats import clock, decimal
from vertex.machines.price_table import format_machines

if TYPE_CHECKING:
    from pipelines.runs.vertex_ai import VertexRuns  # imports Google's clients

_HEADLINE = (
    "accuracy", "f1", "roc_auc", "log_loss", "expected_calibration_error", "r2", "rmse", "mae",
    "coverage", "example_f1", "micro_f1", "macro_f1", "mean_average_precision", "exact_match",
)  # fmt: skip
_NO_BREAK = "\xa0"
"""A non-breaking space."""


def show_status(
    run: Run, backend: "LocalRuns | VertexRuns", batches: Sequence[dict[str, Any]] = ()
) -> None:
    """Print a run's state, its tasks and jobs, and its result."""
    say(
        f"{run.name}  {run.state}",
        f"recipe    {run.recipe}",
        f"started   {run.started.astimezone():%Y-%m-%d %H:%M:%S}",
        f"{'console  ' if run.on_vertex else 'run      '} {run.link}",
    )
    for task in run.tasks:
        if task.state in UNUSED:
            continue
        took = f"  {clock(task.seconds)}" if task.seconds else ""
        error = f"  {task.error}" if task.error else ""
        say(f"task      {task.state:<13}  {task.display_name}{took}{error}")
    for state in UNUSED:
        if names := [task.display_name for task in run.tasks if task.state == state]:
            say(f"task      {state:<13}  {', '.join(names)}")
    for job in run.jobs:
        # A job that was killed with its run is still recorded as running.
        state = KILLED if run.state == KILLED and not job.has_ended else job.state
        say(f"training  {state}: {format_machines(job.pools)}", *backend.job_lines(job))
        for replica in job.replicas:
            restarts = f", restarts: {replica.restarts}" if replica.restarts else ""
            was_killed = replica.state == "RUNNING" and run.state == KILLED
            shown = KILLED if was_killed else replica.state
            say(f"replica   {shown:<13}  {replica.name}{restarts}")
    for trial in run.trials:
        say(f"trial     {trial.state:<13}  {format_trial(trial)}")
    show_results(run, batches)
    say(*backend.cost_lines(run))
    if run.error:
        say(f"error: {run.error}")
    if run.state == "FAILED":
        say(f"logs      python -m pipelines logs {run.name}")
    if run.state in ("FAILED", "CANCELLED", KILLED):
        say(f"resume    {backend.resume_command(run)}")


def show_results(run: Run, batches: Sequence[dict[str, Any]] = ()) -> None:
    """Print a run's results; on a terminal, break lines between words.

    `batches` are the entries of summary.json about batch predictions.
    """
    console = Console()
    for line in _format_results(run, batches):
        if console.is_terminal:
            line = textwrap.fill(
                line,
                max(40, console.width),
                subsequent_indent=" " * 10,
                break_long_words=False,
                break_on_hyphens=False,
            )
        say(line.replace(_NO_BREAK, " "))


def _format_results(run: Run, batches: Sequence[dict[str, Any]]) -> Iterator[str]:
    for warning in run.warnings:
        yield f"warning   {warning}"
    if run.validation:
        *scores, (_, epoch) = run.validation.items()
        shown = ", ".join(f"{name} {decimal(value, 4)}" for name, value in scores)
        yield f"validation {shown} (epoch {epoch:g})"
    if names := [name for name in _HEADLINE if name in run.metrics] or list(run.metrics):
        figures = (f"{name}_{decimal(run.metrics[name], 4)}" for name in names)
        yield f"test set  {', '.join(figures).replace('_', _NO_BREAK)}"
    if run.search:
        yield f"search    {run.search}"
        yield f"trials    {_format_path(run.search_report)}"
    if run.verdict:
        yield f"verdict   {run.verdict}{f': {run.reason}' if run.reason else ''}"
    if run.registered:
        version = run.registered.rpartition("@")[2]
        hint = f"; promote --version {version} makes it the champion"
        candidate = run.registered_as == CANDIDATE
        yield f"registry  {run.registered}, {run.registered_as}{hint if candidate else ''}"
    for batch in batches:
        yield f"instances {batch['successful']:,} predicted, {batch['failed']:,} failed"
        if batch["folder"]:  # A job that can't read its input creates no folder.
            yield f"output    {_format_path(batch['folder'])}"
    if run.report:
        yield f"report    {_format_path(run.report)}"
    if is_object(run.artifacts):
        yield f"artifacts {run.artifacts}"


def _format_path(path: str) -> str:
    """Return a path relative to the working folder, with spaces that don't break lines."""
    return (path if is_object(path) else shorten_path(path)).replace(" ", _NO_BREAK)
