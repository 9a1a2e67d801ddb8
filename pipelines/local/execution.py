"""Execution of a run on this machine."""

import contextlib
import dataclasses
import datetime
import pathlib
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Any

from rich.text import Text

from components.planning.code_digest import code_digest
from pipelines.local import folders, preflight, run_summary, terminal
from pipelines.local.container_image import find_engine, find_outdated_commit, list_mounts
from pipelines.local.job_file import PipelineJobFile
from pipelines.local.local_programs import PRELOADED, QUIET, component_environment, digest_code_of
from pipelines.local.run_rows import make_rows
from pipelines.local.services import started_services
from pipelines.package import Package
from pipelines.parameters import change_machines
from pipelines.printing import Console, print_error, say, shorten_path
from pipelines.runs import failures
from pipelines.runs.live_view import LiveView, PlainView, choose_view
from pipelines.runs.run import Run
from pipelines.runs.run_folders import (
    CANCEL_FILE_NAME,
    RunRecord,
    artifacts_of,
    as_run,
    load,
    locked,
    read_record,
    resume_command,
    training_of,
    write_record,
)
from pipelines.runs.screens import show_results
from pipelines.runs.this_machine import read_jobs
from trainer.data.storage import is_object
from vertex.emulator.batch_service import BatchJob
from vertex.emulator.containers import Containers
from vertex.emulator.engine.output_cache import Journal
from vertex.emulator.engine.pipeline_run import PipelineRun, run_in_thread
from vertex.emulator.engine.placeholders import make_constants
from vertex.emulator.engine.spec_rules import check_spec
from vertex.emulator.engine.task_processes import Services, TaskProcesses
from vertex.emulator.fork_server import ForkServer
from vertex.emulator.http_rules import to_json
from vertex.emulator.job_service import CANCEL_GRACE_SECONDS
from vertex.emulator.processes import Guardian, temporary_folder
from vertex.errors import InputError
from vertex.facts.emulation import LOCATION, PROJECT

_FRAME_SECONDS = 0.1
_COLORS = {"SUCCEEDED": "bold green", "FAILED": "bold red", "CANCELLED": "bold yellow"}


def run(
    pipeline: Package,
    *,
    parameters: Mapping[str, Any],
    runs_directory: pathlib.Path,
    cache: bool = True,
    in_containers: bool = False,
    root: str = "",
    name: str = "",
) -> pathlib.Path:
    """Execute a compiled pipeline on this machine as `api.run` does; return its folder.

    Write runs_directory/<recipe>-<time>/ with artifacts/, logs/, the package's YAML, summary.json
    and, if the pipeline creates them, report.html and tensorboard/; make runs_directory/latest a
    link to it. A failed task, Ctrl-C and SIGTERM end the run and all its processes. They raise no
    exception; the folder's summary.json has the state SUCCEEDED, FAILED or CANCELLED.

    Raise InputError, and start nothing, if the package does not exist, a parameter has the wrong
    type, runs_directory or root is not writable, or a run has that name.
    """
    record = RunRecord(
        recipe=pipeline.recipe,
        parameters=pipeline.arguments(parameters),
        started=datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
        package=pipeline.digest,
        cache=cache,
        in_containers=in_containers,
        root=root.rstrip("/"),
        code=code_digest(),
    )
    check_spec(pipeline.content)
    container_engine = find_engine(pipeline.image) if in_containers else ""
    directory = folders.make(runs_directory, pipeline.path, record.root, name)
    with locked(directory) as lock:
        write_record(record, directory)
        return _execute(pipeline, record, directory, lock, container_engine)


