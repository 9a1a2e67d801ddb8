"""Runs on Vertex AI."""

import concurrent.futures
import dataclasses
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from pipelines.project.connection import Connection, console_link, run_link
from pipelines.project.settings import Settings
from pipelines.runs import cloud_logging, vertex_jobs
from pipelines.runs.run import ENDED, EXPIRED, Run, SearchTrial, TrainingJob, read_run, to_role
from vertex.client.cloud_errors import CloudError
from vertex.errors import InputError
from vertex.machines import price_table
from vertex.machines.price_table import format_money

NAME = "Vertex AI"
_THREADS = 8


@dataclasses.dataclass(frozen=True)
class VertexRuns:
    """The runs of a project and region."""

    connection: Connection
    rates: Mapping[str, float] = dataclasses.field(default_factory=dict)  # prices for `status`

    def fetch(self, name: str) -> Run:
        """Return a run; raise InputError if there is none of this name."""
        return read(self.connection, vertex_jobs.fetch(self.connection, name))

    def cancel(self, name: str) -> None:
        """Ask a run to end; raise InputError if it has ended."""
        vertex_jobs.cancel(self.connection, name)

    def read_log(self, run: Run, replica: str | None, count: int) -> list[str]:
        """Return the last log lines of a replica, as `LocalRuns.read_log`."""
        if replica not in (None, "all") and run.jobs:
            replica = to_role(str(replica))
            run.jobs[-1].check_replica(replica, run.name)
        job_id, failed = cloud_logging.find_source(run)
        chosen = failed if replica is None else cloud_logging.to_task_name(replica)
        lines = cloud_logging.fetch_lines(
            self.connection, run, job_id, chosen, count, noise=replica is not None
        )
        source = f"of {chosen} " if chosen else ""
        return lines or [f"no log lines {source}yet: {cloud_logging.link(self.connection, job_id)}"]

    def job_lines(self, job: TrainingJob) -> list[str]:
        """Return the lines of `status` about a training job that follow its state."""
        number = job.name.rpartition("/")[2]
        page = f"vertex-ai/locations/{{region}}/training/{number}/cpu"
        return [f"          {console_link(self.connection.settings, page)}"]

    def cost_lines(self, run: Run) -> list[str]:
        """Return the lines of `status` about the cost of a run."""
        if not run.jobs:
            return []
        cost = format_cost(run, self.rates)
        return [f"cost      {cost}", f"          not included: {price_table.NOT_INCLUDED}"]

    def resume_command(self, run: Run) -> str:
        """Return the command line that resumes a run."""
        return f"python -m pipelines run {run.recipe} {run.name} --resume"


def list_runs(settings: Settings, recipe: str, limit: int) -> list[Run]:
    """Return the project's latest runs of one recipe, or of all if it is empty."""
    connection = Connection(settings)
    found = vertex_jobs.list_runs(connection, recipe, limit=limit)

    def fetch_if_present(job: Any) -> list[Run]:
        try:
            job = vertex_jobs.fetch(connection, vertex_jobs.id_of(job))
        except vertex_jobs.NoRunError:  # It was deleted after it was listed.
            return []
        # The jobs of a run that has ended don't change its state.
        return [read(connection, job, with_jobs=vertex_jobs.state_of(job) not in ENDED)]

    # The list method returns no task details, and so neither metrics nor verdicts.
    with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
        return [run for present in pool.map(fetch_if_present, found) for run in present]


def read(connection: Connection, job: Any, *, with_jobs: bool = True) -> Run:
    """Return the run of a PipelineJob.

    JOB_STATE_EXPIRED is not a final state for the launcher of Google's component, so a run whose
    training job has expired may continue for days. It is EXPIRED here.
    """
    custom_jobs: Sequence[Any] = ()
    trials: tuple[SearchTrial, ...] = ()
    try:
        if with_jobs:
            custom_jobs = vertex_jobs.list_custom_jobs(connection, job)
        trials = vertex_jobs.list_trials(connection, job)
    except (CloudError, InputError) as failure:
        # The run's own state and verdict don't depend on them.
        connection.say(str(failure))
    run = read_run(
        vertex_jobs.content_of(job),
        [vertex_jobs.content_of(custom_job) for custom_job in custom_jobs],
        backend=NAME,
        link=run_link(connection.settings, vertex_jobs.id_of(job)),
        trials=trials,
    )
    if run.state in ENDED or not any(job.state == EXPIRED for job in run.jobs):
        return run
    error = (
        "the training job has expired; if the step Train still waits for it, cancel the run: "
        f"python -m pipelines cancel {run.name}"
    )
    return dataclasses.replace(run, state=EXPIRED, error=error)


def format_cost(run: Run, rates: Mapping[str, float] | None = None) -> str:
    """Return the total cost of a run's jobs so far, as text; empty if there are no jobs.

    Without `rates`, the run's parameter price_per_hour takes precedence over the price table.
    """
    if not run.jobs:
        return ""
    prices = price_table.load_table().override(rates or {})
    given = 0 if rates else run.parameters.get("price_per_hour", 0)
    total = Decimal(0)
    for job in run.jobs:
        if not job.seconds:
            continue
        try:
            hourly = Decimal(str(given)) or prices.hourly_price(job.pools, spot=job.spot)
        except InputError as error:
            return f"cost unknown: {error}"
        total += hourly * Decimal(str(job.seconds)) / 3600
    basis = f"at the prices of {prices.region} of {prices.date}"
    if given:
        basis = "from the parameter price_per_hour"
    return f"about {format_money(total)} {prices.currency} for training, {basis}"
