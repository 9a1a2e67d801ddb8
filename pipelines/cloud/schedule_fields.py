"""The fields of a recipe's schedule, and which of them differ from those of one that is there."""

import time
from typing import Any

from pipelines.cloud import runs
from pipelines.operation import Schedule

_PLAIN = ("cron", "max_concurrent_run_count", "max_concurrent_active_run_count",
          "allow_queueing", "max_run_count")  # fmt: skip
_SENT = ("displayName", "pipelineSpec", "labels", "serviceAccount", "network", "encryptionSpec",
         "templateUri")  # fmt: skip
_DEFAULT_ACCOUNT = "-compute@developer.gserviceaccount.com"


def schedule(recipe: str, declared: Schedule, job: Any, parent: str) -> Any:
    """Return the Schedule that a recipe declares.

    Args:
        job: PipelineJob that its runs start from.
    """
    from google.cloud.aiplatform_v1 import types

    made = types.Schedule(
        display_name=recipe,
        cron=declared.cron_with_zone,
        # The first limits runs that are being started, the second those that have not ended.
        max_concurrent_run_count=declared.max_concurrent_runs,
        max_concurrent_active_run_count=declared.max_concurrent_runs,
        max_run_count=declared.max_runs,
        allow_queueing=declared.allow_queueing,
        create_pipeline_job_request=types.CreatePipelineJobRequest(parent=parent, pipeline_job=job),
    )
    if declared.start_time:
        made.start_time = declared.start_time
    if declared.end_time:
        made.end_time = declared.end_time
    return made


def changed(present: Any, wanted: Any) -> list[str]:
    """Return the fields that differ, but for those that the server has filled in."""
    found = [name for name in _PLAIN if getattr(present, name) != getattr(wanted, name)]
    if _start(present) != _start(wanted):
        found.append("start_time")
    if runs.seconds_of(present.end_time) != runs.seconds_of(wanted.end_time):
        found.append("end_time")
    jobs = [one.create_pipeline_job_request.pipeline_job for one in (present, wanted)]
    if _content(jobs[0]) != _content(jobs[1]):
        found.append("create_pipeline_job_request")
    return found


def _start(schedule: Any) -> float:
    """Return the time before which no run starts; 0 for one that is past, or the creation's own."""
    start = runs.seconds_of(schedule.start_time)
    return start if start > max(time.time(), runs.seconds_of(schedule.create_time) + 60) else 0.0


def _content(job: Any) -> dict[str, Any]:
    """Return what runs start with. The commit is left out: it alone changes nothing."""
    from google.protobuf import json_format

    document = json_format.MessageToDict(job._pb)
    content = {name: document.get(name) for name in _SENT}
    runtime = document.get("runtimeConfig", {})
    values = dict(runtime.get("parameterValues", {}))
    if str(content["serviceAccount"]).endswith(_DEFAULT_ACCOUNT):
        content["serviceAccount"] = None
    values["labels"] = _own_labels(values.get("labels"))
    return {
        **content,
        "labels": _own_labels(content["labels"]),
        "root": runtime.get("gcsOutputDirectory"),
        "values": values,
    }


def _own_labels(labels: Any) -> dict[str, str]:
    """Return labels without the commit's and Vertex AI's own."""
    own = (labels or {}).items()
    return {key: value for key, value in own if key != "commit" and "vertex-ai-" not in key}
