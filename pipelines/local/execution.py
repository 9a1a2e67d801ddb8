"""Execution of a run on this machine."""

import contextlib
import dataclasses
import datetime
import functools
import logging
import pathlib
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from typing import Any

from components.planning.code_digest import code_digest
from pipelines import local_runs
from pipelines.console import Console, say, shorten_path
from pipelines.local import failures, folders, run_summary, terminal
from pipelines.local.cache import Journal
from pipelines.local.container_image import find_engine, find_outdated_commit, list_mounts
from pipelines.local.kfp_patches import TaskExecutor, make_constants
from pipelines.local.run_state import RunState, make_rows
from pipelines.local.services import started_services
from pipelines.local.tasks import ProcessTasks
from pipelines.local_programs import QUIET
from pipelines.package import Package
from pipelines.run_history import (
    RunRecord,
    artifacts_of,
    load,
    locked,
    read_record,
    write_record,
)
from pipelines.run_view import LiveView, PlainView, choose_view
from trainer.errors import InputError
from vertex_emulator.containers import Containers
from vertex_emulator.processes import Guardian

_FRAME_SECONDS = 0.1


@dataclasses.dataclass(frozen=True)
class Run:
    """A run's folder, its state (SUCCEEDED, FAILED or CANCELLED) and its summary.json."""

    directory: pathlib.Path
    state: str
    summary: dict[str, Any]


def run(
    pipeline: Package,
    *,
    parameters: Mapping[str, Any],
    runs_directory: pathlib.Path,
    cache: bool = True,
    in_containers: bool = False,
    root: str = "",
    name: str = "",
) -> Run:
    """Execute a compiled pipeline on this machine, and show its progress.

    Write runs_directory/<recipe>-<time>/ with artifacts/, logs/, the package's YAML, summary.json
    and, if the pipeline creates them, report.html and tensorboard/; make runs_directory/latest a
    link to it. A failed task, Ctrl-C and SIGTERM end the run and all its processes. They raise no
    exception; the state of the result reports them.

    Raise InputError, and start nothing, if the package does not exist, a parameter is unknown or
    has the wrong type, runs_directory or root is not writable, or a run has that name.

    Args:
        pipeline: the YAML that compile.py wrote.
        parameters: values that replace the file's defaults.
        runs_directory: folder for the runs and, in .cache, for the outputs that they share.
        cache, in_containers, root, name: as in `api.run`.
    """
    root = root.rstrip("/")
    record = new_record(pipeline, parameters, cache=cache, in_containers=in_containers, root=root)
    engine = find_engine(pipeline.image) if in_containers else ""
    directory = folders.make(runs_directory, pipeline.path, record.root, name)
    with locked(directory) as lock:
        write_record(record, directory)
        return execute(pipeline, record, directory, lock, engine)


def resume(directory: pathlib.Path) -> Run:
    """Execute the tasks that are left of a cancelled, failed or killed run, in its own folder.

    The interrupted task reuses the files that it has written: shards of records, or the checkpoint
    of a training job. So the results are bit-identical to those of an uninterrupted run.

    Raise InputError, and start nothing, if the run is still running or has succeeded, its YAML has
    changed, or its container engine or image is not available.
    """
    # Later runs rely on the paths of artifacts in this folder.
    directory = directory.resolve()
    record = read_record(directory)
    with locked(directory) as lock:
        if load(directory).state == "SUCCEEDED":
            raise InputError(f"{directory.name} has succeeded; there is nothing to resume")
        path = directory / f"{record.recipe}.yaml"
        pipeline = Package(path)
        if pipeline.digest != record.package:
            raise InputError(f"{path} has changed since the run was started; start a new run")
        engine = find_engine(pipeline.image) if record.in_containers else ""
        if not engine and record.code != code_digest():
            say(
                "warning   the code of trainer/ or components/ has changed since the run started: "
                "its results may differ from those of an uninterrupted run",
            )
        folders.set_aside(directory, Journal(directory).tasks)
        folders.point_latest_to(directory)
        return execute(pipeline, record, directory, lock, engine)


def new_record(pipeline: Package, parameters: Mapping[str, Any], **options: Any) -> RunRecord:
    """Return the record of a run that starts now; raise InputError as `run` does."""
    return RunRecord(
        recipe=pipeline.recipe,
        parameters=pipeline.arguments(parameters),
        started=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds"),
        package=pipeline.digest,
        code=code_digest(),
        **options,
    )


