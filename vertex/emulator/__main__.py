"""The command `vertex-emulator`: start an emulator, and look at its runs.

vertex-emulator up                  start; Ctrl-C ends it
eval "$(vertex-emulator env)"       in another shell: lead Google's clients to it
vertex-emulator status              list the runs
vertex-emulator logs RUN [TASK]     print what the tasks of a run printed
"""

import argparse
import json
import os
import pathlib
import shlex
import signal
import sys
import threading

from vertex.errors import EXIT_CODE, InputError, one_line

_FILE_NAME = "environment.json"


def main() -> int:
    """Run a command; return its exit code."""
    arguments = _parser().parse_args()
    try:
        arguments.command(arguments)
    except InputError as error:
        print(f"error: {one_line(error)}", file=sys.stderr)
        return EXIT_CODE
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("vertex-emulator", description="Vertex AI on this machine.")
    folder = argparse.ArgumentParser(add_help=False)
    folder.add_argument(
        "--folder",
        type=pathlib.Path,
        default=pathlib.Path("emulated"),
        help="keeps runs, models, buckets and all else; default: %(default)s",
    )
    commands = parser.add_subparsers(required=True)
    up = commands.add_parser("up", parents=[folder], help="start an emulator")
    up.add_argument("--port", type=int, default=0, help="of the API; default: one that is free")
    up.add_argument("--project", default="my-project", help="project ID; default: %(default)s")
    up.add_argument("--region", default="us-central1", help="default: %(default)s")
    up.set_defaults(command=_start)
    shown = commands.add_parser("env", parents=[folder], help="print the variables of clients")
    shown.set_defaults(command=_print_environment)
    status = commands.add_parser("status", parents=[folder], help="list the runs")
    status.set_defaults(command=_list_runs)
    logs = commands.add_parser("logs", parents=[folder], help="print the logs of a run")
    logs.add_argument("run", help="ID of the run")
    logs.add_argument("task", nargs="?", default="", help="name of a task; default: all")
    logs.set_defaults(command=_print_logs)
    return parser


def _start(arguments: argparse.Namespace) -> None:
    # Imported here, as it takes a second.
    from vertex.emulator.local_project import LocalProject

    place = {"project": arguments.project, "location": arguments.region}
    with LocalProject(arguments.folder, port=arguments.port, **place) as project:
        path = project.folder / _FILE_NAME
        content = json.dumps({"process": os.getpid(), "environment": project.environment})
        path.unlink(missing_ok=True)
        # Only for this user: it contains the access token.
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(content)
        ended = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: ended.set())
        folder = shlex.quote(str(arguments.folder))
        print(f"{project.server.endpoint} is project {project.project}, {project.location}")
        print(f'In another shell: eval "$(vertex-emulator env --folder {folder})"')
        print("Ready; Ctrl-C stops the emulator and all of its runs.", flush=True)
        ended.wait()
        path.unlink()


def _read_environment(folder: pathlib.Path) -> dict[str, str]:
    """Return the variables of the emulator that runs on a folder."""
    try:
        content = json.loads((folder / _FILE_NAME).read_text())
        os.kill(content["process"], 0)
        return dict(content["environment"])
    except (OSError, ValueError, LookupError, TypeError):
        raise InputError(
            f"no emulator runs on the folder {str(folder)!r}; start one: vertex-emulator up"
        ) from None


def _print_environment(arguments: argparse.Namespace) -> None:
    for name, value in _read_environment(arguments.folder).items():
        print(f"export {name}={shlex.quote(value)}")


def _list_runs(arguments: argparse.Namespace) -> None:
    from google.cloud.aiplatform_v1.types import PipelineJob

    found = []
    for path in arguments.folder.glob("resources/projects/*/locations/*/pipelineJobs/*.json"):
        job = PipelineJob.from_json(path.read_text(), ignore_unknown_fields=True)
        found.append((job.create_time, path.stem, job.state.name.removeprefix("PIPELINE_STATE_")))
    if not found:
        raise InputError(f"the folder {str(arguments.folder)!r} has no runs")
    width = max(len(name) for _, name, _ in found)
    for time, name, state in sorted(found, reverse=True):
        print(f"{time:%Y-%m-%d %H:%M:%S}  {name:{width}}  {state}")


def _print_logs(arguments: argparse.Namespace) -> None:
    folders = [*arguments.folder.glob(f"runs/{arguments.run}.*/logs")]
    files = sorted(
        path
        for folder in folders
        for path in folder.glob("**/*.log")
        if arguments.task in ("", path.stem.rpartition(".")[2])
    )
    if not files:
        task = f" with a task {arguments.task!r}" if arguments.task else ""
        raise InputError(f"{str(arguments.folder)!r} has no run {arguments.run!r}{task}")
    for path in files:
        print(f"--- {path.stem}")
        print(path.read_text(errors="replace"), end="")


if __name__ == "__main__":
    sys.exit(main())
