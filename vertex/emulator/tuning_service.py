"""JobService's HyperparameterTuningJobs: searches whose trials run as CustomJobs.

https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/training/using-hyperparameter-tuning
"""

import contextlib
import dataclasses
import datetime
import itertools
import pathlib
from collections.abc import Iterator
from typing import Any

from vertex.emulator import messages, tuning_rules
from vertex.emulator.background_jobs import (
    CANCEL_FILE_NAME,
    BackgroundJob,
    BackgroundJobs,
    End,
    name_folder,
)
from vertex.emulator.clock import Clock
from vertex.emulator.job_rules import is_empty
from vertex.emulator.job_service import TRIAL_LABEL, CustomJob, JobService
from vertex.emulator.job_state import TUNING_FILE_NAME
from vertex.emulator.messages import id_of, parent_of, state_of
from vertex.emulator.processes import Process, new_folder
from vertex.emulator.tuning_measurements import add_report, choose_final, read_reports, should_stop
from vertex.emulator.tuning_search import ask
from vertex.facts.jobs import ENDED, TASK_LABEL
from vertex.facts.json_numbers import to_whole_numbers

_LONGEST_NAME = 100
_TRIAL_ENDED = ("SUCCEEDED", "INFEASIBLE")


class TuningJob(BackgroundJob):
    """A run of a HyperparameterTuningJob; it starts unfinished trials before new ones."""

    file_name = TUNING_FILE_NAME
    failure = "the search failed: "

    def __init__(self, message: Any, directory: pathlib.Path, jobs: JobService) -> None:
        super().__init__(message, directory)
        self._jobs = jobs
        self._spec = message.study_spec
        self.trials: Any = message.trials  # updated in place
        self._running: dict[str, tuple[Any, CustomJob]] = {}  # trials and jobs, by the trial's ID
        self._reports: dict[str, set[str]] = {}  # those read, by the ID of the trial
        self._stopped: set[str] = set()  # IDs of the trials that the stopping rule has ended
        # Failures before the take-over don't count: somebody has started the task again.
        self._accepted = {trial.id for trial in self.trials if trial.state.name == "INFEASIBLE"}
        for trial in self.trials:
            if trial.state.name not in _TRIAL_ENDED:
                trial.state = "REQUESTED"
        jobs.run_logs[id_of(message.name)] = directory  # The folders of the trials' jobs are there.
        self.set_state("PENDING")

    @property
    def processes(self) -> list[Process]:
        return [process for _, job in list(self._running.values()) for process in job.processes]

    def execute(self) -> End:
        """Start trials until there are enough."""
        self.set_state("RUNNING")
        upcoming = self._list_upcoming()
        while not self.wait_for_cancel():
            for trial, job in list(self._running.values()):
                self._watch(trial, job)
            if error := self._find_failure():
                return End("FAILED", "INTERNAL", error)
            free = self.message.parallel_trial_count - len(self._running)
            for trial in itertools.islice(upcoming, free):
                self._start(trial)
            if not self._running:
                return End("SUCCEEDED")
        return End("CANCELLED", "CANCELLED")

    def _list_upcoming(self) -> Iterator[Any]:
        """Yield unfinished Trials, and then new ones, until there are enough or no other values."""
        yield from [trial for trial in self.trials if trial.state.name == "REQUESTED"]
        while len(self.trials) < self.message.max_trial_count:
            values = ask(self._spec, self.trials, self.message.display_name)
            if values is None:
                return
            number = f"{len(self.trials) + 1}"
            trial = messages.Trial(
                id=number,
                state="REQUESTED",
                parameters=[{"parameter_id": key, "value": value} for key, value in values.items()],
                client_id=f"{id_of(self.message.name)}-{number}",
            )
            self.trials.append(trial)
            yield self.trials[-1]

    def _start(self, trial: Any) -> None:
        """Create the CustomJob of a trial."""
        self.store()  # The trial keeps its values, even if this process is killed now.
        message = self.message
        custom_job = messages.CustomJob(
            display_name=f"{message.display_name[:_LONGEST_NAME]}-trial-{trial.id}",
            job_spec=message.trial_job_spec,
            labels={TRIAL_LABEL: f"{id_of(message.name)}-{trial.id}"},
        )
        if "encryption_spec" in message:
            custom_job.encryption_spec = message.encryption_spec
        arguments: list[str] = []
        for parameter in trial.parameters:
            value = to_whole_numbers(parameter.value)
            arguments += [f"--{parameter.parameter_id}", str(value)]
        for pool in custom_job.job_spec.worker_pool_specs:
            if not is_empty(pool):
                pool.container_spec.args.extend(arguments)
        folder = custom_job.job_spec.base_output_directory
        if folder.output_uri_prefix:
            folder.output_uri_prefix = f"{folder.output_uri_prefix.rstrip('/')}/{trial.id}"
        # Of a trial that goes on, its measurements tell for how long it has run.
        ran = (
            trial.measurements[-1].elapsed_duration if trial.measurements else datetime.timedelta()
        )
        trial.start_time = Clock().now() - ran
        request = messages.CreateCustomJobRequest(
            parent=parent_of(message.name), custom_job=custom_job
        )
        trial.custom_job = self._jobs.create(request).name
        trial.state = "ACTIVE"
        started = (job for job in self._jobs.jobs if job.message.name == trial.custom_job)
        self._running[trial.id] = trial, next(started)
        self.store()

    def _watch(self, trial: Any, job: CustomJob) -> None:
        """Read the reports of a trial; end it if its job has ended, or if it is to be stopped."""
        has_ended = not job.is_alive()  # read before the last reports
        reports = [*read_reports(job.directory, self._reports.setdefault(trial.id, set()))]
        for report in reports:
            add_report(self._spec, trial, report)
        if has_ended:
            self._finish(trial, job)
        elif reports:
            if should_stop(self._spec, trial, self.trials):
                self._stopped.add(trial.id)
                trial.state = "STOPPING"
                job.cancel()
            self.store()

    def _finish(self, trial: Any, job: CustomJob) -> None:
        """Give a trial whose job has ended its final state."""
        del self._running[trial.id]
        final, reason = choose_final(self._spec, trial), ""
        if job.state != "SUCCEEDED" and trial.id not in self._stopped:
            reason = f"its CustomJob is {job.state}: {job.error}"
        elif not final:
            names = ", ".join(metric.metric_id for metric in self._spec.metrics)
            reason = f"it has reported no value of {names}"
        if reason:
            trial.infeasible_reason = reason
            self.failed_replica = job.failed_replica
        else:
            trial.final_measurement = final
        trial.state = "INFEASIBLE" if reason else "SUCCEEDED"
        trial.end_time = Clock().now()
        self.store()

    def _find_failure(self) -> str:
        """Return an error if too many trials have failed; else ""."""
        trials, limit = list(self.trials), self.message.max_failed_trial_count
        ended = [trial for trial in trials if trial.state.name == "INFEASIBLE"]
        failed = [trial for trial in ended if trial.id not in self._accepted]
        # 0: Vertex AI decides. The first trial's failure ends its job, and later "too high" a
        # number or ratio of failures; here, more failures than successes.
        if not failed or not (limit or trials[0].state.name in _TRIAL_ENDED):
            return ""
        succeeded = sum(trial.state.name == "SUCCEEDED" for trial in trials)
        if len(failed) < (limit or (1 if trials[0] in failed else succeeded + 1)):
            return ""
        last = max(failed, key=lambda trial: trial.end_time)
        return f"{len(failed)} trials failed, the last of them {last.id}: {last.infeasible_reason}"

    def stop(self, state: str) -> None:
        """Cancel the running trials; those that are cut short can be started again."""
        running = list(self._running.values())
        for _, job in running:
            job.cancel()
        for _, job in running:
            job.join()
        # On a full disk nothing is stored, but clients wait for the state in memory.
        with contextlib.suppress(OSError):
            for trial, job in running:
                if job.state != "CANCELLED" or trial.id in self._stopped:
                    self._watch(trial, job)
                else:
                    trial.state = "STOPPING"


