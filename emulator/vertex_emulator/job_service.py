"""JobService: CustomJobs, run as processes or containers on this machine."""

import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from vertex_emulator import job_rules, job_state
from vertex_emulator.containers import Containers
from vertex_emulator.custom_job import CustomJob
from vertex_emulator.environment import Program, run_command
from vertex_emulator.folder_jobs import FolderJobs, name_folder
from vertex_emulator.messages import id_of
from vertex_emulator.processes import new_folder
from vertex_facts.jobs import ROLES

TRIAL_LABEL = "vertex-emulator-trial"
"""Label of a trial's CustomJob: the ID of its HyperparameterTuningJob, a hyphen and the trial's."""
_TRIAL_FOLDER = "trial-"


@dataclasses.dataclass(eq=False, kw_only=True)
class JobService(FolderJobs[CustomJob]):
    """The service of CustomJobs, which runs them and also lists the jobs of other processes."""

    kind = "CustomJob"
    containers: Containers | None = None
    # Without containers, returns the program that runs in place of an image with a command.
    program: Callable[[str, Sequence[str]], Program] = run_command

    patterns: ClassVar[tuple[str, ...]] = (
        f"*/{job_state.FILE_NAME}",
        f"*/{_TRIAL_FOLDER}*/{job_state.FILE_NAME}",
    )

    def read_state(self, folder: pathlib.Path) -> dict[str, Any]:
        return job_state.read(folder).job

    def check(self, job: Any, parent: str) -> None:
        job_rules.check(job, parent)

    def begin(self, job: Any) -> None:
        tuning_job, _, trial = job.labels.get(TRIAL_LABEL, "").rpartition("-")
        logs = self.run_logs.get(tuning_job) or self.logs_of(job)
        directory = new_folder(logs, f"{_TRIAL_FOLDER}{trial}" if trial else name_folder(job))
        if trial and self.containers:
            # The image runs as another user, whose processes report metrics here.
            directory.chmod(0o777)
        execution = self.guardian, self.containers, self.program, trial
        self.add(CustomJob(job, directory, *execution))

    def cancel_custom_job(self, request: Any) -> None:
        """Ask a CustomJob of any process to end."""
        self.ask_to_cancel(request.name)

    def read_log_entries(self) -> list[dict[str, Any]]:
        """Return the log lines of all replicas, as entries of Cloud Logging."""
        entries = []
        for name, folder in self.find_folders().items():
            for path in sorted(folder.glob("*-*.log")):
                role, _, index = path.stem.rpartition("-")
                replica = f"workerpool{ROLES.index(role)}-{index}"
                labels = {"job_id": id_of(name), "task_name": replica}
                entries += [
                    {"resource": {"type": "ml_job", "labels": labels}, "textPayload": line}
                    for line in path.read_text(errors="replace").splitlines()
                ]
        return entries
