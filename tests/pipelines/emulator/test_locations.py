"""A resource's ID is unique in its project and region, as in Vertex AI, and no further."""

import pytest
from google.api_core import exceptions

from tests.pipelines.emulator.services import PARENT, PROJECT

ELSEWHERE = (f"{PROJECT}/locations/europe-west4", "projects/654321/locations/us-central1")


def test_id_is_used_again_in_another_region_or_project(services):
    for parent in (PARENT, *ELSEWHERE):
        services.create("model", "digits", parent, description=parent).result()
        services.create("endpoint", "digits", parent, display_name=parent).result()
        services.create("pipeline_job", "digits", parent, display_name=parent)
        services.metadata.create_context(
            parent=f"{parent}/metadataStores/default", context={}, context_id="other"
        )
    for parent in (PARENT, *ELSEWHERE):
        model = services.model.get_model(name=f"{parent}/models/digits")
        assert (model.name, model.description) == (f"{parent}/models/digits", parent)
        assert [one.name for one in services.model.list_models(parent=parent)] == [model.name]
        endpoint = services.endpoint.get_endpoint(name=f"{parent}/endpoints/digits")
        run = services.pipeline.get_pipeline_job(name=f"{parent}/pipelineJobs/digits")
        assert endpoint.display_name == run.display_name == parent
        listed = services.pipeline.list_pipeline_jobs(parent=parent)
        assert [one.name for one in listed] == [run.name]
    services.model.delete_model(name=f"{PARENT}/models/digits").result()
    with pytest.raises(exceptions.NotFound):
        services.model.get_model(name=f"{PARENT}/models/digits")
    for parent in ELSEWHERE:
        services.model.get_model(name=f"{parent}/models/digits")
