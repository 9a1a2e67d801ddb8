"""Run create_tfrecords in a process that has Apache Beam.

Reads cases from a JSON file: {"output", "engine", "options", ...}. engine: "local"; "beam", Beam
on this machine, in one process or as many as "workers"; "dataflow", a service of this machine that
speaks Dataflow's API. Writes JSON lines: each line of progress as it comes, and an answer a case.
"""

import contextlib
import functools
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

from trainer.data.record_options import EngineOptions, RecordOptions
from trainer.data.write import beam_engine, spill, writer
from trainer.data.write.writer import create_tfrecords
from trainer.errors import InputError
from trainer.fields import build

# Beam and its workers may print what they like.
OUT, sys.stdout = sys.stdout, sys.stderr

OPENED: list[str] = []


def answer(case: dict[str, Any]) -> dict[str, Any]:
    """Run a case; return its error, the number of temporary files, and the service's jobs."""
    given: dict[str, Any] = {}
    OPENED.clear()
    with contextlib.ExitStack() as stack:
        # One row is too many to be kept in memory.
        stack.enter_context(mock.patch.object(spill, "MEMORY_BYTES", 1))
        endpoint = project = ""
        if case["engine"] == "dataflow":
            from tests.trainer.data.dataflow_service import DataflowService

            service = DataflowService(**case.get("service", {}))
            stack.enter_context(service.running())
            endpoint, project, given["jobs"] = service.endpoint, "my-project", service.jobs
        if workers := case.get("workers"):
            stack.enter_context(mock.patch.object(beam_engine, "WORKERS", workers))
        say = functools.partial(put, "line")
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
                environment={beam_engine.ENDPOINT_VARIABLE: endpoint},
                say=say,
            )
            options = build(RecordOptions, case["options"])
            if "vanishes" in case:
                stack.enter_context(vanishing(Path(case["vanishes"])))
            create_tfrecords(options, case["output"], engine=engine, progress=say)
        except (InputError, RuntimeError, SystemExit) as error:
            given["error"] = f"{type(error).__name__}: {error}"
    given["spilled"] = len(OPENED)
    return given


def note(event: str, arguments: tuple[Any, ...]) -> None:
    """Note a file that is opened for writing in the temporary folder."""
    if event == "open" and arguments[2] & os.O_WRONLY:
        OPENED.extend(one for one in arguments[:1] if str(one).startswith(f"{tempfile.tempdir}/"))


def vanishing(path: Path) -> contextlib.AbstractContextManager:
    """Remove a file of the source between its two passes."""
    remove_stale = writer.output.remove_stale

    def remove(given: Any) -> None:
        path.unlink()
        remove_stale(given)

    return mock.patch.object(writer.output, "remove_stale", remove)


def put(kind: str, content: Any) -> None:
    print(json.dumps({kind: content}), file=OUT, flush=True)


if __name__ == "__main__":
    cases = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory(prefix="rows") as tempfile.tempdir:
        sys.addaudithook(note)
        for one in cases:
            put("answer", answer(one))
