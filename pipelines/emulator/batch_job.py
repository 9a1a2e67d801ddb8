"""A BatchPredictionJob on this machine: this project's server as each replica's container.

Each replica's server loads the model; batches of the input are sent to whichever is idle, and
the answers written as Vertex AI writes them:

    prediction.results-00000-of-00002              {"instance": ..., "prediction": ...} a line
    prediction.errors_stats-00000-of-00002         {"instance": ..., "error": {"code", "message"}}

https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/predictions/get-batch-predictions
"""

import concurrent.futures
import datetime
import itertools
import json
import pathlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from pipelines.emulator.batch_input import Instance, instances
from pipelines.emulator.custom_job import TASK_LABEL
from pipelines.emulator.model_server import ModelServer
from pipelines.emulator.processes import Guardian, Process
from trainer.data import storage
from trainer.errors import InputError

BATCH_SIZE = 64
"""Instances a request, unless the job says otherwise."""
_LOAD_SECONDS = 40 * 60.0
_POLL_SECONDS = 0.1
_INVALID, _INTERNAL, _CANCELLED = 3, 13, 1


class BatchJob:
    """Runs a BatchPredictionJob that `batch_rules.check` has let pass.

    Args:
        message: the job, which is kept up to date.
        model: the version of the registry that answers.
        directory: for the log of each replica's server.
        keep: is called after each change of the message.

    Attributes:
        error: why it failed; empty otherwise.
        replicas: their servers.
    """

    def __init__(
        self,
        message: Any,
        model: Any,
        directory: pathlib.Path,
        guardian: Guardian,
        keep: Callable[[Any], None],
    ) -> None:
        self.message = message
        self.error = self._first_failure = ""
        self.replicas: list[Process] = []
        self._model, self._directory, self._guardian, self._keep = model, directory, guardian, keep
        self._cancelled = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="batch-prediction", daemon=True)

    @property
    def state(self) -> str:
        """PENDING, RUNNING, SUCCEEDED, FAILED or CANCELLED."""
        return self.message.state.name.removeprefix("JOB_STATE_")

    @property
    def launched_by(self) -> str:
        """The pipeline's task whose launcher created the job; empty if none did."""
        return self.message.labels.get(TASK_LABEL, "")

    def start(self) -> None:
        self._set("PENDING")
        self._thread.start()

    def join(self) -> None:
        """Wait for a final state, in which no server is left."""
        self._thread.join()

    def cancel(self) -> None:
        """Let no further batch be sent; returns at once."""
        self._cancelled.set()

    def _run(self) -> None:
        stats = self.message.completion_stats
        code = 0
        try:
            chunks = self._chunks()
            servers = [self._start_server(n) for n in range(self._replica_count)]
            for server in servers:
                self._wait_until_healthy(server)
            self._set("RUNNING")
            if not self._cancelled.is_set():
                self._predict(chunks, servers)
                if not stats.successful_count:
                    self.error, code = self._first_failure or "the input has no instance", _INVALID
        except InputError as error:
            self.error, code = str(error), _INVALID
        # Whatever it is: a job without a final state would be waited for without end.
        except Exception as error:
            self.error, code = f"{type(error).__name__}: {error}", _INTERNAL
        for process in self.replicas:
            process.kill()
        for process in self.replicas:
            process.finished.wait()
        if self._cancelled.is_set():
            self.message.error.code = _CANCELLED
            self._set("CANCELLED")
        elif code:
            self.message.error.code, self.message.error.message = code, self.error
            self._set("FAILED")
        else:
            self._set("SUCCEEDED")

    @property
    def _replica_count(self) -> int:
        return self.message.dedicated_resources.starting_replica_count or 1

    def _chunks(self) -> Iterator[list[Instance]]:
        """Return the input in batches; its first is read, so that no server starts for nothing."""
        config = self.message.input_config
        if "bigquery" in (config.instances_format, self.message.output_config.predictions_format):
            raise InputError("there is no BigQuery on this machine; give files, or run it there")
        if self.message.instance_config:
            raise InputError("instance_config is for BigQuery, which is not on this machine")
        found = instances(config.instances_format, list(config.gcs_source.uris))
        first = list(itertools.islice(found, 1))
        size = self.message.manual_batch_tuning_parameters.batch_size or BATCH_SIZE
        rest = itertools.chain(first, found)
        return iter(lambda: list(itertools.islice(rest, size)), [])

    def _start_server(self, number: int) -> ModelServer:
        log = self._directory / f"server-{number}.log"
        server = ModelServer(self._model, self._model.artifact_uri, log, self._guardian)
        self.replicas.append(server.process)
        return server

    def _wait_until_healthy(self, server: ModelServer) -> None:
        process = server.process
        for _ in range(int(_LOAD_SECONDS / _POLL_SECONDS)):
            if server.is_healthy:
                return
            if process.finished.wait(_POLL_SECONDS):
                break
            if self._cancelled.is_set():
                return
        raise InputError(
            "model server never became ready. Please validate that your model file or container "
            f"configuration are valid; its log is {process.log}"
        )

    def _predict(self, chunks: Iterator[list[Instance]], servers: list[ModelServer]) -> None:
        """Write what the servers answer, each into files of its own."""
        folder = self._output_directory()
        storage.make_folder(folder)
        self.message.output_info.gcs_output_directory = folder
        with concurrent.futures.ThreadPoolExecutor(len(servers)) as pool:
            futures = [
                pool.submit(self._predict_by, one, chunks, folder, f"{n:05}-of-{len(servers):05}")
                for n, one in enumerate(servers)
            ]
            for future in futures:
                future.result()

    def _predict_by(
        self, server: ModelServer, chunks: Iterator[list[Instance]], folder: str, part: str
    ) -> None:
        """Send batches to a server until there are no more."""
        results, failures = (
            f"{folder}/prediction.{name}-{part}" for name in ("results", "errors_stats")
        )
        with storage.open_file(results, "wb") as good, storage.open_file(failures, "wb") as bad:
            while not self._cancelled.is_set():
                with self._lock:
                    chunk = next(chunks, None)
                if chunk is None:
                    return
                sound = [one for one in chunk if not one.error]
                answers, why = self._answers(server, sound) if sound else ([], "")
                for one, prediction in zip(sound, answers, strict=False):
                    _write(good, {"instance": one.shown, "prediction": prediction})
                failed = [(one, one.error) for one in chunk if one.error]
                failed += [(one, why) for one in sound if why]
                for one, message in failed:
                    error = {"code": _INVALID, "message": message}
                    _write(bad, {"instance": one.shown, "error": error})
                self._count(len(answers), [message for _, message in failed])

    def _answers(self, server: ModelServer, sound: list[Instance]) -> tuple[list[Any], str]:
        """Return a server's predictions, or none and why: a request is answered as a whole."""
        status, content = server.ask({"instances": [one.sent for one in sound]})
        predictions = content.get("predictions", [])
        if status != 200 or len(predictions) != len(sound):
            return [], f"{status}: {content.get('error', 'no prediction for each instance')}"
        return predictions, ""

    def _count(self, successful: int, failures: list[str]) -> None:
        with self._lock:
            stats = self.message.completion_stats
            stats.successful_count += successful
            stats.failed_count += len(failures)
            self._first_failure = self._first_failure or "".join(failures[:1])

    def _output_directory(self) -> str:
        time = self.message.create_time.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
        prefix = self.message.output_config.gcs_destination.output_uri_prefix.rstrip("/")
        return f"{prefix}/prediction-{self._model.display_name}-{time}Z"

    def _set(self, state: str) -> None:
        now = datetime.datetime.now(datetime.timezone.utc)
        self.message.state = f"JOB_STATE_{state}"
        self.message.update_time = now
        if state == "RUNNING":
            self.message.start_time = now
        elif state != "PENDING":
            self.message.end_time = now
        self._keep(self.message)


def _write(file: Any, content: dict[str, Any]) -> None:
    file.write(json.dumps(content).encode() + b"\n")
