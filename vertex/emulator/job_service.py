"""JobService's CustomJobs, run as processes or containers on this machine, one a replica.

A job succeeds when its primary (replica 0 of pool 0) exits with 0; the others are then shut down.
`restart_rules` decides what happens when a replica fails.
"""

import dataclasses
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any

from vertex.emulator import job_rules, job_state
from vertex.emulator.background_jobs import BackgroundJob, BackgroundJobs, End, name_folder
from vertex.emulator.clock import Clock
from vertex.emulator.containers import Containers
from vertex.emulator.environment import Program, run_command
from vertex.emulator.field_rules import refuse_state
from vertex.emulator.http_rules import to_json
from vertex.emulator.job_rules import LONGEST_SECONDS
from vertex.emulator.messages import id_of, parent_of, state_of
from vertex.emulator.processes import Guardian, Process, new_folder
from vertex.emulator.replica_process import Replica, create_replicas
from vertex.facts.jobs import ENDED, ROLES
from vertex.facts.restart_rules import choose_consequence, error_message, is_lost, stockout_message

TRIAL_LABEL = "vertex-emulator-trial"
"""Label of a trial's CustomJob: the ID of its HyperparameterTuningJob, a hyphen and the trial's."""
_TRIAL_FOLDER = "trial-"
CANCEL_GRACE_SECONDS = 30.0
SHUTDOWN_GRACE_SECONDS = 5.0
_POLL_SECONDS = 0.05


class CustomJob(BackgroundJob):
    """A run of a CustomJob that `job_rules.check` has accepted."""

    file_name = job_state.FILE_NAME
    failure = "a replica could not be started: "
    replicas: list[Replica]

    def __init__(
        self,
        message: Any,
        directory: pathlib.Path,
        guardian: Guardian,
        containers: Containers | None = None,
        program: Callable[[str, Sequence[str]], Program] = run_command,
        trial: str = "",  # the ID of the trial whose job this is, if it is one's
        local: Callable[[str], str] = str,  # returns the path of a file in Cloud Storage
    ) -> None:
        super().__init__(message, directory)
        self.retries = 0  # attempts of the whole job after the first
        self._guardian, self._containers = guardian, containers
        self._spec = message.job_spec
        runner = None if containers else program
        self.replicas = create_replicas(self._spec, directory, runner, trial, local)
        self.set_state("QUEUED")

    @property
    def processes(self) -> list[Process]:
        return [replica.process for replica in self.replicas if replica.process]

    def execute(self) -> End:
        """Run the replicas to the end of the job."""
        self.set_state("PENDING")
        for replica in self.replicas:
            replica.start(self._guardian, self._containers)
        self.set_state("RUNNING")
        seconds = self._spec.scheduling.timeout.total_seconds() or LONGEST_SECONDS
        deadline = time.monotonic() + seconds
        while not self.wait_for_cancel():
            if time.monotonic() > deadline:
                error = (
                    f"The job ran longer than its timeout of {seconds:g} s. Raise the parameter "
                    "timeout, or max_cost if that shortened it."
                )
                return End("FAILED", "DEADLINE_EXCEEDED", error)
            for replica in self.replicas:
                if not replica.has_ended:
                    continue
                replica.note_end()
                if replica.status == 0:
                    self.store()
                    if replica is self.replicas[0]:
                        return End("SUCCEEDED")
                elif not self._restart(replica):
                    self.failed_replica = replica
                    return End("FAILED", "INTERNAL", self._explain(replica))
        return End("CANCELLED", "CANCELLED")

    def stop(self, state: str) -> None:
        cancelled = state == "CANCELLED"
        self._shut_down(CANCEL_GRACE_SECONDS if cancelled else SHUTDOWN_GRACE_SECONDS)

    @property
    def _is_spot(self) -> bool:
        return bool(self._spec.scheduling.strategy.name == "SPOT")

    def _explain(self, replica: Replica) -> str:
        """Return the error of the job that a replica has failed."""
        if self._is_spot and is_lost(replica.status) and not replica.out_of_memory:
            return stockout_message(self.message.name.split("/")[3])
        return error_message(replica.pool_name, replica.status, out_of_memory=replica.out_of_memory)

    def _restart(self, replica: Replica) -> bool:
        """Restart a failed replica, or all replicas, if the rules allow; return whether they do."""
        scheduling = self._spec.scheduling
        follows = choose_consequence(
            replica.status,
            restarts=replica.restarts,
            retries=self.retries,
            disable_retries=scheduling.disable_retries,
            spot=self._is_spot,
            out_of_memory=replica.out_of_memory,
        )
        if follows == "fail job":
            return False
        restarting = [replica]
        if follows == "retry job":
            self.retries += 1
            restarting = self.replicas
            for replica in self.replicas:
                replica.restarts = 0
        else:
            replica.restarts += 1
            if scheduling.restart_job_on_worker_restart and not scheduling.disable_retries:
                restarting = self.replicas
        if restarting is self.replicas:
            self._shut_down(SHUTDOWN_GRACE_SECONDS)
        for replica in restarting:
            replica.start(self._guardian, self._containers)
        self.store()
        return True

    def _shut_down(self, grace_seconds: float) -> None:
        """Terminate all running replicas; kill them after the grace period."""
        running = [
            (replica, replica.process)
            for replica in self.replicas
            if replica.state == "RUNNING" and replica.process
        ]
        for _, process in running:
            process.terminate()
        deadline = time.monotonic() + grace_seconds
        while running:
            if time.monotonic() > deadline:
                deadline = float("inf")
                for _, process in running:
                    process.kill()
            # Note each end when it happens: a view may be showing the job.
            running[0][1].finished.wait(_POLL_SECONDS)
            for replica, _ in running:
                if replica.has_ended:
                    replica.note_end(failed="STOPPED")
            running = [pair for pair in running if pair[0].state == "RUNNING"]

    def store(self) -> None:
        self.message.update_time = Clock().now()
        content = job_state.JobFile(
            job=to_json(self.message), retries=self.retries, replicas=[*self.replicas]
        )
        job_state.write(self.directory, content)


