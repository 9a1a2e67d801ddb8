"""The emulator refuses the runs, schedules, names, labels, keys and IDs that Vertex AI refuses."""

import datetime

import pytest
from google.api_core import exceptions

from tests.pipelines.emulator.idle_services import PARENT, PROJECT, REQUESTS, changed

LONG = "x" * 129
NO_GPU = {"accelerator": {"resourceType": "NVIDIA_L4", "resourceCount": "0"}}
STEP = {"executors": {"exec-step": {"container": {"resources": NO_GPU}}}}


def listed(services, **request):
    """Return the runs that a list request finds, by ID."""
    jobs = services.pipeline.list_pipeline_jobs({"parent": PARENT, **request})
    return [job.name.rpartition("/")[2] for job in jobs]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"pipeline_spec": {}}, "pipeline_spec is required"),
        ({"pipeline_spec__deploymentSpec": STEP}, "exec-step: the accelerator limit is not a pos"),
        ({"runtime_config__gcs_output_directory": "/runs"}, "begins with gs://"),
        ({"network": "projects/my-project/global/networks/n"}, "with the project's number"),
        ({"service_account": "runner"}, "service_account='runner' is not"),
    ],
)
def test_invalid_run_is_refused(services, fields, reason):
    with pytest.raises(exceptions.BadRequest, match=reason):
        services.create("pipeline_job", **fields)


def test_run_is_cancelled_once_before_it_is_deleted(services):
    name = services.create("pipeline_job", "one").name
    with pytest.raises(exceptions.BadRequest, match="cancel it first"):
        services.pipeline.delete_pipeline_job(name=name)
    services.pipeline.cancel_pipeline_job(name=name)
    cancelled = services.pipeline.get_pipeline_job(name=name)
    assert (cancelled.state.name, cancelled.error.code) == ("PIPELINE_STATE_CANCELLED", 1)
    with pytest.raises(exceptions.BadRequest, match="CANCELLED already"):
        services.pipeline.cancel_pipeline_job(name=name)


def test_runs_are_ordered_and_filtered(services):
    services.create("pipeline_job", "named")
    services.create("pipeline_job", "nameless", pipeline_spec={"root": {"dag": {}}})
    assert listed(services) == ["nameless", "named"]
    for field in ("create_time", "createTime"):
        assert listed(services, order_by=f"{field} desc") == ["nameless", "named"]
    for field in ("pipeline_name", "pipelineName"):
        assert listed(services, filter=f'{field}="training"') == ["named"]
    services.create("schedule")
    with pytest.raises(exceptions.BadRequest, match=r"'labels.team' is not a field of Schedule"):
        services.schedule.list_schedules({"parent": PARENT, "filter": 'labels.team="vision"'})


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"display_name": ""}, "schedule.display_name is required"),
        ({"display_name": LONG}, "schedule.display_name has more than 128"),
        ({"cron": ""}, "schedule.cron is required"),
        ({"cron": "TZ=Europe/Berln 0 3 * * 1"}, "'Europe/Berln' is not an IANA time zone"),
        ({"cron": "0 3 * *"}, "is not five fields"),
        ({"max_concurrent_run_count": 0}, "max_concurrent_run_count is required"),
        ({"create_pipeline_job_request__parent": ""}, "request.parent is required"),
        ({"create_pipeline_job_request__pipeline_job_id": "one"}, "ID is not supported"),
        ({"create_pipeline_job_request__pipeline_job__labels": {"A": ""}}, "'A' is not a label"),
    ],
)
def test_invalid_schedule_is_refused(services, fields, reason):
    with pytest.raises(exceptions.BadRequest, match=reason):
        services.create("schedule", **fields)
    schedule = services.create("schedule")
    field = next(iter(fields)).partition("__")[0]
    value = changed(REQUESTS["schedule"], **fields)[field]
    with pytest.raises(exceptions.BadRequest):
        services.update_schedule(schedule.name, **{field: value})
    assert services.schedule.get_schedule(name=schedule.name) == schedule


def test_schedule_names_months_and_days(services):
    schedule = services.create("schedule", cron="TZ=UTC 0 3 * JAN,jul Mon-FRI")
    numbered = services.create("schedule", cron="0 3 * 1,7 1-5")
    assert schedule.next_run_time == numbered.next_run_time


def test_schedule_changes_only_as_its_state_allows(services):
    schedule = services.create("schedule", max_run_count=1)
    name = schedule.name
    with pytest.raises(exceptions.BadRequest, match="update_mask is required"):
        services.schedule.update_schedule(schedule=schedule)
    with pytest.raises(exceptions.BadRequest, match="is ACTIVE"):
        services.schedule.resume_schedule(name=name)
    updated = services.update_schedule(name, start_time=datetime.datetime(2040, 1, 1))
    assert updated.start_time == schedule.start_time
    services.forward(days=7)
    assert services.schedule.get_schedule(name=name).state.name == "COMPLETED"
    for change in (services.schedule.pause_schedule, services.schedule.resume_schedule):
        with pytest.raises(exceptions.BadRequest, match="is COMPLETED"):
            change(name=name)
    with pytest.raises(exceptions.BadRequest, match="is COMPLETED"):
        services.update_schedule(name, cron="0 4 * * 1")


def test_schedule_is_active_until_its_end(services):
    now = services.clock.now()
    # The first of a month that has passed, or has just begun: the next one is far.
    yearly = {"cron": f"0 0 1 {now.month} *", "end_time": now + datetime.timedelta(days=3)}
    schedule = services.create("schedule", **yearly)
    assert (schedule.state.name, schedule.next_run_time) == ("ACTIVE", None)
    services.forward(days=3)
    assert services.schedule.get_schedule(name=schedule.name).state.name == "COMPLETED"


