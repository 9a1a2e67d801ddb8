"""python -m pipelines deploy --monitor: requests to an endpoint, compared with training data."""

import functools

import pytest
import yaml
from google.cloud.aiplatform_v1 import types

from tests.pipelines.cloud.test_deploy import put_champion
from vertex.client import vertex_client

MONITORED = """
model_name = "digits"
notify = ["team@example.com"]

[monitoring]
threshold = 0.2
sampling_rate = 0.5
keep_days = 30
"""

UNDEPLOYED = "digits is no longer served, but may still be monitored\n"


@pytest.fixture
def trips(trips_recipe, bucket):
    """Write the recipe `trips` with a source."""
    return lambda source: trips_recipe(source, MONITORED)


def monitoring_job(endpoint, objective, *versions):
    return types.ModelDeploymentMonitoringJob(
        display_name="digits",
        endpoint=endpoint,
        model_deployment_monitoring_objective_configs=[
            {"deployed_model_id": version, "objective_config": objective} for version in versions
        ],
        model_deployment_monitoring_schedule_config={"monitor_interval": {"seconds": 86400}},
        log_ttl={"seconds": 30 * 86400},
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
    ("source", "objective", "compared_with"),
    [
        ("csv:gs://data/trips", CSV, "gs://data/trips/*.csv"),
        ("bigquery:my-project.d.trips", BIGQUERY, "bq://my-project.d.trips"),
        ("bigquery:SELECT * FROM d.trips", DRIFT, "earlier requests, as"),
        ("parquet:gs://data/trips", DRIFT, "earlier requests, as"),
        ("csv:gs://data/trips.csv.gz", DRIFT, "earlier requests, as"),
        ("bigquery:SELECT * FROM my-project.d.trips", DRIFT, "earlier requests, as"),
    ],
)
def test_endpoint_is_monitored_as_the_recipe_declares(
    vertex, succeed, bucket, trips, source, objective, compared_with
):
    trips(source)
    put_champion(vertex, 1)
    succeed("deploy trips")
    out = succeed("deploy trips --monitor")
    kept = "50% of the requests are kept in BigQuery and compared with"
    assert f"{kept} {compared_with}" in out
    assert "they are billed, and kept for 30 days\n" in out
    assert "distances over 0.2 are reported to Cloud Logging and to team@example.com" in out
    (sent,) = vertex.sent("CreateModelDeploymentMonitoringJob")
    endpoint = vertex.endpoints["digits"].name
    assert sent.model_deployment_monitoring_job == monitoring_job(endpoint, objective, "1")
    kinds = {"miles": "number", "hour": "integer", "payment": "string", "company": "string"}
    properties = {name: {"type": kind} for name, kind in (*kinds.items(), ("Zone Id", "string"))}
    schema = yaml.safe_load(bucket["runs/monitoring/digits.yaml"])
    assert schema == {"type": "object", "properties": properties}


def test_monitoring_covers_new_versions_until_undeploy(vertex, succeed, refused, trips):
    trips("csv:gs://data/trips")
    error = refused("deploy trips --monitor")
    assert "digits has no endpoint in projects/my-project/" in error
    error = refused("deploy trips --monitor --region us-east5")
    assert "us-east5 has no Model Monitoring (locations, 2026-08)" in error
    assert not vertex.sent("CreateModelDeploymentMonitoringJob")
    for number in (1, 2):
        put_champion(vertex, number)
        succeed("deploy trips")
        succeed("deploy trips --monitor")
    assert len(vertex.sent("CreateModelDeploymentMonitoringJob")) == 1
    (sent,) = vertex.sent("UpdateModelDeploymentMonitoringJob")
    (job,) = vertex.monitoring_jobs.values()
    assert sent.model_deployment_monitoring_job.name == job.name
    objectives = job.model_deployment_monitoring_objective_configs
    assert [objective.deployed_model_id for objective in objectives] == ["1", "2"]
    succeed("deploy trips --undeploy")
    assert not vertex.monitoring_jobs
    assert not vertex.endpoints["digits"].deployed_models


@pytest.fixture
def monitored(vertex, succeed, trips):
    """An endpoint with a monitoring job; return the job as it is now."""
    trips("csv:gs://data/trips")
    put_champion(vertex, 1)
    succeed("deploy trips")
    succeed("deploy trips --monitor")
    (name,) = vertex.monitoring_jobs
    return functools.partial(vertex.monitoring_jobs.get, name)


def test_requests_are_kept_again_without_an_end(monitored, succeed, trips_recipe):
    assert monitored().log_ttl.days == 30
    trips_recipe("csv:gs://data/trips", MONITORED.replace("keep_days = 30", ""))
    assert "and kept until you delete them" in succeed("deploy trips --monitor")
    assert not monitored().log_ttl


def set_state(vertex, job, state):
    job.state = f"JOB_STATE_{state}"
    vertex.monitoring_jobs[job.name.rpartition("/")[2]] = job


