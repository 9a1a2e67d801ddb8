"""Shards written by Apache Beam: on Dataflow's machines, or on this one.

The plan is made here, by the launcher; every shard becomes an element of a Beam pipeline of
one step, which does what a process of this machine would do. Beam carries names alone, the
examples of a shard travel as a file (dataflow_tasks.py), and a worker that finds the shard already
written leaves it as it is: killed and run again, whole shards are kept.

Apache Beam is imported where a run begins: no other run pays for it.
"""

import contextlib
import importlib.util
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, Protocol

from trainer.data import storage
from trainer.data.sources import Source
from trainer.data.write.dataflow import DataflowJob, RunOnDataflow
from trainer.data.write.dataflow_tasks import Parcels, write_parcel
from trainer.data.write.shards import ShardResult, ShardTask, ShardWriter
from trainer.data.write.table_plan import RowTask
from trainer.errors import InputError

REMOTE_SECONDS = 5.0
LOCAL_SECONDS = 0.1
"""How often results are looked for."""
LINE_SECONDS = 1.0
"""Between two lines about them, at least."""


class BeamEngine:
    """Writes shards with Beam; see `trainer.data.write.engines.Engine`.

    Args:
        job: of Dataflow; None: on this machine, in this process.
        say: takes a line about the job, and every few seconds how many shards are written.

    Raises:
        InputError: Beam is not installed.
    """

    def __init__(self, job: DataflowJob | None, say: Callable[[str], None] = print) -> None:
        if importlib.util.find_spec("apache_beam") is None:
            raise InputError(
                "records_engine='dataflow' needs Apache Beam, which is not installed here; "
                "install the extra [dataflow] (docs/vertex.md, Records beyond one machine), or "
                "use records_engine='local'"
            )
        self._job, self._say = job, say

    def check(self, source: Source, output_uri: str) -> None:
        """Refuses folders that Dataflow's workers do not have."""
        if self._job is None or self._job.sees_this_machine:
            return
        places = {"output": output_uri}
        if not source.is_spilled and source.location:
            places["source"] = source.location
        for name, place in places.items():
            if not storage.is_remote(place):
                raise InputError(
                    f"records_engine='dataflow': Dataflow's workers have no folder {place!r} "
                    f"({name}); give gs://BUCKET/FOLDER, or use records_engine='local'"
                )

    def write(
        self,
        writer: ShardWriter,
        tasks: Iterable[ShardTask | RowTask],
        report: Callable[[int], None],
    ) -> Generator[ShardResult]:
        """Writes `tasks` as the protocol says; a SIGTERM ends the job, too."""
        parcels = Parcels(writer)
        parcels.send(tasks)
        total = len(parcels.examples)
        pause = REMOTE_SECONDS if storage.is_remote(parcels.folder) else LOCAL_SECONDS
        with _sigterm_noted() as told_to_stop:
            run = self._begin(writer, parcels)
            try:
                over, last = False, time.monotonic()
                while not over:
                    over = run.wait(pause)
                    if told_to_stop.is_set():
                        sys.exit(128 + signal.SIGTERM)
                    for result in parcels.receive():
                        report(parcels.examples[result.shard.file])
                        yield result
                    if over or time.monotonic() - last >= LINE_SECONDS:
                        done, last = total - parcels.missing, time.monotonic()
                        self._say(f"create_tfrecords: {done:,}/{total:,} shards written")
                run.raise_failure()
                if parcels.missing:
                    raise RuntimeError(f"{run.name} left {parcels.missing:,} shards unwritten")
            finally:
                parcels.stop()
                run.end()

    def _begin(self, writer: ShardWriter, parcels: Parcels) -> "_Run":
        import apache_beam as beam

        def pipeline(runner: Any, **options: Any) -> Any:
            made = beam.Pipeline(
                runner=runner,
                options=beam.options.pipeline_options.PipelineOptions(
                    # Not the command line of whoever calls: it is none of Beam's.
                    flags=[],
                    # The code is in the image; nothing of __main__ is needed.
                    save_main_session=False,
                    **options,
                ),
            )
            (
                made
                | "Shards" >> beam.Create(sorted(parcels.examples))
                # Else each worker would be bound to the names that it was first given.
                | "Spread" >> beam.Reshuffle()
                | "Write" >> beam.Map(write_parcel, writer=writer, folder=parcels.folder)
            )
            return made

        if self._job is None:
            return _RunHere(pipeline)
        run = RunOnDataflow(self._job, pipeline, writer.fingerprint, parcels.folder)
        self._say(f"create_tfrecords: {run.name} {run.link}")
        return run


class _Run(Protocol):
    """A Beam pipeline that is under way."""

    name: str

    def wait(self, seconds: float) -> bool:
        """Waits for its end so long; whether it has come."""
        ...

    def raise_failure(self) -> None:
        """Raises RuntimeError where it has failed."""
        ...

    def end(self) -> None:
        """Ends it, if it goes on still."""
        ...


class _RunHere:
    """In a thread of this process: a rehearsal, slower than without Beam."""

    name = "Apache Beam"

    def __init__(self, pipeline: Callable[..., Any]) -> None:
        # By its own name: DirectRunner would first look for a program to download.
        from apache_beam.runners.portability.fn_api_runner import FnApiRunner

        made = pipeline(FnApiRunner(), direct_running_mode="in_memory", direct_num_workers=1)
        self._failure: Exception | None = None
        self._over = threading.Event()
        threading.Thread(target=self._run, args=(made,), daemon=True).start()

    def wait(self, seconds: float) -> bool:
        return self._over.wait(seconds)

    def raise_failure(self) -> None:
        if self._failure:
            raise RuntimeError(f"Apache Beam failed: {self._failure}; run again") from None

    def end(self) -> None:
        # It can't be stopped, but ends soon once it was told to begin no other shard.
        self._over.wait()

    def _run(self, pipeline: Any) -> None:
        try:
            pipeline.run().wait_until_finish()
        except Exception as error:
            self._failure = error
        finally:
            self._over.set()


@contextlib.contextmanager
def _sigterm_noted() -> Iterator[threading.Event]:
    """Yield an event for the SIGTERM by which Vertex AI cancels a step.

    Noted and no more, so that a job that is just being started is not left alone.
    """
    noted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield noted
        return
    before = signal.signal(signal.SIGTERM, lambda *_: noted.set())
    try:
        yield noted
    finally:
        signal.signal(signal.SIGTERM, before)
