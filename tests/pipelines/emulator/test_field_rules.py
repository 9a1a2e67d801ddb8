"""Names, labels, keys and IDs are checked in the same way for all kinds of resources."""

import pytest
from google.api_core import exceptions

from tests.pipelines.emulator.idle_services import PARENT, PROJECT

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
