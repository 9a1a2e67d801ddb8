"""A resource's ID is unique in its project and region, as in Vertex AI, and no further."""

import pytest
from google.api_core import exceptions

from tests.pipelines.emulator.services import PARENT, PROJECT
from tests.pipelines.emulator.test_refused_jobs import MODEL
from tests.pipelines.emulator.test_refused_runs import RUN

ELSEWHERE = (f"{PROJECT}/locations/europe-west4", "projects/654321/locations/us-central1")


def test_an_id_may_be_used_again_in_another_place(services):
    everywhere = (PARENT, *ELSEWHERE)
    for number, parent in enumerate(everywhere):
        model = {**MODEL, "description": str(number)}
        services.upload(model, model_id="digits", parent=parent)
        endpoint = {"display_name": str(number)}
        services.endpoint.create_endpoint(
            parent=parent, endpoint=endpoint, endpoint_id="digits"
        ).result()
        run = {**RUN, "display_name": str(number)}
        services.pipeline.create_pipeline_job(
            parent=parent, pipeline_job=run, pipeline_job_id="digits"
        )
        services.metadata.create_context(
            parent=f"{parent}/metadataStores/default", context={}, context_id="other"
        )
    for number, parent in enumerate(everywhere):
        model = services.model.get_model(name=f"{parent}/models/digits")
        assert (model.name, model.description) == (f"{parent}/models/digits", str(number))
        assert [one.name for one in services.model.list_models(parent=parent)] == [model.name]
        endpoint = services.endpoint.get_endpoint(name=f"{parent}/endpoints/digits")
        run = services.pipeline.get_pipeline_job(name=f"{parent}/pipelineJobs/digits")
        assert (endpoint.display_name, run.display_name) == (str(number), str(number))
        listed = services.pipeline.list_pipeline_jobs(parent=parent)
        assert [one.name for one in listed] == [run.name]
    services.model.delete_model(name=f"{PARENT}/models/digits").result()
    with pytest.raises(exceptions.NotFound):
        services.model.get_model(name=f"{PARENT}/models/digits")
    for parent in ELSEWHERE:
        services.model.get_model(name=f"{parent}/models/digits")
