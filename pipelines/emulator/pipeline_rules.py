"""Vertex AI's checks of PipelineJobs and Schedules."""

import re
from typing import Any

from pipelines import resource_names
from pipelines.emulator import cron
from pipelines.emulator.field_rules import check_common, refuse, refuse_state

_POSITIVE = re.compile(r"[1-9][0-9]*")
ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")


def state_of(job: Any) -> str:
    """Return the state of a PipelineJob, without its prefix."""
    return job.state.name.removeprefix("PIPELINE_STATE_")


def check_job(job: Any, parent: str) -> None:
    """Refuse a PipelineJob that breaks a rule.

    Args:
        parent: projects/P/locations/L.
    """
    check_common(job, "pipeline_job", parent)
    check_root(job)
    check_parameters(job)
    check_accelerators(job)
    resource_names.check("network", job.network)
    resource_names.check("service_account", job.service_account)


def check_root(job: Any) -> None:
    """Refuse a job without a folder in Cloud Storage."""
    root = job.runtime_config.gcs_output_directory
    missing = not root.startswith("gs://")
    refuse(missing, "runtime_config.gcs_output_directory is required, and begins with gs://")


def check_parameters(job: Any) -> None:
    """Refuse unknown parameters, and missing ones that have no default."""
    from google.protobuf import json_format

    document = json_format.MessageToDict(job._pb)
    root = document.get("pipelineSpec", {}).get("root", {})
    refuse(not root, "pipeline_spec is required")
    known = root.get("inputDefinitions", {}).get("parameters", {})
    given = document.get("runtimeConfig", {}).get("parameterValues", {})
    for name in given:
        unknown = name not in known
        refuse(unknown, f"unknown parameter {name}: the pipeline has no such parameter")
    for name, parameter in known.items():
        missing = name not in given and not {"defaultValue", "isOptional"} & parameter.keys()
        refuse(missing, f"parameter {name} is required")


def check_accelerators(job: Any) -> None:
    """Refuse a step whose number of accelerators is not a positive integer."""
    from google.protobuf import json_format

    spec = json_format.MessageToDict(job._pb)["pipelineSpec"]
    for name, executor in spec.get("deploymentSpec", {}).get("executors", {}).items():
        accelerator = executor.get("container", {}).get("resources", {}).get("accelerator", {})
        none = accelerator and not _POSITIVE.fullmatch(accelerator.get("resourceCount", ""))
        refuse(none, f"{name}: the accelerator limit is not a positive integer")


def check_ended(job: Any) -> None:
    """Refuse to delete a job that has not ended."""
    state = state_of(job)
    refuse_state(state not in ENDED, f"{job.name} is {state}; cancel it first")


def check_running(job: Any) -> None:
    """Refuse to cancel a job that has ended."""
    refuse_state(state_of(job) in ENDED, f"{job.name} is {state_of(job)} already")


def check_schedule(schedule: Any) -> None:
    """Refuse a schedule without a time, or with a request that would be refused."""
    refuse(not schedule.cron, "schedule.cron is required")
    cron.parse(schedule.cron)
    request = schedule.create_pipeline_job_request
    named = request.pipeline_job_id
    refuse(named, "User-specified ID is not supported in the request template.")
    check_job(request.pipeline_job, request.parent)


def check_not_completed(schedule: Any) -> None:
    """Refuse to change a completed schedule."""
    refuse_state(schedule.state.name == "COMPLETED", f"{schedule.name} is COMPLETED")


def check_state(schedule: Any, wanted: str) -> None:
    """Refuse to pause or resume a schedule whose state is not `wanted`."""
    state = schedule.state.name
    refuse_state(state != wanted, f"{schedule.name} is {state}")