def resume(directory: pathlib.Path, machines: Mapping[str, Any] | None = None) -> pathlib.Path:
    """Execute the tasks that are left of a cancelled, failed or killed run, in its own folder.

    The interrupted task reuses the files that it has written: shards of records, or the checkpoint
    of a training job. So the results are bit-identical to those of an uninterrupted run. With other
    `machines`, a new run reads the records from the cache and trains from the checkpoint.

    Raise InputError, and start nothing, if the run is still running or has succeeded, its YAML has
    changed, or its container engine or image is not available.
    """
    # Later runs rely on the paths of artifacts in this folder.
    directory = directory.resolve()
    record = read_record(directory)
    with locked(directory) as lock:
        if load(directory).state == "SUCCEEDED":
            raise InputError(
                f"the run {directory.name!r} has succeeded; there is nothing to resume"
            )
        path = directory / f"{record.recipe}.yaml"
        pipeline = Package(path)
        if pipeline.digest != record.package:
            raise InputError(f"{path} has changed since the run was started; start a new run")
        if machines:
            changed = change_machines(record.parameters, machines)
            changed["resume_from"] = training_of(record, directory)
            return run(
                pipeline,
                parameters={**record.parameters, **changed},
                runs_directory=directory.parent,
                in_containers=record.in_containers,
                root=record.root,
            )
        container_engine = find_engine(pipeline.image) if record.in_containers else ""
        if not container_engine and record.code != code_digest():
            say(
                "warning   the code of trainer/ or components/ has changed since the run started: "
                "its results may differ from those of an uninterrupted run",
            )
        folders.set_aside(directory, Journal(directory).tasks)
        folders.point_latest_to(directory)
        return _execute(pipeline, record, directory, lock, container_engine)


def _execute(
    pipeline: Package, record: RunRecord, directory: pathlib.Path, lock: int, container_engine: str
) -> pathlib.Path:
    """Execute a run in its folder, beginning with the first task that its journal does not contain.

    Args:
        lock: file descriptor of the folder's lock, which this process holds.
        container_engine: its command; empty: components and replicas run as processes.
    """
    (directory / "logs").mkdir(exist_ok=True)
    (directory / CANCEL_FILE_NAME).unlink(missing_ok=True)
    with contextlib.ExitStack() as stack:
        interrupts = stack.enter_context(terminal.signals_interrupt())
        server = None
        # TensorFlow's libraries for GPUs, and those of macOS, need not survive a fork.
        if not container_engine and sys.platform == "linux" and not preflight.count_gpus():
            environment = component_environment()
            server = stack.enter_context(ForkServer(PRELOADED, environment, holding=[lock]))
        guardian = stack.enter_context(Guardian(holding=[lock], fork_server=server))
        stack.enter_context(temporary_folder(guardian))
        containers = None
        if container_engine:
            containers = _create_containers(
                container_engine, pipeline.image, record, directory, guardian
            )
            stack.enter_context(containers)
        services = stack.enter_context(started_services(directory, guardian, containers))
        run = _create_run(pipeline, record, directory, services)
        stack.callback(run.processes.close)
        console = Console()
        stack.enter_context(terminal.capture_output(console, directory / "logs" / "pipeline.log"))
        job_file = PipelineJobFile(record, run)
        with choose_view(lambda: make_rows(run), console, shorten_path(directory)) as view:
            state, error = _follow(run, job_file, view, interrupts)
            run.close(state)
        failure = failures.find_failure(run, error) if state == "FAILED" else None
        job = job_file.write(state, failure.message if failure else "")
        ended = run_summary.copy_pages(as_run(job, record, directory))
        ended = dataclasses.replace(ended, jobs=tuple(read_jobs(directory)))
        summary = _write_summary(ended, run)
    _show_end(ended, run, failure, summary["batch_predictions"])
    return directory


def _create_run(
    pipeline: Package, record: RunRecord, directory: pathlib.Path, services: Services
) -> PipelineRun:
    """Return the run that the emulator's engine executes."""
    artifacts = artifacts_of(record, directory)
    logs, in_bucket = directory / "logs", is_object(artifacts)
    processes = TaskProcesses(services, "1", pipeline.content, logs, in_bucket=in_bucket)
    # Runs share outputs only with runs that have the same root.
    shared = directory.parent / ".cache" / record.root.replace("://", "/")
    return PipelineRun(
        spec=pipeline.content,
        parameters=record.parameters,
        folder=directory,
        artifacts=artifacts,
        constants=make_constants(directory.name, PROJECT, LOCATION),
        processes=processes,
        cache=shared if record.cache else None,
        code_of=digest_code_of,
        links_reused=True,
        # On this machine a step fails again, and its user waits.
        retries=False,
    )


