"""Vertex AI Model Monitoring of an endpoint: its requests, compared with training data.

Uses version 1, which is generally available and monitors the models of endpoints; version 2 is a
preview.
https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/model-monitoring/using-model-monitoring
"""

from typing import Any

import yaml

from components.planning.prediction_options import BIGQUERY, TABLE
from components.registry.model_upload import MADE_BY, to_label
from components.vertex.cloud_errors import NOT_FOUND, tolerated
from pipelines.cloud.connection import Connection
from pipelines.recipe import Recipe
from trainer.errors import InputError

_INTERVAL_SECONDS = 24 * 3600
"""Interval between comparisons; gcloud's default."""
_UPDATED = (
    "model_deployment_monitoring_objective_configs",
    "logging_sampling_strategy",
    "model_monitoring_alert_config",
)
_TYPES = {"numeric": "number", "bucketized": "number", "identity": "integer"}
"""JSON types of columns; the others are strings."""


def set_up(connection: Connection, recipe: Recipe, endpoint: Any) -> Any:
    """Create or update the monitoring of an endpoint whose models read a table; return the job."""
    from google.cloud.aiplatform_v1 import types

    if not endpoint.deployed_models:
        raise InputError(f"the endpoint of {recipe.name} serves no version; deploy one first")
    parameters, notify = recipe.parameters, recipe.run_options.notify
    model, settings = parameters.registry.model_name, connection.settings
    key = parameters.job.encryption_spec_key_name or settings.encryption_key
    objective = _build_objective(recipe)
    sampling = {"sample_rate": recipe.run_options.monitoring.sampling_rate}
    emails = {"email_alert_config": {"user_emails": notify}} if notify else {}
    job = types.ModelDeploymentMonitoringJob(
        name=endpoint.model_deployment_monitoring_job,
        display_name=model,
        endpoint=endpoint.name,
        model_deployment_monitoring_objective_configs=[
            {"deployed_model_id": deployed.id, "objective_config": objective}
            for deployed in endpoint.deployed_models
        ],
        model_deployment_monitoring_schedule_config={
            "monitor_interval": {"seconds": _INTERVAL_SECONDS}
        },
        logging_sampling_strategy={"random_sample_config": sampling},
        model_monitoring_alert_config={"enable_logging": True, **emails},
        labels={**settings.labels, "recipe": to_label(model), **MADE_BY},
        encryption_spec={"kms_key_name": key} if key else None,
    )
    uri = _upload_schema(connection, recipe, model)
    if not job.name:
        job.analysis_instance_schema_uri = uri
        return connection.jobs.create_model_deployment_monitoring_job(
            parent=settings.parent, model_deployment_monitoring_job=job
        )
    operation = connection.jobs.update_model_deployment_monitoring_job(
        model_deployment_monitoring_job=job, update_mask={"paths": list(_UPDATED)}
    )
    connection.finish(operation)
    return job


def remove(connection: Connection, endpoint: Any) -> None:
    """End the monitoring of an endpoint, if any."""
    name = endpoint.model_deployment_monitoring_job
    if name:
        # "You must pause a job before you can delete it."
        with tolerated(NOT_FOUND):
            connection.jobs.pause_model_deployment_monitoring_job(name=name)
            connection.finish(connection.jobs.delete_model_deployment_monitoring_job(name=name))


def _find_training_uri(recipe: Recipe) -> str:
    """Return the URI of the training data; empty if Vertex AI can't read the data.

    Vertex AI reads uncompressed CSV files in buckets, and BigQuery tables, but runs no query.
    """
    kind, _, location = recipe.parameters.records.source.partition(":")
    if kind == "bigquery" and TABLE.fullmatch(f"{BIGQUERY}{location}"):
        return f"{BIGQUERY}{location}"
    if kind == "csv" and location.startswith("gs://") and not location.endswith(".gz"):
        is_file = "*" in location or location.endswith(".csv")
        return location if is_file else f"{location.rstrip('/')}/*.csv"
    return ""


def _build_objective(recipe: Recipe) -> dict[str, Any]:
    """Return the objective: skew from the training data, or drift from earlier requests."""
    uri, threshold = _find_training_uri(recipe), {"value": recipe.run_options.monitoring.threshold}
    if not uri:
        return {"prediction_drift_detection_config": {"default_drift_threshold": threshold}}
    data = {"gcs_source": {"uris": [uri]}, "data_format": "csv"}
    if uri.startswith(BIGQUERY):
        data = {"bigquery_source": {"input_uri": uri}}
    return {
        "training_dataset": {
            "target_field": str(recipe.parameters.records.label["column"]),
            **data,
        },
        "training_prediction_skew_detection_config": {"default_skew_threshold": threshold},
    }


def _upload_schema(connection: Connection, recipe: Recipe, model: str) -> str:
    """Write the schema of an instance to the bucket; return its URI."""
    columns = recipe.parameters.records.columns
    properties = {
        column["name"]: {"type": _TYPES.get(column["type"], "string")} for column in columns
    }
    content = yaml.safe_dump({"type": "object", "properties": properties}, sort_keys=False)
    settings = connection.settings.require("pipeline_root")
    uri = f"{settings.pipeline_root.rstrip('/')}/monitoring/{model}.yaml"
    blob = connection.storage.bucket(settings.bucket).blob(uri.split("/", 3)[3])
    blob.upload_from_string(content, "application/yaml", retry=connection.retry)
    return uri


def describe(recipe: Recipe) -> list[str]:
    """Return lines that say what requests are compared with and who is notified."""
    monitoring, uri = recipe.run_options.monitoring, _find_training_uri(recipe)
    other = uri or "earlier requests, as Vertex AI can't read the source"
    emails = ", ".join(recipe.run_options.notify)
    return [
        f"{monitoring.sampling_rate:.0%} of the requests are kept in BigQuery and compared with "
        f"{other}, every 24 hours",
        f"distances over {monitoring.threshold:g} are reported to Cloud Logging"
        + (f" and to {emails}" if emails else "; for e-mails, set notify in the recipe"),
    ]
