"""Vertex AI Model Monitoring of an endpoint: its requests, compared with training data.

Uses version 1, which is generally available and monitors the models of endpoints; version 2 is a
preview.
https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/model-monitoring/using-model-monitoring
"""

from typing import Any

import yaml

from components.planning.prediction_options import BIGQUERY
from pipelines.project.connection import Connection
from pipelines.recipe import Recipe
from pipelines.runs import vertex_jobs
from trainer.data.tables.columns import AUTO
from vertex.client.cloud_errors import (
    CONFLICT,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    Change,
    CloudError,
    tolerated,
)
from vertex.errors import InputError
from vertex.facts.resource_names import TABLE
from vertex.formats import count
from vertex.registry.endpoint_changes import id_of
from vertex.registry.model_upload import MADE_BY, to_label

_DAY_SECONDS = 24 * 3600
"""Also the interval between comparisons; gcloud's default."""
_UPDATED = (
    "model_deployment_monitoring_objective_configs",
    "logging_sampling_strategy",
    "model_monitoring_alert_config",
    "log_ttl",
)
_TYPES = {"numeric": "number", "bucketized": "number", "identity": "integer"}
"""JSON types of columns; the others are strings."""
_REFUSED = 400
PENDING = "PENDING"


def set_up(connection: Connection, recipe: Recipe, endpoint: Any) -> Any:
    """Create, update or resume the monitoring of an endpoint whose models read a table.

    Return the job, which is running or, if it was just created, pending.
    """
    from google.cloud.aiplatform_v1 import types

    if not endpoint.deployed_models:
        raise InputError(f"the endpoint of {recipe.name} serves no version; deploy one first")
    parameters, notify = recipe.parameters, recipe.run_options.notify
    model, settings = parameters.registry.model_name, connection.settings
    key = parameters.job.encryption_spec_key_name or settings.encryption_key
    objective = _build_objective(recipe)
    monitoring = recipe.run_options.monitoring
    sampling = {"sample_rate": monitoring.sampling_rate}
    emails = {"email_alert_config": {"user_emails": notify}} if notify else {}
    job = types.ModelDeploymentMonitoringJob(
        display_name=model,
        endpoint=endpoint.name,
        model_deployment_monitoring_objective_configs=[
            {"deployed_model_id": deployed.id, "objective_config": objective}
            for deployed in endpoint.deployed_models
        ],
        model_deployment_monitoring_schedule_config={"monitor_interval": {"seconds": _DAY_SECONDS}},
        logging_sampling_strategy={"random_sample_config": sampling},
        model_monitoring_alert_config={"enable_logging": True, **emails},
        log_ttl={"seconds": monitoring.keep_days * _DAY_SECONDS} if monitoring.keep_days else None,
        labels={**settings.labels, "recipe": to_label(model), **MADE_BY},
        encryption_spec={"kms_key_name": key} if key else None,
    )
    uri = _upload_schema(connection, recipe, model)
    with Change() as change:
        if existing := _list_jobs(connection, endpoint):
            job.name = existing[0].name
            operation = connection.jobs.update_model_deployment_monitoring_job(
                model_deployment_monitoring_job=job, update_mask={"paths": list(_UPDATED)}
            )
            connection.finish(operation)
        else:
            job.analysis_instance_schema_uri = uri
            job = connection.retry(_create)(connection, endpoint, job)
        change.begun = True
        return _resume(connection, job.name)


def remove(connection: Connection, endpoint: Any) -> None:
    """End the monitoring of an endpoint, if any."""
    for name in [job.name for job in _list_jobs(connection, endpoint)]:
        # "You must pause a job before you can delete it." A paused one can't be paused again.
        with tolerated(_REFUSED, NOT_FOUND, CONFLICT):
            connection.jobs.pause_model_deployment_monitoring_job(name=name)
        try:
            delete = connection.jobs.delete_model_deployment_monitoring_job
            connection.finish(delete(name=name))
        except Exception:
            # An earlier request, whose answer was lost, may have deleted it.
            if name in [job.name for job in _list_jobs(connection, endpoint)]:
                raise


def _list_jobs(connection: Connection, endpoint: Any) -> list[Any]:
    """Return the monitoring job that an endpoint names, and others that this project made."""
    jobs, client = [], connection.jobs
    present = connection.endpoints.get_endpoint(name=endpoint.name)
    if name := present.model_deployment_monitoring_job:
        with tolerated(NOT_FOUND):
            jobs.append(client.get_model_deployment_monitoring_job(name=name))
    with tolerated(NOT_FOUND, NOT_IMPLEMENTED):
        parent = connection.settings.parent
        for job in client.list_model_deployment_monitoring_jobs(parent=parent):
            ours = id_of(job.endpoint) == id_of(endpoint.name) and vertex_jobs.has_labels(
                job, MADE_BY
            )
            if ours and id_of(job.name) not in [id_of(known.name) for known in jobs]:
                jobs.append(job)
    return jobs


def _create(connection: Connection, endpoint: Any, job: Any) -> Any:
    """Create a monitoring job, unless an earlier request, whose answer was lost, has created it."""
    if existing := _list_jobs(connection, endpoint):
        return existing[0]
    return connection.jobs.create_model_deployment_monitoring_job(
        parent=connection.settings.parent, model_deployment_monitoring_job=job
    )


def _resume(connection: Connection, name: str) -> Any:
    """Resume a monitoring job if it is paused; return it, or raise CloudError if it has ended."""
    get = connection.jobs.get_model_deployment_monitoring_job
    job = get(name=name)
    if vertex_jobs.state_of(job) == "PAUSED":
        # An earlier request, whose answer was lost, may have resumed it.
        with tolerated(_REFUSED, CONFLICT):
            connection.jobs.resume_model_deployment_monitoring_job(name=name)
        job = get(name=name)
    if vertex_jobs.state_of(job) not in ("RUNNING", PENDING):
        delete = f"gcloud ai model-monitoring-jobs delete {id_of(name)}"
        raise CloudError(
            f"the monitoring job {name} is {vertex_jobs.state_of(job)} {job.error.message}".rstrip()
            + f"; delete it, then try again: {delete} --region={connection.settings.region}"
        )
    return job


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
    if columns == AUTO:
        raise InputError('monitoring needs to know the columns; list them instead of "auto"')
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
    kept = (
        f"for {count(monitoring.keep_days, 'day')}"
        if monitoring.keep_days
        else ("until you delete them (keep_days in [monitoring] sets an end)")
    )
    return [
        f"{monitoring.sampling_rate:.0%} of the requests are kept in BigQuery and compared with "
        f"{other}, every 24 hours",
        f"they are billed, and kept {kept}",
        f"distances over {monitoring.threshold:g} are reported to Cloud Logging"
        + (f" and to {emails}" if emails else "; for e-mails, set notify in the recipe"),
    ]