def _write_summary(ended: Run, run: PipelineRun) -> dict[str, Any]:
    """Write summary.json of a run that has ended; return its content."""
    launched = run.processes.jobs_of()
    batches = [to_json(job.message) for job in launched if isinstance(job, BatchJob)]
    summary = run_summary.summarize(ended, batches)
    run_summary.write(summary, run.folder)
    # On a full disk the link fails; the run's result is shown anyway.
    with contextlib.suppress(OSError):
        folders.link_tensorboard(launched, run.folder)
    return summary


def _show_end(
    result: Run,
    run: PipelineRun,
    failure: failures.Failure | None,
    batches: Sequence[dict[str, Any]],
) -> None:
    """Print the run's result: its state, warnings and metrics, or the failure and its log."""
    line = Text(result.state, _COLORS[result.state])
    Console().print(line.append(f" in {time.time() - run.started:.1f} s", "default"))
    if failure:
        print_error(f"error: {failure.message}")
    if failure and failure.log:
        if not failure.is_complete:
            for last_line in failures.read_last_lines(failure.log):
                print_error(f"  {last_line}")
        print_error(f"log       {shorten_path(failure.log)}")
    for task in run.steps:
        for warning in failures.find_warnings(task.log):
            if warning not in result.warnings:  # Those are among the results.
                say(f"warning   {warning}")
    show_results(result, batches)
    say(f"run       {shorten_path(run.folder)}")
    if result.state == "CANCELLED":
        say(f"resume    {resume_command(run.folder)}")


def _create_containers(
    container_engine: str,
    image: str,
    record: RunRecord,
    directory: pathlib.Path,
    guardian: Guardian,
) -> Containers:
    """Return the containers of a run; warn if the code has changed since their image was built."""
    if commit := find_outdated_commit(container_engine, image):
        say(
            f"warning   {image} was built from {commit}, and the code of trainer/ or "
            "components/ has changed since; rebuild it with make image",
        )
    # The image runs as another user. As in a bucket, every process of a run may write.
    (directory / "artifacts").mkdir(mode=0o777, exist_ok=True)
    (directory / "artifacts").chmod(0o777)
    return Containers(
        container_engine,
        image,
        run_name=directory.name,
        mounts=list_mounts(directory.parent, record.parameters.values()),
        guardian=guardian,
        environment=QUIET,
    )


def _follow(
    run: PipelineRun,
    job_file: PipelineJobFile,
    view: LiveView | PlainView,
    interrupts: terminal.Interrupts,
) -> tuple[str, str]:
    """Execute the run and show it until it ends; return its state and any error of the engine."""
    running = run_in_thread("pipeline", run.execute)
    try:
        asked = run.folder / CANCEL_FILE_NAME
        while not wait([running], _FRAME_SECONDS).done:
            view.update()
            job_file.update()
            if asked.exists():
                raise KeyboardInterrupt
        if error := running.exception():
            return "FAILED", f"{type(error).__name__}: {error}"
        return running.result(), ""
    except KeyboardInterrupt:
        _cancel(run.processes, running, view, interrupts)
        return "CANCELLED", ""


def _cancel(
    processes: TaskProcesses,
    running: "Future[Any]",
    view: LiveView | PlainView,
    interrupts: terminal.Interrupts,
) -> None:
    """Cancel the running tasks, and show the run until they have ended."""
    view.note(
        f"Cancelling: replicas have {CANCEL_GRACE_SECONDS:.0f} s to save a checkpoint; "
        "Ctrl-C again kills them now"
    )
    futures = [run_in_thread("cancel", processes.cancel), running]
    handled = 1
    while not all(future.done() for future in futures):
        if interrupts.count > handled:
            handled = interrupts.count
            processes.kill()
        wait(futures, _FRAME_SECONDS)
        view.update()
