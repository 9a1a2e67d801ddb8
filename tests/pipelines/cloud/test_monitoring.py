"""python -m pipelines deploy --monitor: what Vertex AI is asked to watch, and to tell."""

import pytest
import yaml
from google.cloud.aiplatform_v1 import types

from tests.pipelines.cloud.test_deploy import put_champion

MONITORED = """
model_name = "digits"
notify = ["team@example.com"]

[monitoring]
threshold = 0.2
sampling_rate = 0.5
"""


@pytest.fixture
def trips(trips_recipe):
    """Writes the recipe `trips` with a source."""
    return lambda source: trips_recipe(source, MONITORED)


def expected(endpoint, objective, *versions):
    """The job that is asked for, as a parsed proto."""
    return types.ModelDeploymentMonitoringJob(
        display_name="digits",
        endpoint=endpoint,
        model_deployment_monitoring_objective_configs=[
            {"deployed_model_id": one, "objective_config": objective} for one in versions
        ],
        model_deployment_monitoring_schedule_config={"monitor_interval": {"seconds": 86400}},
        logging_sampling_strategy={"random_sample_config": {"sample_rate": 0.5}},
        model_monitoring_alert_config={
            "enable_logging": True,
            "email_alert_config": {"user_emails": ["team@example.com"]},
        },
        analysis_instance_schema_uri="gs://bucket/runs/monitoring/digits.yaml",
        labels={"recipe": "digits", "made-by": "vertex-tensorflow-training"},
    )


def skew(**data):
    return {
        "training_dataset": {"target_field": "tips", **data},
        "training_prediction_skew_detection_config": {"default_skew_threshold": {"value": 0.2}},
    }


CSV = skew(gcs_source={"uris": ["gs://data/trips/*.csv"]}, data_format="csv")
BIGQUERY = skew(bigquery_source={"input_uri": "bq://my-project.d.trips"})
DRIFT = {"prediction_drift_detection_config": {"default_drift_threshold": {"value": 0.2}}}


@pytest.mark.parametrize(
    ("source", "objective", "line"),
    [
        ("csv:gs://data/trips", CSV, "kept in BigQuery and compared with gs://data/trips/*.csv"),
        (
            "bigquery:my-project.d.trips",
            BIGQUERY,
            "kept in BigQuery and compared with bq://my-project.d.trips",
        ),
        ("parquet:gs://data/trips", DRIFT, "kept in BigQuery and compared with earlier ones, as"),
    ],
)
def test_an_endpoint_is_monitored_as_the_recipe_asks(
    vertex, command, bucket, trips, source, objective, line
):
    trips(source)
    put_champion(vertex, 1)
    assert command("deploy", "trips")[0] == 0
    code, shown, errors = command("deploy", "trips", "--monitor")
    assert (code, errors) == (0, "")
    assert f"50% of the requests are {line}" in shown
    assert "distances over 0.2 go to Cloud Logging and to team@example.com" in shown
    endpoint = vertex.endpoints["digits"].name
    (sent,) = vertex.sent("CreateModelDeploymentMonitoringJob")
    assert sent.model_deployment_monitoring_job == expected(endpoint, objective, "1")
    schema = yaml.safe_load(bucket["runs/monitoring/digits.yaml"])
    kinds = {"miles": "number", "hour": "integer", "payment": "string", "company": "string"}
    kinds["Zone Id"] = "string"
    assert schema == {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in kinds.items()},
    }


def test_a_further_version_is_monitored_too_and_nothing_is_left(vertex, command, bucket, trips):
    trips("csv:gs://data/trips")
    put_champion(vertex, 1)
    command("deploy", "trips")
    command("deploy", "trips", "--monitor")
    put_champion(vertex, 2)
    command("deploy", "trips")
    assert command("deploy", "trips", "--monitor")[0] == 0
    assert len(vertex.sent("CreateModelDeploymentMonitoringJob")) == 1
    (sent,) = vertex.sent("UpdateModelDeploymentMonitoringJob")
    (job,) = vertex.monitoring_jobs.values()
    assert sent.model_deployment_monitoring_job.name == job.name
    objectives = job.model_deployment_monitoring_objective_configs
    assert [one.deployed_model_id for one in objectives] == ["1", "2"]
    assert command("deploy", "trips", "--undeploy")[0] == 0
    assert not vertex.monitoring_jobs
    assert not vertex.endpoints["digits"].deployed_models


def test_what_can_not_be_monitored_is_one_line(vertex, refused, bucket, trips):
    trips("csv:gs://data/trips")
    assert "--monitor is for models of tables, but digits is a" in refused(
        "deploy", "digits", "--monitor"
    )
    assert "digits has no endpoint in projects/my-project/" in refused(
        "deploy", "trips", "--monitor"
    )
    assert "exclude each other" in refused("deploy", "trips", "--monitor", "--traffic", "10")
    assert not vertex.sent("CreateModelDeploymentMonitoringJob")
