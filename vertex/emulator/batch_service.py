"""JobService's BatchPredictionJobs, run by model servers on this machine, one a replica.

Each replica's server loads the model. Batches of the input go to the next idle server, and the
predictions are written in Vertex AI's format, one JSON object per line:

    prediction.results-00000-of-00002              {"instance": ..., "prediction": ...}
    prediction.errors_stats-00000-of-00002         {"instance": ..., "error": {"code", "message"}}

https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/predictions/get-batch-predictions
"""

import concurrent.futures
import dataclasses
import itertools
import json
import pathlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from vertex.emulator import environment, files
from vertex.emulator.api_error import code_of
from vertex.emulator.background_jobs import BackgroundJob, BackgroundJobs, End, name_folder
from vertex.emulator.batch_input import Instance, read_instances
from vertex.emulator.batch_rules import check_input, check_model, check_output
from vertex.emulator.field_rules import check_machine, refuse, refuse_state
from vertex.emulator.job_state import BATCH_FILE_NAME
from vertex.emulator.messages import state_of
from vertex.emulator.model_server import HEALTH_SECONDS, ModelServer
from vertex.emulator.model_service import ModelService
from vertex.emulator.processes import Process, new_folder
from vertex.errors import InputError
from vertex.facts.jobs import ENDED

BATCH_SIZE = 64
"""Instances per request, unless the job sets it."""
_LOAD_SECONDS = 40 * 60.0
_ANSWER_SECONDS = 600.0
"""Time limit of a replica for the answer to a request."""
_POLL_SECONDS = 0.1


