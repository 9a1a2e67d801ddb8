"""A new champion to the endpoint of its model, once its answers have been checked there."""

import os

from kfp import dsl

from components.cloud_errors import in_one_line
from components.registry.endpoints import endpoints_of
from components.serving_options import ServingOptions
from components.typed import component
from components.vertex_client import vertex_client
from trainer.errors import InputError


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
    """Deploy a champion beside the version before it, and give it the traffic.

    Before, it is deployed to an endpoint of its own, where it must answer test records as
    evaluate_model had it answer them. Where it does not, the version before goes on serving.

    Args:
        model: SavedModel of the champion.
        records: Records whose test split it was judged on.
        model_name: Model in the Model Registry.
        registered: Its version, model@version, as register_model returned it.
        encryption_spec_key_name: Cloud KMS key of the endpoint; empty: Google's.
        project: Google Cloud project.
        location: Its region.
    """
    # Compiling imports this module, and needs none of the seconds that TensorFlow takes.
    from trainer.evaluation import served_answers

    with in_one_line(f"deploying {registered}"):
        endpoints = endpoints_of(project, location)
        champion = endpoints.champion(model_name)
        if champion.name != registered:
            print(f"{champion.name} is the champion: {registered or 'this model'} is not deployed")
            return
        predictions = vertex_client("prediction", location, os.environ)
        with endpoints.alone(champion, serving, encryption_spec_key_name) as endpoint:
            print(f"{registered} is deployed to {endpoint}, to be asked about test records")

            def ask(instance: dict[str, str]) -> list[float]:
                answer = predictions.predict(endpoint=endpoint, instances=[instance])
                return list(answer.predictions[0]["probabilities"])

            try:
                count = served_answers.check(model.uri, records.uri, ask)
            except InputError as error:
                raise InputError(
                    f"{registered} gets no traffic, and what was deployed before goes on serving: "
                    f"{error}"
                ) from None
        print(f"It answers {count} test records as evaluate_model had it answer them")
        endpoint = endpoints.deploy(champion, serving, 100, encryption_spec_key_name)
        print(f"{registered} is deployed to {endpoint}, and has all of the traffic")