@dataclasses.dataclass(eq=False, kw_only=True)
class JobService(BackgroundJobs[CustomJob]):
    """The service of CustomJobs, which runs them and also lists the jobs of other processes."""

    kind = "CustomJob"
    file_name = job_state.FILE_NAME
    patterns = ("*", f"*/{_TRIAL_FOLDER}*")
    containers: Containers | None = None
    # Without containers, returns the program that runs in place of an image with a command.
    program: Callable[[str, Sequence[str]], Program] = run_command
    local: Callable[[str], str] = str  # returns the path of a file in Cloud Storage

    def read_state(self, folder: pathlib.Path) -> dict[str, Any]:
        return job_state.read(folder).job

    def check(self, job: Any, parent: str) -> None:
        job_rules.check(job, parent)
        self.check_network(job.job_spec.network, parent)

    def check_network(self, network: str, parent: str) -> None:
        """Refuse a network other than that of a job in the region that has not ended."""
        for other in self.list_all() if network else ():
            used = other.job_spec.network if parent_of(other.name) == parent else ""
            busy = used not in ("", network) and state_of(other) not in ENDED
            refuse_state(busy, f"network {network}: {other.name} still runs on {used}")

    def begin(self, job: Any) -> None:
        tuning_job, _, trial = job.labels.get(TRIAL_LABEL, "").rpartition("-")
        logs = self.run_logs.get(tuning_job) or self.logs_of(job)
        directory = new_folder(logs, f"{_TRIAL_FOLDER}{trial}" if trial else name_folder(job))
        if trial and self.containers:
            # The image runs as another user, whose processes report metrics here.
            directory.chmod(0o777)
        execution = self.guardian, self.containers, self.program, trial, self.local
        self.add(CustomJob(job, directory, *execution))

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