class BatchJob(BackgroundJob):
    """A run of a BatchPredictionJob that a service has accepted, by a version of a model."""

    file_name = BATCH_FILE_NAME

    def __init__(
        self, message: Any, directory: pathlib.Path, model: Any, service: "BatchService"
    ) -> None:
        super().__init__(message, directory)
        self._model, self._service, self._models = model, service, service.models
        self._storage = service.storage
        self._first_failure = ""
        self._servers: list[ModelServer] = []
        self._lock = threading.Lock()
        self.set_state("PENDING")

    @property
    def processes(self) -> list[Process]:
        return [server.process for server in self._servers]

    def execute(self) -> End:
        """Start the servers and predict to the end of the input."""
        chunks = self._read_chunks()
        artifacts = self._models.artifacts(f"{self._model.name}@{self._model.version_id}")
        for number in range(self.message.dedicated_resources.starting_replica_count or 1):
            log = self.directory / f"server-{number}.log"
            program = self._service.program(self._model)
            server = ModelServer(self._model, program, artifacts, log, self._service.guardian)
            self._servers.append(server)
        for server in self._servers:
            self._wait_until_healthy(server)
        self.set_state("RUNNING")
        if not self.is_cancelled:
            self._predict(chunks)
        if self.is_cancelled:
            return End("CANCELLED", "CANCELLED")
        if not self.message.completion_stats.successful_count:
            error = self._first_failure or "the input has no instance"
            return End("FAILED", "INVALID_ARGUMENT", error)
        return End("SUCCEEDED")

    def stop(self, state: str) -> None:
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.finished.wait()

    def _read_chunks(self) -> Iterator[list[Instance]]:
        """Return the input in batches; read the first instance, to fail before servers start."""
        config = self.message.input_config
        if "bigquery" in (config.instances_format, self.message.output_config.predictions_format):
            raise InputError(
                "BigQuery is not available on this machine; give files, or run the job on Vertex AI"
            )
        uris = list(config.gcs_source.uris)
        instances = read_instances(config.instances_format, uris, self._models.local, self._storage)
        instances = itertools.chain(list(itertools.islice(instances, 1)), instances)
        size = self.message.manual_batch_tuning_parameters.batch_size or BATCH_SIZE
        return iter(lambda: list(itertools.islice(instances, size)), [])

    def _wait_until_healthy(self, server: ModelServer) -> None:
        process = server.process
        for _ in range(int(_LOAD_SECONDS / _POLL_SECONDS)):
            if server.is_healthy(HEALTH_SECONDS):
                return
            if process.finished.wait(_POLL_SECONDS):
                break
            if self.is_cancelled:
                return
        raise InputError(
            "model server never became ready. Please validate that your model file or container "
            f"configuration are valid; its log is {process.log}"
        )

    def _predict(self, chunks: Iterator[list[Instance]]) -> None:
        """Write the predictions, with one pair of files per server."""
        prefix = self.message.output_config.gcs_destination.output_uri_prefix.rstrip("/")
        time = self.message.create_time.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
        folder = f"{prefix}/prediction-{self._model.display_name}-{time}Z"
        self.message.output_info.gcs_output_directory = folder
        folder = self._models.local(folder)
        self._storage.make_folder(folder)
        count = len(self._servers)
        parts = [f"{folder}/prediction.%s-{n:05}-of-{count:05}" for n in range(count)]
        with concurrent.futures.ThreadPoolExecutor(count) as pool:
            list(pool.map(self._predict_by, self._servers, parts, itertools.repeat(chunks)))

    def _predict_by(self, server: ModelServer, part: str, chunks: Iterator[list[Instance]]) -> None:
        """Send batches to a server until there are no more."""
        results, failures = part % "results", part % "errors_stats"
        open_file = self._storage.open_file
        with open_file(results, "wb") as good, open_file(failures, "wb") as bad:
            while not self.is_cancelled:
                with self._lock:
                    chunk = next(chunks, None)
                if chunk is None:
                    return
                sound = [instance for instance in chunk if not instance.error]
                answers, why = self._ask_server(server, sound) if sound else ([], "")
                for instance, prediction in zip(sound, answers, strict=False):
                    _write(good, {"instance": instance.shown, "prediction": prediction})
                failed = [(instance, instance.error) for instance in chunk if instance.error]
                failed += [(instance, why) for instance in sound if why]
                for instance, message in failed:
                    error = {"code": code_of("INVALID_ARGUMENT"), "message": message}
                    _write(bad, {"instance": instance.shown, "error": error})
                self._count(len(answers), [message for _, message in failed])

    def _ask_server(self, server: ModelServer, sound: list[Instance]) -> tuple[list[Any], str]:
        """Return a server's predictions and "", or [] and the error of the whole request."""
        try:
            body = {"instances": [instance.sent for instance in sound]}
            status, content = server.ask(body, _ANSWER_SECONDS)
        except TimeoutError:
            return [], f"504: no answer within {_ANSWER_SECONDS:g} s (upstream request timeout)"
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


@dataclasses.dataclass(eq=False, kw_only=True)
class BatchService(BackgroundJobs[BatchJob]):
    """The service of BatchPredictionJobs."""

    kind = "BatchPredictionJob"
    file_name = BATCH_FILE_NAME
    models: ModelService  # holds the models that predict
    # Returns the program that serves a Model.
    program: Callable[[Any], environment.Program] = environment.run_server
    storage: Any = files  # has functions for files of every kind of URI in use

    def check(self, job: Any, parent: str) -> None:
        super().check(job, parent)
        check_model(job, parent)
        check_input(job)
        check_output(job)
        explained = job.generate_explanation or "explanation_spec" in job
        refuse(explained, "explanations are not supported here")
        check_machine(job.dedicated_resources, "batch_prediction_job", parent)

    def begin(self, job: Any) -> None:
        model = self.models.find_servable(job.model)
        job.model_version_id = model.version_id
        directory = new_folder(self.logs_of(job), name_folder(job))
        self.add(BatchJob(job, directory, model, self))

    def check_deletable(self, job: Any) -> None:
        refuse_state(state_of(job) not in ENDED, f"{job.name} has not ended; cancel it first")


def _write(file: Any, content: dict[str, Any]) -> None:
    file.write(json.dumps(content).encode() + b"\n")
