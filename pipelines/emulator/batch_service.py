"""JobService's BatchPredictionJobs, answered by servers on this machine."""

import datetime
import pathlib
import threading
from typing import Any

from pipelines.emulator import batch_rules
from pipelines.emulator.api_error import ApiError, not_found
from pipelines.emulator.batch_job import BatchJob
from pipelines.emulator.labels import filtered
from pipelines.emulator.model_service import ModelService
from pipelines.emulator.operations import PAGE_SIZE, Operations, page
from pipelines.emulator.processes import Guardian
from pipelines.emulator.resource_files import ResourceFiles


class BatchService:
    """Runs BatchPredictionJobs; a context manager, which cancels what still runs when it is left.

    Args:
        directory: keeps a folder of logs for each job.
        models: whose versions answer.
        folder: keeps the jobs beyond this process; None: memory alone.

    Attributes:
        jobs: every job that was taken, in order of creation.
        refusals: the reason for each job that was not.
    """

    page_size = PAGE_SIZE

    def __init__(
        self,
        directory: pathlib.Path,
        guardian: Guardian,
        models: ModelService,
        operations: Operations,
        folder: pathlib.Path | None = None,
    ) -> None:
        self.jobs: list[BatchJob] = []
        self.refusals: list[str] = []
        self._directory, self._guardian = directory, guardian
        self._models, self._operations = models, operations
        self._lock = threading.Lock()
        self._messages = ResourceFiles(folder, "BatchPredictionJob")

    def __enter__(self) -> "BatchService":
        return self

    def __exit__(self, *_: Any) -> None:
        self.kill()
        self.join()

    def cancel(self) -> None:
        """Cancel every job."""
        for job in self.jobs:
            job.cancel()

    def kill(self) -> None:
        """Cancel every job, and end its servers at once."""
        self.cancel()
        for job in self.jobs:
            for process in job.replicas:
                process.kill()

    def join(self) -> None:
        """Wait until every job is in a final state."""
        for job in self.jobs:
            job.join()

    def create_batch_prediction_job(self, request: Any) -> Any:
        from google.cloud.aiplatform_v1 import types

        message = types.BatchPredictionJob(request.batch_prediction_job)
        try:
            batch_rules.check(message, request.parent)
            model = self._models.get_model(types.GetModelRequest(name=message.model))
        except ApiError as error:
            self.refusals.append(str(error))
            raise
        number = self._messages.next_id()
        message.name = f"{request.parent}/batchPredictionJobs/{number}"
        message.model_version_id = model.version_id
        message.create_time = datetime.datetime.now(datetime.timezone.utc)
        directory = self._directory / f"batch-prediction-{number}"
        job = BatchJob(message, model, directory, self._guardian, self._keep)
        self.jobs.append(job)
        job.start()
        return message

    def get_batch_prediction_job(self, request: Any) -> Any:
        return self._find(request.name)

    def list_batch_prediction_jobs(self, request: Any) -> Any:
        from google.cloud.aiplatform_v1 import types

        found = filtered(self._messages.values(), request.filter)
        jobs, token = page(found, request, self.page_size)
        return types.ListBatchPredictionJobsResponse(
            batch_prediction_jobs=jobs, next_page_token=token
        )

    def cancel_batch_prediction_job(self, request: Any) -> None:
        """Ask a job to end; one that has ended is left as it is."""
        self._find(request.name)
        for job in self.jobs:
            if job.message.name == request.name:
                job.cancel()

    def delete_batch_prediction_job(self, request: Any) -> Any:
        message = self._find(request.name)
        batch_rules.check_ended(message.name, message.state.name.removeprefix("JOB_STATE_"))
        del self._messages[message.name.rpartition("/")[2]]
        return self._operations.start(request.name)

    def _keep(self, message: Any) -> None:
        with self._lock:
            self._messages[message.name.rpartition("/")[2]] = message

    def _find(self, name: str) -> Any:
        message = self._messages.get(name.rpartition("/")[2])
        if message is None:
            raise not_found(name)
        return message
