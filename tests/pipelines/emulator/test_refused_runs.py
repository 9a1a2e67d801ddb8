"""The emulator refuses runs and schedules that a page says Vertex AI refuses."""

import datetime

import pytest
from google.api_core import exceptions

from tests.pipelines.emulator.services import PARENT, PROJECT, changed

KEY = f"{PROJECT}/locations/europe-west4/keyRings/ring/cryptoKeys/key"
LONG = "x" * 129
NO_GPU = {"accelerator": {"resourceType": "NVIDIA_L4", "resourceCount": "0"}}
STEP = {"executors": {"exec-step": {"container": {"resources": NO_GPU}}}}
RUN = {
    "display_name": "digits",
    "pipeline_spec": {"pipelineInfo": {"name": "training"}, "root": {"dag": {}}},
    "runtime_config": {"gcs_output_directory": "gs://bucket/runs"},
}
SCHEDULE = {
    "display_name": "digits",
    "cron": "TZ=UTC 0 3 * * 1",
    "max_concurrent_run_count": 1,
    "create_pipeline_job_request": {"parent": PARENT, "pipeline_job": RUN},
}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"display_name": LONG}, "pipeline_job.display_name has more than 128"),
        ({"pipeline_spec": {}}, "pipeline_spec is required"),
        ({"pipeline_spec__deploymentSpec": STEP}, "exec-step: the accelerator limit is not a pos"),
        ({"runtime_config__gcs_output_directory": "/runs"}, "begins with gs://"),
        ({"network": "projects/my-project/global/networks/n"}, "with the project's number"),
        ({"service_account": "runner"}, "service_account='runner' is not"),
        ({"encryption_spec__kms_key_name": "key"}, "/keyRings/RING/cryptoKeys/KEY"),
        ({"encryption_spec__kms_key_name": KEY}, "in europe-west4, but the run is in us-central1"),
        ({"labels": {"Team": "x"}}, "'Team' is not a label"),
        ({"labels": {f"l{n}": "" for n in range(65)}}, "at most 64"),
    ],
)
def test_a_run_that_a_page_rules_out_is_refused(services, fields, reason):
    with pytest.raises(exceptions.BadRequest, match=reason):
        services.create_run(changed(RUN, **fields))
    assert services.create_run(RUN).name == f"{PARENT}/pipelineJobs/one"


@pytest.mark.parametrize("run_id", ["Digits", "a" * 128, "a_b"])
def test_a_runs_id_of_another_form_is_refused(services, run_id):
    with pytest.raises(exceptions.BadRequest, match="pipeline_job_id"):
        services.create_run(RUN, run_id)
    assert services.create_run(RUN, "a" * 127)


def test_a_run_is_cancelled_before_its_end_and_deleted_after_it(services):
    name = services.create_run(RUN).name
    with pytest.raises(exceptions.BadRequest, match="cancel it first"):
        services.pipeline.delete_pipeline_job(name=name)
    services.pipeline.cancel_pipeline_job(name=name)
    cancelled = services.pipeline.get_pipeline_job(name=name)
    assert (cancelled.state.name, cancelled.error.code) == ("PIPELINE_STATE_CANCELLED", 1)
    with pytest.raises(exceptions.BadRequest, match="CANCELLED already"):
        services.pipeline.cancel_pipeline_job(name=name)


def test_runs_are_listed_the_latest_first_unless_asked_otherwise(services):
    for name in ("one", "two"):
        services.create_run(RUN, name)

    def listed(order):
        found = services.pipeline.list_pipeline_jobs({"parent": PARENT, "order_by": order})
        return [one.name.rpartition("/")[2] for one in found]

    assert listed("") == listed("create_time desc") == ["two", "one"]
    assert listed("createTime") == ["one", "two"]
    with pytest.raises(exceptions.BadRequest, match="order_by 'display_name'"):
        listed("display_name")


