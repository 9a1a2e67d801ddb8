"""Checks of Vertex AI on a PipelineJob and a Schedule before it takes them: a function a rule.

https://cloud.google.com/vertex-ai/docs/reference/rest/v1/projects.locations.pipelineJobs
https://cloud.google.com/vertex-ai/docs/reference/rest/v1/projects.locations.schedules
"""

import re
from typing import Any

from pipelines.emulator import cron
from pipelines.emulator.api_error import ApiError, invalid
from pipelines.emulator.field_rules import check_display_name, check_form, check_key
from pipelines.emulator.labels import check_labels

_ORDER = re.compile(r"(create|update|end|start)(_t|T)ime( asc| desc)?")
_POSITIVE = re.compile(r"[1-9][0-9]*")
_JOB_ID = re.compile(r"[a-z][a-z0-9-]{0,126}")
ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")


def state_of(job: Any) -> str:
    """Return the state of a PipelineJob, without its prefix."""
    return job.state.name.removeprefix("PIPELINE_STATE_")


def check_job(job: Any, parent: str) -> None:
    """Refuse a PipelineJob that breaks one of the rules below.

    Args:
        parent: projects/P/locations/L.
    """
    check_display_name(job, "pipeline_job")
    check_root(job)
    check_parameters(job)
    check_accelerators(job)
    check_labels(job.labels)
    check_resources(job, parent)


def check_job_id(job_id: str) -> None:
    """Refuse an ID of 128 characters or more, or of others than a-z, 0-9 and -.

    Reference of pipelineJobs.create, pipelineJobId.
    """
    if not _JOB_ID.fullmatch(job_id):
        raise invalid(f"pipeline_job_id {job_id!r} is not up to 127 of a-z, 0-9 and -")


def check_root(job: Any) -> None:
    """Refuse a job without a folder in Cloud Storage.

    Reference of PipelineJob, runtimeConfig.gcsOutputDirectory: required.
    """
    if not job.runtime_config.gcs_output_directory.startswith("gs://"):
        raise invalid("runtime_config.gcs_output_directory is required, and begins with gs://")


def check_resources(job: Any, parent: str) -> None:
    """Refuse a network, account or key that is misnamed, and a key of another region.

    Reference of PipelineJob and of EncryptionSpec.
    """
    check_form("network", job.network)
    check_form("service_account", job.service_account)
    check_key(job, parent)


def check_order(order_by: str) -> None:
    """Refuse to sort a list by other fields than those of its reference.

    Reference of pipelineJobs.list, orderBy.
    """
    for term in filter(None, order_by.split(",")):
        if not _ORDER.fullmatch(term.strip()):
            raise invalid(f"order_by {term.strip()!r} is not a time of the run, asc or desc")


def check_parameters(job: Any) -> None:
    """Refuse a parameter that the pipeline does not have, and a missing one without a default.

    Reference of PipelineJob, runtimeConfig.parameterValues.
    """
    from google.protobuf import json_format

    document = json_format.MessageToDict(job._pb)
    root = document.get("pipelineSpec", {}).get("root")
    if not root:
        raise invalid("pipeline_spec is required")
    known = root.get("inputDefinitions", {}).get("parameters", {})
    given = document.get("runtimeConfig", {}).get("parameterValues", {})
    for name in given:
        if name not in known:
            raise invalid(f"unknown parameter {name}: the pipeline has none of that name")
    for name, parameter in known.items():
        if name not in given and not {"defaultValue", "isOptional"} & parameter.keys():
            raise invalid(f"parameter {name} is required")


def check_accelerators(job: Any) -> None:
    """Refuse a step with an accelerator whose number is not a positive one.

    "ACCELERATOR_LIMIT: … You can specify a positive integer" in
    machine-learning/pipelines/machine-types.
    """
    from google.protobuf import json_format

    spec = json_format.MessageToDict(job._pb)["pipelineSpec"]
    for name, executor in spec.get("deploymentSpec", {}).get("executors", {}).items():
        accelerator = executor.get("container", {}).get("resources", {}).get("accelerator")
        if accelerator and not _POSITIVE.fullmatch(accelerator.get("resourceCount", "")):
            raise invalid(f"{name}: the accelerator limit is not a positive integer")


def check_ended(job: Any) -> None:
    """Refuse to delete a job that has not ended."""
    if state_of(job) not in ENDED:
        raise ApiError("FAILED_PRECONDITION", f"{job.name} is {state_of(job)}; cancel it first")


def check_running(job: Any) -> None:
    """Refuse to cancel a job that has ended."""
    if state_of(job) in ENDED:
        raise ApiError("FAILED_PRECONDITION", f"{job.name} is {state_of(job)} already")


def check_schedule(schedule: Any) -> None:
    """Refuse a schedule without the fields that its reference calls required."""
    check_display_name(schedule, "schedule")
    for name in ("display_name", "cron", "max_concurrent_run_count"):
        if not getattr(schedule, name):
            raise invalid(f"schedule.{name} is required")
    cron.parse(schedule.cron)
    request = schedule.create_pipeline_job_request
    if not request.parent:
        raise invalid("create_pipeline_job_request.parent is required")
    if request.pipeline_job_id:
        raise invalid("User-specified ID is not supported in the request template.")
    check_job(request.pipeline_job, request.parent)


def check_not_completed(schedule: Any) -> None:
    """Refuse to change a schedule that is completed.

    Reference of schedules.patch: "Updates an active or paused Schedule."
    """
    if schedule.state.name == "COMPLETED":
        raise ApiError("FAILED_PRECONDITION", f"{schedule.name} is COMPLETED")


def check_state(schedule: Any, wanted: str) -> None:
    """Refuse to pause or resume a schedule in another state than `wanted`.

    Reference of schedules.pause and schedules.resume.
    """
    if schedule.state.name != wanted:
        raise ApiError("FAILED_PRECONDITION", f"{schedule.name} is {schedule.state.name}")
