"""Checks of Vertex AI on a BatchPredictionJob before it takes it: a function a rule."""

import re
from typing import Any

from components.prediction_options import TABLE, TABLE_PLACE
from pipelines.emulator.api_error import ApiError, invalid
from pipelines.emulator.field_rules import check_form, check_key, check_name
from pipelines.emulator.job_rules import check_machine_spec
from pipelines.emulator.labels import check_labels

FORMATS = ("jsonl", "csv", "tf-record", "tf-record-gzip", "bigquery", "file-list")
"""Of instances, for a model that was trained by custom code."""
_OUTPUT_FORMATS = ("jsonl", "csv", "bigquery")
_WITH_FIELDS = ("jsonl", "bigquery", "tf-record", "tf-record-gzip")
_LONGEST_URI = 2000
DEFAULT_MAX_REPLICAS = 10
_ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")


def check(job: Any, parent: str) -> None:
    """Raise ApiError where Vertex AI would refuse `job`, a BatchPredictionJob message.

    https://cloud.google.com/vertex-ai/docs/reference/rest/v1/projects.locations.batchPredictionJobs

    Args:
        parent: projects/P/locations/L.
    """
    check_name(job, "batch_prediction_job")
    check_labels(job.labels)
    check_form("service_account", job.service_account)
    check_key(job, parent)
    check_model(job, parent)
    check_input(job.input_config)
    check_output(job.output_config)
    check_encryption(job)
    check_instance_config(job.instance_config, job.input_config.instances_format)
    check_replicas(job.dedicated_resources)


def check_model(job: Any, parent: str) -> None:
    """Refuse no model and two, and a model of another region."""
    if bool(job.model) == ("unmanaged_container_model" in job):
        raise invalid("exactly one of model and unmanaged_container_model must be set")
    if job.model and not job.model.startswith(f"{parent}/models/"):
        raise invalid(f"model {job.model} is not in {parent}")


def check_input(config: Any) -> None:
    """Refuse a format that models do not have, another source than its own, and a misnamed one."""
    kind = config.instances_format
    if kind not in FORMATS:
        raise invalid(f"instances_format {kind!r} is none of {', '.join(FORMATS)}")
    source = "bigquery_source" if kind == "bigquery" else "gcs_source"
    if source not in config:
        raise invalid(f"instances_format {kind} is read from input_config.{source}")
    if kind == "bigquery":
        _check_uri(config.bigquery_source.input_uri, TABLE, "bq://PROJECT.DATASET.TABLE")
    elif not config.gcs_source.uris:
        raise invalid("input_config.gcs_source.uris is required")
    for uri in config.gcs_source.uris if kind != "bigquery" else ():
        _check_place(uri, "input_config.gcs_source.uris")


def check_output(config: Any) -> None:
    """Refuse a format of predictions that there is not, or without its destination."""
    kind = config.predictions_format
    if kind not in _OUTPUT_FORMATS:
        raise invalid(f"predictions_format {kind!r} is none of {', '.join(_OUTPUT_FORMATS)}")
    destination = "bigquery_destination" if kind == "bigquery" else "gcs_destination"
    if destination not in config:
        raise invalid(f"predictions_format {kind} is written to output_config.{destination}")
    if kind == "bigquery":
        form = "bq://PROJECT, bq://PROJECT.DATASET or bq://PROJECT.DATASET.TABLE"
        _check_uri(config.bigquery_destination.output_uri, TABLE_PLACE, form)
    else:
        prefix = config.gcs_destination.output_uri_prefix
        _check_place(prefix, "output_config.gcs_destination.output_uri_prefix")


def check_encryption(job: Any) -> None:
    """Refuse a key of the customer's where BigQuery is read or written."""
    formats = (job.input_config.instances_format, job.output_config.predictions_format)
    if job.encryption_spec.kms_key_name and "bigquery" in formats:
        raise invalid("encryption_spec is not supported with BigQuery as input or output")


def check_instance_config(config: Any, instances_format: str) -> None:
    """Refuse another type of instance, and fields where the format has none or they contradict."""
    kind = config.instance_type
    if kind not in ("", "object", "array"):
        raise invalid(f"instance_config.instance_type {kind!r} is neither object nor array")
    if kind and instances_format not in ("jsonl", "bigquery"):
        raise invalid(f"instance_config.instance_type does not apply to {instances_format}")
    if config.included_fields and config.excluded_fields:
        raise invalid("instance_config has both included_fields and excluded_fields")
    fields = config.included_fields or config.excluded_fields
    if fields and instances_format not in _WITH_FIELDS:
        raise invalid(f"instance_config chooses fields, which {instances_format} does not have")
    if config.key_field and instances_format == "file-list":
        raise invalid("instance_config.key_field is not for file-list, whose files have no fields")


def check_replicas(resources: Any) -> None:
    """Refuse a job without a machine, or one that starts with more replicas than it may have."""
    check_machine_spec(resources.machine_spec, "batch_prediction_job.dedicated_resources")
    most = resources.max_replica_count or DEFAULT_MAX_REPLICAS
    if resources.starting_replica_count > most:
        raise invalid(
            f"starting_replica_count {resources.starting_replica_count} is greater than "
            f"max_replica_count {most}"
        )


def check_ended(name: str, state: str) -> None:
    """Refuse to delete a job that has not ended."""
    if state not in _ENDED:
        raise ApiError("FAILED_PRECONDITION", f"{name} has not ended; cancel it first")


def _check_place(uri: str, field: str) -> None:
    # On this machine a path stands for what is in a bucket.
    if not uri.startswith(("gs://", "/")):
        raise invalid(f"{field}: {uri!r} is not a Cloud Storage URI, gs://BUCKET/OBJECT")


def _check_uri(uri: str, form: re.Pattern[str], shown: str) -> None:
    if len(uri) > _LONGEST_URI or not form.fullmatch(uri):
        raise invalid(f"{uri[:80]!r} is not {shown} of up to {_LONGEST_URI} characters")
