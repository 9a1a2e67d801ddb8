"""JobService's BatchPredictionJobs, run by model servers on this machine."""

import pathlib
from typing import Any

from pipelines.emulator import messages
from pipelines.emulator.background_jobs import BackgroundJobs
from pipelines.emulator.batch_job import BatchJob
from pipelines.emulator.messages import id_of
from pipelines.emulator.model_service import ModelService
from pipelines.emulator.operations import Operations
from pipelines.emulator.processes import Guardian


class BatchService(BackgroundJobs[BatchJob]):
    """The service of BatchPredictionJobs.

    Args:
        directory: takes a folder of logs for each job.
        models: holds the models that predict.
        folder: stores the jobs beyond this process; None: they are kept in memory only.
    """

    kind = "BatchPredictionJob"

    def __init__(
        self,
        directory: pathlib.Path,
        guardian: Guardian,
        models: ModelService,
        operations: Operations,
        folder: pathlib.Path | None = None,
    ) -> None:
        super().__init__(operations, folder)
        self._directory, self._guardian, self._models = directory, guardian, models

    def begin(self, job: Any) -> None:
        model = self._models.find(job.model)
        job.model_version_id = model.version_id
        job.state = messages.JobState.JOB_STATE_PENDING
        directory = self._directory / f"batch-prediction-{id_of(job.name)}"
        self.jobs.append(BatchJob(job, model, self._models, directory, self._guardian, self.store))

    def cancel_batch_prediction_job(self, request: Any) -> None:
        """Ask a job to end; do nothing if it has ended."""
        self.find(request.name)
        for job in self.jobs:
            if job.message.name == request.name:
                job.cancel()