@dataclasses.dataclass(eq=False, kw_only=True)
class TuningService(BackgroundJobs[TuningJob]):
    """The service of HyperparameterTuningJobs; it also lists those of other processes."""

    kind = "HyperparameterTuningJob"
    file_name = TUNING_FILE_NAME
    unlisted = "trials"
    trials: JobService  # runs the trials' jobs; to be closed after this service

    def check(self, job: Any, parent: str) -> None:
        tuning_rules.check(job, parent)
        self.trials.check_network(job.trial_job_spec.network, parent)

    def begin(self, job: Any) -> None:
        directory = self._take_over(job) or new_folder(self.logs_of(job), name_folder(job))
        self.add(TuningJob(job, directory, self.trials))

    def _take_over(self, job: Any) -> pathlib.Path | None:
        """Give a job the trials of an earlier one of its task and study; return their folder."""
        task = job.labels.get(TASK_LABEL)
        for path in sorted(self.logs_of(job).glob(f"*/{TUNING_FILE_NAME}")) if task else ():
            earlier = self.read(path.parent)
            is_same = earlier.labels.get(TASK_LABEL) == task
            if is_same and earlier.study_spec == job.study_spec and state_of(earlier) in ENDED:
                job.trials = earlier.trials
                (path.parent / CANCEL_FILE_NAME).unlink(missing_ok=True)
                return path.parent
        return None
