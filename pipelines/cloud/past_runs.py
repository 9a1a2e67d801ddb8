"""Past runs on Vertex AI, in the form that the command `runs` compares, and their cost."""

import concurrent.futures
import time
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from components.machines import price_table
from components.machines.price import format_money
from pipelines.cloud import runs
from pipelines.cloud.connection import Connection, run_link
from pipelines.cloud.settings import Settings
from pipelines.json_files import to_whole_numbers
from pipelines.run_history import PastRun, select_validation
from trainer.errors import InputError

PLACE = "Vertex AI"
PLAN, TRAINING = "plan-training", "training"
"""The task that creates the training job's directory, and the output that names it."""
_COLLECTION, _EVALUATION = "collect-training", "evaluate-model"
_THREADS = 8


def list_runs(settings: Settings, recipe: str, limit: int) -> list[PastRun]:
    """Return the project's latest runs of one recipe, or of all if it is empty."""
    connection = Connection(settings)
    found = runs.list_runs(connection, recipe, limit=limit)

    def fetch_if_present(job: Any) -> list[PastRun]:
        try:
            return [fetch(connection, runs.id_of(job))]
        except runs.NoRunError:  # It was deleted after it was listed.
            return []

    # The list method returns no task details, and so neither metrics nor verdicts.
    with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
        return [run for present in pool.map(fetch_if_present, found) for run in present]


def fetch(connection: Connection, run_id: str) -> PastRun:
    """Return the run with an ID; raise NoRunError if there is none."""
    job = runs.fetch(connection, run_id)
    state, expiry = runs.state_of(job), runs.find_expiry(connection, job)
    start, end = job.start_time or job.create_time, job.end_time
    verdict, _, reason = runs.verdict_of(job).partition(": ")
    return PastRun(
        name=run_id,
        place=PLACE,
        recipe=runs.recipe_of(job),
        state=runs.EXPIRED if expiry else state,
        started=start,
        seconds=(end - start).total_seconds() if start and end else None,
        parameters=parameters_of(job),
        metrics=_read_metrics(job, _EVALUATION),
        validation=select_validation(_read_metrics(job, _COLLECTION)),
        verdict=verdict,
        reason=reason,
        error=expiry or (runs.failure_of(job, []) if state == "FAILED" else ""),
        training=uri_of(job, PLAN, TRAINING),
        predictions=uri_of(job, _EVALUATION, "predictions"),
        link=run_link(connection.settings, run_id),
    )


def parameters_of(job: Any) -> dict[str, Any]:
    """Return all parameters of a run by name, sorted, including the defaults of its template."""
    from google.protobuf import json_format

    content = json_format.MessageToDict(job._pb)
    inputs = content.get("pipelineSpec", {}).get("root", {}).get("inputDefinitions", {})
    defaults = {
        name: definition["defaultValue"]
        for name, definition in inputs.get("parameters", {}).items()
        if "defaultValue" in definition
    }
    values = {**defaults, **content["runtimeConfig"].get("parameterValues", {})}
    return to_whole_numbers(dict(sorted(values.items())))


def _read_metrics(job: Any, task: str) -> dict[str, float]:
    from google.protobuf import json_format

    artifact = _find_artifact(job, task, "metrics")
    if artifact is None:
        return {}
    values = json_format.MessageToDict(artifact._pb.metadata)
    return {name: value for name, value in values.items() if isinstance(value, float)}


def uri_of(job: Any, task: str, output: str) -> str:
    """Return the URI of a task's output; empty if the task has not written it."""
    artifact = _find_artifact(job, task, output)
    return artifact.uri if artifact is not None else ""


def _find_artifact(job: Any, task: str, output: str) -> Any:
    for detail in job.job_detail.task_details:
        written = detail.outputs.get(output) if detail.task_name == task else None
        if written and written.artifacts:
            return written.artifacts[0]
    return None


def format_cost(
    job: Any, custom_jobs: Sequence[Any], rates: Mapping[str, float] | None = None
) -> str:
    """Return the total cost of a run's jobs so far, as text; empty if there are no jobs.

    Without `rates`, the run's parameter price_per_hour takes precedence over the price table.
    """
    if not custom_jobs:
        return ""
    prices = price_table.load_table().override(rates or {})
    given = 0 if rates else parameters_of(job).get("price_per_hour", 0)
    total = Decimal(0)
    for custom_job in custom_jobs:
        spot = custom_job.job_spec.scheduling.strategy.name == "SPOT"
        start, end = runs.seconds_of(custom_job.start_time), runs.seconds_of(custom_job.end_time)
        if not start:
            continue
        # The server's clock may be ahead of this machine's.
        seconds = (end or max(time.time(), start)) - start
        try:
            hourly = Decimal(str(given)) or prices.hourly_price(pools_of(custom_job), spot=spot)
        except InputError as error:
            return f"cost unknown: {error}"
        total += hourly * Decimal(str(seconds)) / 3600
    basis = f"at the prices of {prices.region} of {prices.date}"
    if given:
        basis = "by the parameter price_per_hour"
    return f"training cost about {format_money(total)} {prices.currency} {basis}"


def pools_of(job: Any) -> list[dict[str, Any]]:
    """Return the worker_pool_specs of a CustomJob without its empty pools."""
    from google.protobuf import json_format

    pools = []
    for pool in job.job_spec.worker_pool_specs:
        spec = json_format.MessageToDict(pool._pb, preserving_proto_field_name=True)
        # Vertex AI's defaults.
        disk = {"boot_disk_type": "pd-ssd", "boot_disk_size_gb": 100, **spec.get("disk_spec", {})}
        if pool.replica_count:
            pools.append({**spec, "replica_count": pool.replica_count, "disk_spec": disk})
    return pools