def test_runs_are_listed_by_pipeline_and_template(services):
    services.create_run(RUN, "named")
    services.create_run(changed(RUN, pipeline_spec={"root": {"dag": {}}}), "nameless")
    for text, count in (
        ('pipelineName="training"', 1),
        ('templateMetadata.version:"sha256:*"', 0),
        ("templateMetadata.version!=1", 2),
    ):
        found = services.pipeline.list_pipeline_jobs({"parent": PARENT, "filter": text})
        assert [one.name[-5:] for one in found][-1:] == ["named"] * bool(count)
        assert len(list(found)) == count


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"display_name": ""}, "schedule.display_name is required"),
        ({"display_name": LONG}, "schedule.display_name has more than 128"),
        ({"cron": ""}, "schedule.cron is required"),
        ({"cron": "TZ=Europe/Berln 0 3 * * 1"}, "is not five fields"),
        ({"cron": "0 3 * *"}, "is not five fields"),
        ({"max_concurrent_run_count": 0}, "max_concurrent_run_count is required"),
        ({"create_pipeline_job_request__parent": ""}, "request.parent is required"),
        ({"create_pipeline_job_request__pipeline_job_id": "one"}, "ID is not supported"),
        ({"create_pipeline_job_request__pipeline_job__labels": {"A": ""}}, "'A' is not a label"),
    ],
)
def test_a_schedule_that_a_page_rules_out_is_refused(services, fields, reason):
    with pytest.raises(exceptions.BadRequest, match=reason):
        services.create_schedule(changed(SCHEDULE, **fields))
    schedule = services.create_schedule(SCHEDULE)
    update = {"schedule": changed(SCHEDULE, **fields, name=schedule.name)}
    with pytest.raises(exceptions.BadRequest):
        services.schedule.update_schedule(
            {**update, "update_mask": {"paths": [next(iter(fields)).partition("__")[0]]}}
        )
    assert services.schedule.get_schedule(name=schedule.name) == schedule


def test_a_schedule_changes_only_as_its_state_allows(services):
    schedule = services.create_schedule(changed(SCHEDULE, max_run_count=1))
    name = schedule.name
    with pytest.raises(exceptions.BadRequest, match="update_mask is required"):
        services.schedule.update_schedule(schedule=schedule)
    with pytest.raises(exceptions.BadRequest, match="is ACTIVE"):
        services.schedule.resume_schedule(name=name)
    start = {"name": name, "start_time": datetime.datetime(2040, 1, 1)}
    mask = {"paths": ["start_time"]}
    updated = services.schedule.update_schedule(schedule=start, update_mask=mask)
    assert updated.start_time == schedule.start_time
    services.forward(days=7)
    assert services.schedule.get_schedule(name=name).state.name == "COMPLETED"
    for deed in (services.schedule.pause_schedule, services.schedule.resume_schedule):
        with pytest.raises(exceptions.BadRequest, match="is COMPLETED"):
            deed(name=name)
    update = {"name": name, "cron": "0 4 * * 1"}
    with pytest.raises(exceptions.BadRequest, match="is COMPLETED"):
        services.schedule.update_schedule(schedule=update, update_mask={"paths": ["cron"]})


def test_a_resumed_schedule_makes_up_for_no_missed_run(services):
    name = services.create_schedule(SCHEDULE).name
    services.schedule.pause_schedule(name=name)
    services.forward(days=15)
    services.schedule.resume_schedule(name=name)
    services.scheduler.fire()
    assert list(services.pipeline.list_pipeline_jobs(parent=PARENT)) == []
    services.forward(days=7)
    assert len(list(services.pipeline.list_pipeline_jobs(parent=PARENT))) == 1


@pytest.mark.parametrize("queueing", [True, False])
def test_a_run_too_many_waits_in_the_queue_or_is_skipped(services, queueing):
    fields = {"max_concurrent_active_run_count": 1, "allow_queueing": queueing}
    services.create_schedule(changed(SCHEDULE, **fields))
    services.forward(days=7)
    services.forward(days=7)
    (run,) = services.pipeline.list_pipeline_jobs(parent=PARENT)
    services.pipeline.cancel_pipeline_job(name=run.name)
    services.scheduler.fire()
    assert len(list(services.pipeline.list_pipeline_jobs(parent=PARENT))) == 1 + queueing