def test_paused_monitoring_is_resumed_or_ended(vertex, monitored, succeed, command):
    set_state(vertex, monitored(), "PAUSED")
    assert "digits is monitored: " in succeed("deploy trips --monitor")
    assert monitored().state.name == "JOB_STATE_RUNNING"
    set_state(vertex, monitored(), "PAUSED")
    vertex.fail("ResumeModelDeploymentMonitoringJob", 503, "UNAVAILABLE", after=True)
    assert command("deploy trips --monitor")[0] == 0
    assert monitored().state.name == "JOB_STATE_RUNNING"
    set_state(vertex, monitored(), "PAUSED")
    assert "is no longer served or billed" in succeed("deploy trips --undeploy")
    assert (monitored(), [*vertex.endpoints["digits"].deployed_models]) == (None, [])


@pytest.mark.parametrize("name", ["Pause", "Delete"])
def test_monitoring_is_ended_although_an_answer_is_lost(vertex, monitored, command, name):
    request = f"{name}ModelDeploymentMonitoringJob"
    vertex.fail(request, 503, "UNAVAILABLE", after=True)
    assert command("deploy trips --undeploy")[0] == 0
    assert (monitored(), [*vertex.endpoints["digits"].deployed_models]) == (None, [])


def test_machines_are_undeployed_although_monitoring_can_not_be_ended(
    vertex, monitored, command, succeed
):
    vertex.fail("DeleteModelDeploymentMonitoringJob", 403, "PERMISSION_DENIED", "no", times=1)
    code, out, err = command("deploy trips --undeploy")
    assert (code, out) == (1, UNDEPLOYED)
    assert err.startswith("error: serving 'digits': 403 no; ")
    assert (bool(monitored()), [*vertex.endpoints["digits"].deployed_models]) == (True, [])
    assert "is no longer served or billed" in succeed("deploy trips --undeploy")
    assert monitored() is None


def test_monitoring_whose_end_is_unknown_is_not_called_ended(vertex, monitored, command):
    def accept():
        """Accept the deletion, which is not done when the jobs are listed."""
        put_back = functools.partial(set_state, vertex, monitored(), "PAUSED")
        vertex.before("ListModelDeploymentMonitoringJobs", put_back)

    vertex.before("DeleteModelDeploymentMonitoringJob", accept)
    vertex.fail("GetOperation", 404, "NOT_FOUND", "no operation")
    code, out, err = command("deploy trips --undeploy")
    assert (code, out) == (1, UNDEPLOYED)
    assert "404 no operation; it may have taken effect: repeat the command" in err


@pytest.mark.parametrize("after", [False, True])
def test_monitoring_is_created_once_although_an_answer_is_lost(
    vertex, command, trips, monkeypatch, after
):
    trips("csv:gs://data/trips")
    put_champion(vertex, 1)
    assert command("deploy trips")[0] == 0
    create = "CreateModelDeploymentMonitoringJob"
    vertex.fail(create, 503, "UNAVAILABLE", after=after)
    code, out, _ = command("deploy trips --monitor")
    assert (code, "digits is monitored: " in out, len(vertex.monitoring_jobs)) == (0, True, 1)
    assert command("deploy trips --undeploy")[0] == 0
    assert command("deploy trips")[0] == 0
    monkeypatch.setattr(vertex_client, "_RETRY_SECONDS", 0.2)
    vertex.fail(create, 503, "UNAVAILABLE", "down", times=99)
    code, out, err = command("deploy trips --monitor")
    assert (code, out) == (1, "")
    assert "503 down; it may have taken effect: repeat the command, which is" in err


def test_job_that_has_ended_does_not_monitor(vertex, monitored, command, succeed):
    failed = monitored()
    failed.error.message = "no permission for BigQuery"
    set_state(vertex, failed, "FAILED")
    code, out, err = command("deploy trips --monitor")
    assert (code, out) == (1, "")
    assert f"{failed.name} is FAILED no permission for BigQuery; delete it, then try again: " in err
    set_state(vertex, failed, "PENDING")
    assert "digits will be monitored once its job runs: " in succeed("deploy trips --monitor")
    # The endpoint may still name a job that is gone.
    vertex.monitoring_jobs.clear()
    succeed("deploy trips --monitor")
    assert len(vertex.monitoring_jobs) == 1


def test_monitoring_that_has_begun_is_not_kept_quiet(vertex, trips, command, succeed):
    trips("csv:gs://data/trips")
    put_champion(vertex, 1)
    succeed("deploy trips")
    vertex.fail("GetModelDeploymentMonitoringJob", 400, "FAILED_PRECONDITION", "no")
    code, _, err = command("deploy trips --monitor")
    repeat = "it may have taken effect: repeat the command, which is safe"
    assert (code, err) == (1, f"error: serving 'digits': no; {repeat}\n")
    succeed("deploy trips --monitor")
    assert len(vertex.sent("CreateModelDeploymentMonitoringJob")) == 1
