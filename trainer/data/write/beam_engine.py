"""Create datasets with Apache Beam, on Dataflow or on this machine.

    engine = open_engine(EngineOptions(records_engine="dataflow"), project="my-project", ...)
    create_tfrecords(options, "gs://bucket/records", engine=engine)

A single pipeline does all the work (beam_pipeline.py). This process starts it, waits until it has
ended, and reads dataset.json. Apache Beam is imported only when such a run begins.
"""

import contextlib
import functools
import importlib.util
import json
import logging
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from trainer.data import storage
from trainer.data.schema import Dataset, load_dataset
from trainer.data.storage import join
from trainer.data.write.dataflow import RunOnDataflow, build_job_options
from trainer.data.write.open_source import OpenSource
from trainer.data.write.output import JOB, UNFINISHED, is_shard
from trainer.data.write.record_options import EngineOptions
from vertex.errors import InputError

ENDPOINT_VARIABLE = "CLOUDSDK_API_ENDPOINT_OVERRIDES_DATAFLOW"
"""gcloud's environment variable for an endpoint other than Google's."""
LABELS_VARIABLE = "VERTEX_AI_PIPELINES_RUN_LABELS"
"""Vertex AI's variable of the run's labels, which it gives to the jobs of its own components."""

_ON_THIS_MACHINE = ("", "local")
"""Values of the project in a run on this machine."""
REMOTE_SECONDS = 5.0
LOCAL_SECONDS = 0.1
"""Seconds between two checks whether the run has ended."""
WORKERS = 1
"""Number of Beam's workers on this machine: starting more takes longer than a local run."""
LINE_SECONDS = 1.0
"""Minimum seconds between two lines about shards."""


class BeamEngine:
    """Creates datasets with Beam; raises InputError if Beam is not installed.

    Args:
        job: Dataflow's options, from `build_job_options`; None: run in this process.
    """

    def __init__(self, job: dict[str, Any] | None) -> None:
        if importlib.util.find_spec("apache_beam") is None:
            raise InputError(
                "records_engine='dataflow' needs Apache Beam, which is not installed; "
                "install the extra [dataflow] (docs/vertex-special.md), or "
                "use records_engine='local'"
            )
        self._job = job

    def check(self, source: OpenSource, output_uri: str) -> None:
        """Raise InputError for a URI on this machine, which Dataflow's workers can't reach."""
        if self._job is None or "no_auth" in self._job:
            return
        for name, uri in {"output": output_uri, "source": source.location}.items():
            if uri and not storage.is_remote(uri):
                raise InputError(
                    f"records_engine='dataflow': {name}={uri!r} is on this machine, which "
                    "Dataflow's workers can't read; use gs://BUCKET/..., or records_engine='local'"
                )

    def create(
        self,
        source: OpenSource,
        output_uri: str,
        check: Callable[[], None],
        progress: Callable[[str], None],
    ) -> Dataset:
        """Write the dataset as `create_tfrecords` does; SIGTERM ends the job, too.

        Args:
            check: raises an error if another writer has taken the folder; called on any machine.
            progress: called with a line about the job, and every few seconds with the number of
                shards written.

        Raises:
            InputError: as `create_tfrecords`, or the job can't be started.
            RuntimeError: the job failed.
        """
        from trainer.data.write.beam_pipeline import ERROR, RecordsPipeline

        folder = join(output_uri, UNFINISHED, f"{JOB}{secrets.token_hex(4)}")
        with storage.catch_write_errors(output_uri):
            storage.make_folder(folder)
        pipeline = RecordsPipeline(source, output_uri, folder, check)
        pause = REMOTE_SECONDS if storage.is_remote(folder) else LOCAL_SECONDS
        with _catch_sigterm() as sigterm:
            run: Any
            if self._job is None:
                run = _RunOnThisMachine(pipeline.begin)
            else:
                run = RunOnDataflow(self._job, pipeline.begin, output_uri, folder)
                progress(f"create_tfrecords: {run.name} {run.link}")
            try:
                ended, last = False, time.monotonic()
                while not ended:
                    ended = run.wait(pause)
                    if sigterm.is_set():
                        sys.exit(128 + signal.SIGTERM)
                    if storage.exists(join(folder, ERROR)):
                        raise InputError(storage.read(join(folder, ERROR)).decode())
                    if ended or time.monotonic() - last >= LINE_SECONDS:
                        count = sum(is_shard(name) for name, _ in storage.list_entries(output_uri))
                        progress(f"create_tfrecords: {count:,} shards written")
                        last = time.monotonic()
                run.raise_failure()
                return load_dataset(output_uri)
            finally:
                run.end()
                with contextlib.suppress(Exception):  # Don't hide an error that is being raised.
                    storage.remove_folder(folder)


def open_engine(
    options: EngineOptions,
    *,
    project: str,
    environment: Mapping[str, str],
    **job: str,
) -> BeamEngine | None:
    """Return the engine that `options` name; None: this machine's own processes.

    Raise InputError if Apache Beam is needed but not installed.

    Args:
        project: of Google Cloud; "local" for a run on this machine.
        environment: may set another endpoint of Dataflow, by gcloud's variable, and labels.
        job: the region, image, service_account, network and encryption_key of `build_job_options`.
    """
    if options.records_engine == "local":
        return None
    if project in _ON_THIS_MACHINE:
        return BeamEngine(None)
    found = build_job_options(
        options,
        project=project,
        labels=json.loads(environment.get(LABELS_VARIABLE, "{}")),
        endpoint=environment.get(ENDPOINT_VARIABLE, "").rstrip("/"),
        **job,
    )
    return BeamEngine(found)


class _RunOnThisMachine:
    """A run in a thread of this process, which is slower than a run without Beam."""

    def __init__(self, pipeline: Callable[..., Any]) -> None:
        # DirectRunner would first search for a program to download.
        from apache_beam.runners.portability.fn_api_runner import FnApiRunner

        # The runner logs each exception with its stack trace, even for a user's mistake.
        logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
        mode = "in_memory" if WORKERS == 1 else "multi_processing"
        begin = functools.partial(
            pipeline, FnApiRunner(), direct_running_mode=mode, direct_num_workers=WORKERS
        )
        self._failure: Exception | None = None
        self._ended = threading.Event()
        threading.Thread(target=self._run, args=(begin,), daemon=True).start()

    def wait(self, seconds: float) -> bool:
        """Wait up to `seconds`; return whether the run has ended."""
        return self._ended.wait(seconds)

    def raise_failure(self) -> None:
        """Raise RuntimeError if the run has failed."""
        if self._failure:
            raise RuntimeError(f"Apache Beam failed: {self._failure}; run again") from None

    def end(self) -> None:
        # After an error the thread ends soon. It can't be stopped, but ends with this process.
        self._ended.wait(LINE_SECONDS)

    def _run(self, begin: Callable[[], Any]) -> None:
        try:
            begin().wait_until_finish()
        except Exception as error:
            self._failure = error
        finally:
            self._ended.set()


@contextlib.contextmanager
def _catch_sigterm() -> Iterator[threading.Event]:
    """Yield an event that SIGTERM sets, so that even a job that is just starting gets cancelled."""
    noted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield noted
        return
    before = signal.signal(signal.SIGTERM, lambda *_: noted.set())
    try:
        yield noted
    finally:
        signal.signal(signal.SIGTERM, before)
