"""JobService's HyperparameterTuningJobs, which run their trials as CustomJobs."""

import dataclasses
import pathlib
from typing import Any, ClassVar

from vertex_emulator import tuning_job, tuning_rules
from vertex_emulator.folder_jobs import CANCEL_FILE_NAME, FolderJobs, name_folder
from vertex_emulator.job_service import JobService
from vertex_emulator.messages import state_of
from vertex_emulator.processes import new_folder
from vertex_emulator.tuning_job import TuningJob
from vertex_facts.jobs import ENDED, TASK_LABEL


@dataclasses.dataclass(eq=False, kw_only=True)
class TuningService(FolderJobs[TuningJob]):
    """The service of HyperparameterTuningJobs; it also lists those of other processes."""

    kind = "HyperparameterTuningJob"
    trials: JobService  # runs the trials' jobs; to be closed after this service

    patterns: ClassVar[tuple[str, ...]] = (f"*/{tuning_job.FILE_NAME}",)

    def read_state(self, folder: pathlib.Path) -> dict[str, Any]:
        return tuning_job.read(folder)

    def check(self, job: Any, parent: str) -> None:
        tuning_rules.check(job, parent)

    def begin(self, job: Any) -> None:
        directory = self._take_over(job) or new_folder(self.logs_of(job), name_folder(job))
        self.add(TuningJob(job, directory, self.trials))

    def _take_over(self, job: Any) -> pathlib.Path | None:
        """Give a job the trials of an earlier one of its task and study; return their folder."""
        task = job.labels.get(TASK_LABEL)
        for path in sorted(self.logs_of(job).glob(self.patterns[0])) if task else ():
            earlier = self.read(path.parent)
            is_same = earlier.labels.get(TASK_LABEL) == task
            if is_same and earlier.study_spec == job.study_spec and state_of(earlier) in ENDED:
                job.trials = earlier.trials
                (path.parent / CANCEL_FILE_NAME).unlink(missing_ok=True)
                return path.parent
        return None

    def list_page(self, request: Any) -> Any:
        """Return a page of the list, without the trials of the jobs."""
        page = super().list_page(request)
        for job in page._pb.hyperparameter_tuning_jobs:
            job.ClearField("trials")
        return page

    def cancel_hyperparameter_tuning_job(self, request: Any) -> None:
        """Ask a HyperparameterTuningJob of any process to end."""
        self.ask_to_cancel(request.name)
