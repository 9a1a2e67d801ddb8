"""Refuse a BatchPredictionJob that Vertex AI refuses, or that is not supported here."""

import re
from typing import Any

from vertex.emulator.field_rules import check_choice, refuse
from vertex.emulator.model_service import INPUT_FORMATS, OUTPUT_FORMATS
from vertex.facts.resource_names import OUTPUT_TABLE, TABLE

_LONGEST_URI = 2000


def check_model(job: Any, parent: str) -> None:
    """Refuse a job with no model or two, or with a model of another region."""
    both_or_none = bool(job.model) == ("unmanaged_container_model" in job)
    refuse(both_or_none, "exactly one of model and unmanaged_container_model must be set")
    unmanaged = "unmanaged_container_model is not supported here"
    refuse(not job.model, f"{unmanaged}: give a model of the Model Registry")
    elsewhere = not job.model.startswith(f"{parent}/models/")
    refuse(elsewhere, f"model {job.model} is not in {parent}")


def check_input(job: Any) -> None:
    """Refuse an unknown input format, or a source or fields that the format does not have."""
    config, instance = job.input_config, job.instance_config
    kind = config.instances_format
    check_choice("instances_format", kind, INPUT_FORMATS)
    source = "bigquery_source" if kind == "bigquery" else "gcs_source"
    missing = source not in config
    refuse(missing, f"instances_format {kind} is read from input_config.{source}")
    # Vertex AI takes some of its fields with other formats, too.
    refuse(instance and kind != "bigquery", f"instance_config is not supported here with {kind}")
    check_choice("instance_type", instance.instance_type or "object", ("object", "array"))
    both = instance.included_fields and instance.excluded_fields
    refuse(both, "instance_config has both included_fields and excluded_fields")
    if kind == "bigquery":
        _check_uri(config.bigquery_source.input_uri, TABLE, "bq://PROJECT.DATASET.TABLE")
    for uri in config.gcs_source.uris:
        _check_place(uri, "input_config.gcs_source.uris")


def check_output(job: Any) -> None:
    """Refuse an unknown output format, one without its destination, or one the input excludes."""
    config = job.output_config
    kind = config.predictions_format
    check_choice("predictions_format", kind, OUTPUT_FORMATS)
    # Its columns depend on the schemata of the model's predictions.
    refuse(kind == "csv", "predictions_format csv is not supported here; give jsonl")
    formats = (job.input_config.instances_format, kind)
    with_key = job.encryption_spec.kms_key_name and "bigquery" in formats
    refuse(with_key, "encryption_spec is not supported with BigQuery as input or output")
    alone = formats[0] == "bigquery" != kind
    refuse(alone, "predictions_format must be bigquery, as instances_format is")
    destination = "bigquery_destination" if kind == "bigquery" else "gcs_destination"
    missing = destination not in config
    refuse(missing, f"predictions_format {kind} is written to output_config.{destination}")
    if kind == "bigquery":
        form = "bq://PROJECT, bq://PROJECT.DATASET or bq://PROJECT.DATASET.TABLE"
        _check_uri(config.bigquery_destination.output_uri, OUTPUT_TABLE, form)
    else:
        prefix = config.gcs_destination.output_uri_prefix
        _check_place(prefix, "output_config.gcs_destination.output_uri_prefix")


def _check_place(uri: str, field: str) -> None:
    # On this machine a local path stands in for an object.
    elsewhere = not uri.startswith(("gs://", "/"))
    refuse(elsewhere, f"{field}: {uri!r} is not a Cloud Storage URI, gs://BUCKET/OBJECT")


def _check_uri(uri: str, form: re.Pattern[str], shown: str) -> None:
    other = len(uri) > _LONGEST_URI or not form.fullmatch(uri)
    refuse(other, f"{uri[:80]!r} is not {shown} of up to {_LONGEST_URI} characters")
