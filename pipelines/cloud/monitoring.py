"""Vertex AI's model monitoring of an endpoint: what it is asked, compared with training data.

Monitoring of version 1, which is generally available and watches the models of endpoints; that
of version 2 is a preview.
https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/model-monitoring/using-model-monitoring
"""

from typing import Any

import yaml

from components.cloud_errors import NOT_FOUND, tolerated
from components.registry.model_upload import MADE_BY, label
from pipelines.cloud.connection import Connection
from pipelines.recipe import Recipe
from trainer.errors import InputError

_INTERVAL_SECONDS = 24 * 3600
"""Between two comparisons; gcloud's default."""
_UPDATED = (
    "model_deployment_monitoring_objective_configs",
    "logging_sampling_strategy",
    "model_monitoring_alert_config",
)
_TYPES = {"numeric": "number", "bucketized": "number", "identity": "integer"}
"""JSON's types of columns; the others are strings."""


def set_up(connection: Connection, recipe: Recipe, endpoint: Any) -> Any:
    """Have an endpoint's models of a table monitored, or change how they are; return the job.

    Raises:
        InputError: no version is deployed to it.
    """
    from google.cloud.aiplatform_v1 import types

    if not endpoint.deployed_models:
        raise InputError(f"the endpoint of {recipe.name} serves no version; deploy one first")
    parameters, monitoring = recipe.parameters, recipe.operation.monitoring
    model = parameters.registry.model_name
    objective = _objective(recipe)
    job = types.ModelDeploymentMonitoringJob(
        name=endpoint.model_deployment_monitoring_job,
        display_name=model,
        endpoint=endpoint.name,
        model_deployment_monitoring_objective_configs=[
            types.ModelDeploymentMonitoringObjectiveConfig(
                deployed_model_id=one.id, objective_config=objective
            )
            for one in endpoint.deployed_models
        ],
        model_deployment_monitoring_schedule_config={
            "monitor_interval": {"seconds": _INTERVAL_SECONDS}
        },
        logging_sampling_strategy={
            "random_sample_config": {"sample_rate": monitoring.sampling_rate}
        },
        model_monitoring_alert_config={"enable_logging": True},
        labels={"recipe": label(model), **MADE_BY},
    )
    if recipe.operation.notify:
        emails = job.model_monitoring_alert_config.email_alert_config.user_emails
        emails.extend(recipe.operation.notify)
    if key := parameters.job.encryption_spec_key_name:
        job.encryption_spec.kms_key_name = key
    uri = _upload_schema(connection, recipe, model)
    if not job.name:
        job.analysis_instance_schema_uri = uri
        return connection.jobs.create_model_deployment_monitoring_job(
            parent=connection.settings.parent, model_deployment_monitoring_job=job
        )
    operation = connection.jobs.update_model_deployment_monitoring_job(
        model_deployment_monitoring_job=job, update_mask={"paths": list(_UPDATED)}
    )
    connection.finish(operation)
    return job


def remove(connection: Connection, endpoint: Any) -> None:
    """End the monitoring of an endpoint, where there is some."""
    name = endpoint.model_deployment_monitoring_job
    if name:
        # "You must pause a job before you can delete it."
        with tolerated(NOT_FOUND):
            connection.jobs.pause_model_deployment_monitoring_job(name=name)
            connection.finish(connection.jobs.delete_model_deployment_monitoring_job(name=name))


def _objective(recipe: Recipe) -> Any:
    """Return what is looked for: skew from the training data, where Vertex AI can read them.

    It reads CSV files in buckets and tables of BigQuery. Of other sources what is asked is compared
    with what was asked before.
    """
    from google.cloud.aiplatform_v1 import types

    threshold = types.ThresholdConfig(value=recipe.operation.monitoring.threshold)
    records = recipe.parameters.records
    kind, _, place = records.source.partition(":")
    data = types.ModelMonitoringObjectiveConfig.TrainingDataset(
        target_field=str(records.label["column"])
    )
    if kind == "bigquery":
        data.bigquery_source = types.BigQuerySource(input_uri=f"bq://{place}")
    elif kind == "csv" and place.startswith("gs://"):
        is_file = "*" in place or place.endswith(".csv")
        data.gcs_source = types.GcsSource(uris=[place if is_file else f"{place.rstrip('/')}/*.csv"])
        data.data_format = "csv"
    else:
        return types.ModelMonitoringObjectiveConfig(
            prediction_drift_detection_config={"default_drift_threshold": threshold}
        )
    return types.ModelMonitoringObjectiveConfig(
        training_dataset=data,
        training_prediction_skew_detection_config={"default_skew_threshold": threshold},
    )


def _upload_schema(connection: Connection, recipe: Recipe, model: str) -> str:
    """Put the schema of an instance into the bucket; return its URI."""
    columns = recipe.parameters.records.columns
    properties = {one["name"]: {"type": _TYPES.get(one["type"], "string")} for one in columns}
    content = yaml.safe_dump({"type": "object", "properties": properties}, sort_keys=False)
    settings = connection.settings.require("pipeline_root")
    uri = f"{settings.pipeline_root.rstrip('/')}/monitoring/{model}.yaml"
    blob = connection.storage.bucket(settings.bucket).blob(uri.split("/", 3)[3])
    blob.upload_from_string(content, "application/yaml", retry=connection.retry)
    return uri


def described(job: Any) -> list[str]:
    """Return what a job compares and whom it tells, in lines."""
    objective = job.model_deployment_monitoring_objective_configs[0].objective_config
    if "training_prediction_skew_detection_config" in objective:
        data = objective.training_dataset
        uris = data.gcs_source.uris or [data.bigquery_source.input_uri]
        compared = f"compared with {uris[0]}"
        threshold = objective.training_prediction_skew_detection_config.default_skew_threshold
    else:
        compared = "compared with earlier ones, for Vertex AI can't read the source"
        threshold = objective.prediction_drift_detection_config.default_drift_threshold
    rate = job.logging_sampling_strategy.random_sample_config.sample_rate
    emails = ", ".join(job.model_monitoring_alert_config.email_alert_config.user_emails)
    return [
        f"{rate:.0%} of the requests are kept in BigQuery and {compared}, every 24 hours",
        f"distances over {threshold.value:g} go to Cloud Logging"
        + (f" and to {emails}" if emails else "; set notify in the recipe for e-mails"),
    ]
