"""Check whether a project is ready: a line for each check, with the fix if it fails.

The checks change nothing. A check that can't be made, perhaps for lack of permission, says so.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial

from components.machines.worker_pools import build_worker_pool_specs
from components.vertex import vertex_client
from components.vertex.cloud_errors import CloudError, translated
from components.vertex.vertex_client import is_loopback
from pipelines.cloud import project_checks
from pipelines.cloud.project_checks import APIS, Finding
from pipelines.parameters import ParameterSet
from pipelines.project.connection import Connection
from pipelines.runs import vertex_jobs
from trainer.errors import InputError
from vertex_facts.quotas import list_quotas


def examine(
    connection: Connection, parameters: ParameterSet | None = None, accelerator: str = ""
) -> Iterator[Finding]:
    """Yield a finding for each check; a check that fails does not stop the others.

    Without credentials, or after a server does not answer in time, a last finding names the checks
    that were skipped. Quota and permissions are checked for runs with `parameters`, whose
    evaluation uses an `accelerator`.
    """
    signed_in = _run_check("credentials", lambda: _examine_credentials(connection))
    yield signed_in
    checks = _list_checks(connection, parameters, accelerator)
    if not signed_in.ok:
        yield Finding(None, f"not checked without credentials: {', '.join(checks)}")
        return
    seen = set()
    while checks:
        name = next(iter(checks))
        began = time.monotonic()
        finding = _run_check(name, checks.pop(name))
        # Two images in one missing repository are one finding.
        if finding not in seen:
            seen.add(finding)
            yield finding
        if checks and not finding.ok and time.monotonic() - began > vertex_client.ANSWER_SECONDS:
            yield Finding(None, f"not checked, as no answer came in time: {', '.join(checks)}")
            return


def _list_checks(
    connection: Connection, parameters: ParameterSet | None, accelerator: str
) -> dict[str, Callable[[], Finding]]:
    """Return, by name, the checks that need credentials."""
    settings = connection.settings
    checks: dict[str, Callable[..., Finding]] = {
        "Vertex AI": _examine_vertex,
        **{f"API {name}": partial(project_checks.examine_api, name=name) for name in APIS},
        "your permissions": project_checks.examine_caller,
        "bucket": project_checks.examine_bucket,
        "pipeline repository": project_checks.examine_pipeline_repository,
        "image": project_checks.examine_image,
    }
    registry = parameters.registry if parameters else None
    if registry and registry.registers and not registry.serving_image:
        checks["serving image"] = partial(project_checks.examine_image, setting="serving_image")
    for setting, name in (("gpu_image", "image for GPUs"), ("serving_image", "serving image")):
        if getattr(settings, setting):
            checks[name] = partial(project_checks.examine_image, setting=setting)
    if settings.template_repository:
        checks["your permission to upload"] = project_checks.examine_upload_permission
    if settings.service_account:
        name = "your permission to act as the service account"
        checks[name] = project_checks.examine_act_as_permission
        deploys = parameters is not None and parameters.pipeline.deploy_champion
        checks["service account"] = partial(project_checks.examine_service_account, deploys=deploys)
    strategy = parameters.pipeline.scheduling_strategy if parameters else ""
    pools = build_worker_pool_specs(parameters.machines) if parameters else []
    for metric, amount in list_quotas(pools, strategy, accelerator).items():
        quota = partial(project_checks.examine_quota, metric=metric, amount=amount)
        checks[f"quota {metric.rpartition('/')[2]}"] = quota
    return {name: partial(check, connection) for name, check in checks.items()}


def _run_check(name: str, check: Callable[[], Finding]) -> Finding:
    unchecked = "could not be checked"
    try:
        with translated(unchecked):
            return check()
    except (CloudError, InputError) as error:
        # An error that names its own call is a failure; other errors may be missing permissions.
        _, unnamed, why = str(error).partition(f"{unchecked}: ")
        if unnamed:
            return Finding(None, f"{name}: {unchecked}", why)
        return Finding(False, f"{name}: {error}")


def _examine_credentials(connection: Connection) -> Finding:
    if is_loopback(connection.settings.endpoint):
        return Finding(True, "credentials: none needed for a server on this machine")
    who = getattr(connection.credentials, "service_account_email", "") or "your own account"
    return Finding(True, f"credentials: {who}")


def _examine_vertex(connection: Connection) -> Finding:
    settings = connection.settings
    latest = vertex_jobs.list_runs(connection, limit=1)
    last = f", last run {vertex_jobs.id_of(latest[0])}" if latest else ""
    return Finding(True, f"Vertex AI: answers for {settings.project} in {settings.region}{last}")