def test_resumed_schedule_skips_missed_runs(services):
    name = services.create("schedule").name
    services.schedule.pause_schedule(name=name)
    services.forward(days=15)
    with pytest.raises(exceptions.BadRequest, match="catch_up is not supported here"):
        services.schedule.resume_schedule({"name": name, "catch_up": True})
    services.schedule.resume_schedule(name=name)
    schedule = services.schedule.get_schedule(name=name)
    paused, resumed = schedule.last_pause_time, schedule.last_resume_time
    assert (resumed - paused).days == 15 and schedule.update_time >= resumed
    services.scheduler.fire()
    assert listed(services) == []
    services.forward(days=7)
    assert len(listed(services)) == 1


@pytest.mark.parametrize("queueing", [True, False])
def test_excess_run_is_queued_or_skipped(services, queueing):
    fields = {"max_concurrent_active_run_count": 1, "allow_queueing": queueing}
    services.create("schedule", **fields)
    services.forward(days=7)
    services.forward(days=7)
    (run,) = services.pipeline.list_pipeline_jobs(parent=PARENT)
    assert "/pipelineJobs/training-20" in run.name
    services.pipeline.cancel_pipeline_job(name=run.name)
    services.scheduler.fire()
    assert len(listed(services)) == 1 + queueing


KEY = f"{PROJECT}/locations/europe-west4/keyRings/ring/cryptoKeys/key"
ELSEWHERE = (f"{PROJECT}/locations/europe-west4", "projects/654321/locations/us-central1")
NAMED = ("batch_prediction_job", "custom_job", "endpoint", "model")


@pytest.mark.parametrize("kind", [*NAMED, "pipeline_job"])
@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"display_name": 129 * "x"}, "{kind}.display_name has more than 128"),
        ({"labels": {"Team": "x"}}, "'Team' is not a label"),
        ({"labels": {"k": "V"}}, "'V' is not a label"),
        ({"labels": {f"l{n}": "" for n in range(65)}}, "at most 64"),
        ({"encryption_spec": {"kms_key_name": "key"}}, "/keyRings/RING/cryptoKeys/KEY"),
        ({"encryption_spec": {"kms_key_name": KEY}}, "in europe-west4, but the .* in us-central1"),
    ],
    ids=["name", "key", "value", "labels", "encryption", "region"],
)
def test_invalid_field_is_refused(services, kind, fields, reason):
    with pytest.raises(exceptions.BadRequest, match=reason.format(kind=kind)):
        services.create(kind, **fields)


@pytest.mark.parametrize("kind", [*NAMED, "pipeline_job"])
def test_region_is_one_of_vertex_ai(services, kind):
    with pytest.raises(exceptions.BadRequest, match="'mars-east1' is not a region of Vertex AI"):
        services.create(kind, parent=f"{PROJECT}/locations/mars-east1")


@pytest.mark.parametrize("kind", [*NAMED, "schedule"])
def test_display_name_is_required(services, kind):
    with pytest.raises(exceptions.BadRequest, match="display_name is required"):
        services.create(kind, display_name="")


@pytest.mark.parametrize(
    ("kind", "invalid", "longest"),
    [
        ("pipeline_job", ["Digits", "a" * 128, "a_b"], "2-" + "a" * 125),
        ("model", ["1digits", "-digits", "Digits", "d" * 64], "d" * 63),
        ("endpoint", ["Digits", "chicago_taxi", "d" * 64, "digits-", "012"], "d" * 63),
    ],
)
def test_id_is_checked_and_unique(services, kind, invalid, longest):
    for pattern in invalid:
        with pytest.raises(exceptions.BadRequest, match=f"{kind}_id '{pattern}' is not up to"):
            services.create(kind, pattern)
    services.create(kind, longest)
    with pytest.raises(exceptions.Conflict):
        services.create(kind, longest)


def test_context_id_is_checked_and_unique(services):
    for context_id in ("abc", "a" * 129, "chicago_taxi", "Digits"):
        with pytest.raises(exceptions.BadRequest, match="context_id"):
            services.create_context(context_id)
    services.create_context("digits")
    with pytest.raises(exceptions.Conflict, match="digits already exists"):
        services.create_context("digits")


def test_id_is_used_again_in_another_region_or_project(services):
    for parent in (PARENT, *ELSEWHERE):
        services.create("model", "digits", parent, description=parent).result()
        services.create("endpoint", "digits", parent, display_name=parent).result()
        services.create("pipeline_job", "digits", parent, display_name=parent)
        store = f"{parent}/metadataStores/default"
        services.metadata.create_context(parent=store, context={}, context_id="other")
    for parent in (PARENT, *ELSEWHERE):
        model = services.model.get_model(name=f"{parent}/models/digits")
        assert (model.name, model.description) == (f"{parent}/models/digits", parent)
        assert [model.name for model in services.model.list_models(parent=parent)] == [model.name]
        endpoint = services.endpoint.get_endpoint(name=f"{parent}/endpoints/digits")
        run = services.pipeline.get_pipeline_job(name=f"{parent}/pipelineJobs/digits")
        assert endpoint.display_name == run.display_name == parent
        listed = services.pipeline.list_pipeline_jobs(parent=parent)
        assert [run.name for run in listed] == [run.name]
    services.model.delete_model(name=f"{PARENT}/models/digits").result()
    with pytest.raises(exceptions.NotFound):
        services.model.get_model(name=f"{PARENT}/models/digits")
    for parent in ELSEWHERE:
        services.model.get_model(name=f"{parent}/models/digits")
