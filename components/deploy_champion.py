"""The component that deploys a new champion after a check of its predictions."""

import os
from typing import Any

from kfp import dsl

from components.planning.prediction_options import ServingOptions
from components.typed import component
from vertex.client.cloud_errors import as_input_error
from vertex.client.vertex_client import connect_vertex
from vertex.errors import InputError
from vertex.registry.endpoints import Endpoints
from vertex.registry.model_registry import connect_registry


@component
def deploy_champion(
    model: dsl.Input[dsl.Model],
    records: dsl.Input[dsl.Dataset],
    serving: ServingOptions,
    model_name: str,
    registered: str,
    encryption_spec_key_name: str,
    project: str,
    location: str,
) -> None:
    """Deploy a champion beside the previous version, and give it all of the traffic.

    First deploys it to a temporary endpoint, where its predictions of test records must equal
    those of its SavedModel. If they differ, the previous version keeps serving; the alias
    champion, which says what the evaluation decided, stays.

    Args:
        model: SavedModel of the champion.
        records: Records that it was evaluated on.
        model_name: Model in the Model Registry.
        registered: Version to deploy, model@version, from register_model.
        encryption_spec_key_name: Cloud KMS key of the endpoint; empty: a Google-managed key.
        project: Google Cloud project.
        location: Region of the endpoint.
    """
    # Imported here, so that compiling does not wait for TensorFlow.
    from trainer.evaluation.prediction import check_served

    with as_input_error(f"deploying {registered}"):
        registry = connect_registry(project, location)
        endpoints = Endpoints(connect_vertex("endpoint", location, os.environ), registry)
        champion = registry.fetch_champion(model_name)
        if champion.name != registered:
            print(f"{champion.name} is the champion: {registered or 'this model'} is not deployed")
            return
        predictions = connect_vertex("prediction", location, os.environ)
        key, machines = encryption_spec_key_name, serving.resources
        with endpoints.temporary_endpoint(champion, machines, key) as endpoint:
            print(f"{registered} is deployed to {endpoint} for a check on test records")

            def ask(instance: dict[str, str]) -> dict[str, Any]:
                answer = predictions.predict(endpoint=endpoint, instances=[instance])
                return dict(answer.predictions[0])

            try:
                count = check_served(model.uri, records.uri, ask)
            except InputError as error:
                raise InputError(
                    f"{registered} gets no traffic, but stays champion; the endpoint of "
                    f"{model_name} is unchanged: {error}"
                ) from None
        print(f"Its answers to {count} test records equal those of its SavedModel")
        endpoint = endpoints.deploy(champion, machines, 100, key)
        print(f"{registered} is deployed to {endpoint}, and has all of the traffic")
