"""Check whether a project is ready: each check one line, and how to mend what is wrong.

Reads only. What can't be checked, for want of a right perhaps, is said to be so.
"""

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from components import vertex_client
from components.cloud_errors import CloudError, described, is_misread, status_of
from components.vertex_client import is_loopback
from pipelines.cloud import place_checks, project_checks, runs
from pipelines.cloud.connection import Connection
from pipelines.cloud.project_checks import Finding
from pipelines.machines import cost
from trainer.errors import InputError, one_line


def examine(
    connection: Connection,
    pools: Sequence[dict[str, Any]] = (),
    *,
    preemptible: bool = False,
    deploys: bool = False,
) -> Iterator[Finding]:
    """Checks one thing after the other; each that goes wrong leaves the others to go on.

    Without credentials nothing else can be looked at, and behind a server that does not answer
    nothing in time: one line says so.

    Args:
        pools: worker pools that there must be quota for.
        preemptible: whether they are spot or flex-start machines.
        deploys: whether runs deploy their champions.
    """
    signed_in = _checked("credentials", lambda: _credentials(connection))
    yield signed_in
    checks = _checks(connection, cost.quotas(pools, preemptible=preemptible), deploys)
    if not signed_in.ok:
        yield Finding(None, f"not checked without credentials: {', '.join(checks)}")
        return
    told = set()
    while checks:
        name = next(iter(checks))
        began = time.monotonic()
        finding = _checked(name, checks.pop(name))
        # Two images of one repository that is gone are one finding.
        if finding not in told:
            told.add(finding)
            yield finding
        if checks and not finding.ok and time.monotonic() - began > vertex_client.ANSWER_SECONDS:
            yield Finding(None, f"not checked, since no answer comes: {', '.join(checks)}")
            return


def _checks(
    connection: Connection, quotas: Sequence[cost.Quota], deploys: bool
) -> dict[str, Callable[[], Finding]]:
    """Return by name all that only who is signed in may look at."""
    checks: dict[str, Callable[..., Finding]] = {"Vertex AI": _vertex}
    for name in project_checks.APIS:
        checks[f"API {name}"] = functools.partial(project_checks.api, name=name)
    checks |= {"own rights": project_checks.own_rights, "bucket": place_checks.bucket}
    checks |= {"pipeline repository": place_checks.pipeline_repository}
    checks |= {"image": place_checks.image}
    for name, setting in (("image for GPUs", "gpu_image"), ("serving image", "serving_image")):
        if getattr(connection.settings, setting):
            checks[name] = functools.partial(place_checks.image, setting=setting)
    if connection.settings.template_repository:
        checks["own right to upload"] = place_checks.uploads
    if connection.settings.service_account:
        checks["own right to act as the account of runs"] = project_checks.act_as
        checks["service account"] = functools.partial(
            project_checks.service_account, deploys=deploys
        )
    for quota in quotas:
        check = functools.partial(project_checks.quota, needed=quota)
        checks[f"quota {quota.metric.rpartition('/')[2]}"] = check
    return {name: functools.partial(check, connection) for name, check in checks.items()}


def _checked(name: str, check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except (CloudError, InputError) as error:
        return Finding(False, f"{name}: {error}")
    except Exception as error:
        if is_misread(error):
            answer = f"the answer is none of Google's ({one_line(error)})"
            return Finding(None, f"{name}: could not be checked", answer)
        if not status_of(error) and not isinstance(error, (OSError, ValueError)):
            # Neither an answer nor a broken connection: a bug of ours.
            module = type(error).__module__
            if not module.startswith(("google", "requests", "urllib3")):
                raise
        return Finding(None, f"{name}: could not be checked", described(error))


def _credentials(connection: Connection) -> Finding:
    if is_loopback(connection.settings.endpoint):
        return Finding(True, "credentials: none needed for a server of this machine")
    who = getattr(connection.credentials, "service_account_email", "") or "your own account"
    return Finding(True, f"credentials: {who}")


def _vertex(connection: Connection) -> Finding:
    settings = connection.settings
    found = runs.listed(connection, limit=1)
    last = f", last run {runs.id_of(found[0])}" if found else ""
    return Finding(True, f"Vertex AI: answers for {settings.project} in {settings.region}{last}")
