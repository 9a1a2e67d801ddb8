"""Run create_tfrecords in a process of an interpreter that has Apache Beam.

`run` sends cases to this file's main: {"output", "engine", "options", ...}. engine: "local";
"beam", Beam on this machine, in one process or as many as "workers"; "dataflow", a service of this
machine that speaks Dataflow's API. The process writes JSON lines: each line of progress as it
comes, and an answer a case.
"""

import contextlib
import functools
import importlib.util
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.child_processes import ROOT, started
from trainer.data.write import beam_engine, spill
from trainer.data.write.output import OutputFolder
from trainer.data.write.record_options import EngineOptions, RecordOptions
from trainer.data.write.writer import create_tfrecords
from trainer.fields import build
from vertex.errors import InputError

LAYER = Path(sys.prefix) / "dataflow" / "bin" / "python"
OPENED: list[str] = []


def interpreter() -> str:
    """Return the one that has Apache Beam, or skip the test."""
    if LAYER.exists():
        return str(LAYER)
    if importlib.util.find_spec("apache_beam"):
        return sys.executable
    pytest.skip("Apache Beam is not installed: make dataflow")


def running(python: str, folder: Path, cases: list[dict[str, Any]]):
    """Start a process that runs `cases` (beam_run.py), with its files in `folder`."""
    path = folder / f"cases-{len(list(folder.glob('cases-*')))}.json"
    path.write_text(json.dumps(cases))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return started([python, "-m", __name__, str(path)], cwd=ROOT, env=environment, stderr=None)


def run(
    python: str, folder: Path, cases: list[dict[str, Any]], seconds: float = 60
) -> list[dict[str, Any]]:
    """Return the answers to `cases`, with the lines of progress before each."""
    with running(python, folder, cases) as process:
        output, _ = process.communicate(timeout=seconds)
    assert process.returncode == 0
    return answers_of(output)


def answers_of(output: str) -> list[dict[str, Any]]:
    answers, lines = [], []
    for message in map(json.loads, output.splitlines()):
        if "line" in message:
            lines.append(message["line"])
        else:
            answers.append({**message["answer"], "lines": lines})
            lines = []
    return answers


def answer(case: dict[str, Any]) -> dict[str, Any]:
    """Run a case; return its error, the number of temporary files, and the service's jobs."""
    results: dict[str, Any] = {}
    OPENED.clear()
    with contextlib.ExitStack() as stack:
        # One row is too many to be kept in memory.
        stack.enter_context(mock.patch.object(spill, "MEMORY_BYTES", 1))
        endpoint = project = ""
        if case["engine"] == "dataflow":
            from tests.trainer.data.dataflow_service import DataflowService

            service = DataflowService(**case.get("service", {}))
            stack.enter_context(service.running())
            endpoint, project, results["jobs"] = service.endpoint, "my-project", service.jobs
        if workers := case.get("workers"):
            stack.enter_context(mock.patch.object(beam_engine, "WORKERS", workers))
        kind = "local" if case["engine"] == "local" else "dataflow"
        try:
            engine = beam_engine.open_engine(
                build(EngineOptions, {"records_engine": kind, **case.get("engine_options", {})}),
                project=project,
                region="europe-west4",
                image="registry/training:1",
                service_account="workers@my-project.iam.gserviceaccount.com",
                network="projects/123456/global/networks/private",
                encryption_key=case.get("encryption_key", ""),
                environment={
                    beam_engine.ENDPOINT_VARIABLE: endpoint,
                    beam_engine.LABELS_VARIABLE: '{"team": "vision", "run": ""}',
                },
            )
            options = build(RecordOptions, case["options"])
            if "vanishes" in case:
                stack.enter_context(vanishing(Path(case["vanishes"])))
            create_tfrecords(
                options, case["output"], engine=engine, progress=functools.partial(put, "line")
            )
        except (InputError, RuntimeError, SystemExit) as error:
            results["error"] = f"{type(error).__name__}: {error}"
    results["spilled"] = len(OPENED)
    return results


def note(event: str, arguments: tuple[Any, ...]) -> None:
    """Note a file that is opened for writing in the temporary folder."""
    if event == "open" and arguments[2] & os.O_WRONLY:
        OPENED.extend(
            argument
            for argument in arguments[:1]
            if str(argument).startswith(f"{tempfile.tempdir}/")
        )


def vanishing(path: Path) -> contextlib.AbstractContextManager:
    """Remove a file of the source between its two passes."""
    begin = OutputFolder.begin

    def remove(folder: OutputFolder, fingerprint: str) -> None:
        path.unlink()
        begin(folder, fingerprint)

    return mock.patch.object(OutputFolder, "begin", remove)


def put(kind: str, content: Any) -> None:
    print(json.dumps({kind: content}), file=sys.__stdout__, flush=True)


if __name__ == "__main__":
    sys.stdout = sys.stderr  # Beam and its workers may print what they like.
    cases = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory(prefix="rows") as tempfile.tempdir:
        sys.addaudithook(note)
        for asked in cases:
            put("answer", answer(asked))