def execute(
    pipeline: Package,
    record: RunRecord,
    directory: pathlib.Path,
    lock: int,
    engine: str = "",
    constants: Mapping[str, str] | None = None,
) -> Run:
    """Execute a run in its folder, beginning with the first task that its journal does not contain.

    Args:
        lock: file descriptor of the folder's lock, which this process holds.
        engine: container engine; empty: components and replicas run as processes.
        constants: values of placeholders; None: those of a run on this machine.
    """
    logs, artifacts = directory / "logs", artifacts_of(record, directory)
    logs.mkdir(exist_ok=True)
    run_summary.reserve(directory)
    run_state = RunState(pipeline.tasks, logs)
    with contextlib.ExitStack() as stack:
        interrupts = stack.enter_context(terminal.signals_interrupt())
        guardian = stack.enter_context(Guardian(holding=[lock]))
        stack.enter_context(folders.temporary(guardian))
        containers = None
        if engine:
            created = _create_containers(engine, pipeline.image, record, directory, guardian)
            containers = stack.enter_context(created)
        services = stack.enter_context(started_services(directory, guardian, containers))
        tasks = ProcessTasks(run_state, services, pipeline.launcher, artifacts)
        stack.callback(tasks.close)
        cache = None
        if record.cache:
            # Runs share outputs only with runs that have the same root.
            cache = directory.parent / ".cache" / record.root.replace("://", "/")
        constants = constants or make_constants(directory.name)
        executor = TaskExecutor(tasks, constants, artifacts, cache)
        console = Console()
        stack.enter_context(terminal.capture_output(console, logs / "pipeline.log"))
        rows = functools.partial(make_rows, run_state, services.jobs.jobs)
        with choose_view(rows, console, shorten_path(directory)) as view:
            running = _run_in_thread(
                "kfp", lambda: _run_pipeline(pipeline, record.parameters, directory, executor)
            )
            state, error = _follow(running, tasks, run_state, view, interrupts)
            run_state.close(state)
        failure = failures.find_failure(run_state, services, error) if state == "FAILED" else None
        message = failure.message if failure else ""
        content = run_summary.summarize(record, state, run_state, services, message)
        run_summary.write(content, directory)
        # On a full disk the link fails; the run's result is shown anyway.
        with contextlib.suppress(OSError):
            folders.link_tensorboard(services.jobs.jobs, directory)
    local_runs.show_end(content, run_state, failure)
    return Run(directory, state, content)


def _create_containers(
    engine: str,
    image: str,
    record: RunRecord,
    directory: pathlib.Path,
    guardian: Guardian,
) -> Containers:
    """Return the containers of a run; warn if the code has changed since their image was built."""
    if commit := find_outdated_commit(engine, image):
        say(
            f"warning   {image} was built from {commit}, and the code of trainer/ or "
            "components/ has changed since; rebuild it with make image",
        )
    # The image runs as another user. As in a bucket, every process of a run may write.
    (directory / "artifacts").mkdir(mode=0o777, exist_ok=True)
    (directory / "artifacts").chmod(0o777)
    mounts = list_mounts(directory.parent, record.parameters.values())
    return Containers(
        engine,
        image,
        run_name=directory.name,
        mounts=mounts,
        guardian=guardian,
        environment=QUIET,
    )


def _run_in_thread(name: str, function: Callable[[], None]) -> "Future[None]":
    """Run a function in a daemon thread; return its future.

    Wait for the future, not with Thread.join: before Python 3.13, a signal that interrupts join
    marks a running thread as dead.
    """
    future: Future[None] = Future()

    def run() -> None:
        try:
            function()
            future.set_result(None)
        except BaseException as error:
            logging.getLogger(__name__).exception("%s ended early", name)
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


def _run_pipeline(
    pipeline: Package,
    parameters: Mapping[str, Any],
    directory: pathlib.Path,
    executor: TaskExecutor,
) -> None:
    """Run the pipeline to its end with kfp.local, whose files are in the run's folder."""
    from kfp import components, local
    from kfp.local.config import LocalExecutionConfig

    artifacts = directory / "artifacts"
    local.init(
        local.SubprocessRunner(use_venv=False),
        pipeline_root=str(artifacts),
        workspace_root=str(artifacts / ".workspace"),
        raise_on_error=False,
    )
    try:
        with executor.applied():
            components.load_component_from_file(str(pipeline.path))(**parameters)
    finally:
        # Otherwise components called later in this process would run with this configuration.
        LocalExecutionConfig.instance = None


def _follow(
    running: "Future[None]",
    tasks: ProcessTasks,
    run_state: RunState,
    view: LiveView | PlainView,
    interrupts: terminal.Interrupts,
) -> tuple[str, str]:
    """Show the run until it ends; return its state and kfp's exception as text, if any."""
    try:
        while not wait([running], _FRAME_SECONDS).done:
            view.update()
        error = running.exception()
        why = f"{type(error).__name__}: {error}" if error else ""
        return "FAILED" if error or run_state.failed else "SUCCEEDED", why
    except KeyboardInterrupt:
        _cancel(tasks, running, view, interrupts)
        return "CANCELLED", ""


def _cancel(
    tasks: ProcessTasks,
    running: "Future[None]",
    view: LiveView | PlainView,
    interrupts: terminal.Interrupts,
) -> None:
    """Cancel the running tasks, and show the run until they have ended."""
    view.note("Cancelling: replicas have 30 s to save a checkpoint; Ctrl-C again kills them now")
    futures = [_run_in_thread("cancel", tasks.cancel), running]
    handled = 1
    while not all(future.done() for future in futures):
        if interrupts.count > handled:
            handled = interrupts.count
            tasks.kill()
        wait(futures, _FRAME_SECONDS)
        view.update()
