"""The container that serves a model: this project's image, or Google's."""

from typing import Any

from trainer import serving
from vertex.errors import InputError
from vertex.facts.resource_names import is_prebuilt

PREBUILT = "us-docker.pkg.dev/vertex-ai/prediction/tf2-cpu.2-15:latest"
"""Google's newest image that serves TensorFlow, which versions on this machine name: they need an
image, although no container serves them. Vertex AI withdraws it on 2027-01-14.
https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/predictions/pre-built-containers"""


def make_container(image: str, version: str, digest: str) -> Any:
    """Return the types.ModelContainerSpec of a model; an empty image, on this machine: `PREBUILT`.

    Args:
        version: name of the version, which each answer of this project's image contains.
        digest: `model_files.identify` of the model's files; empty: not known.
    """
    from google.cloud.aiplatform_v1 import types

    container = types.ModelContainerSpec(image_uri=image or PREBUILT)
    # Google's images have default ports and routes.
    if not is_prebuilt(container.image_uri):
        container.ports = [types.Port(container_port=serving.PORT)]
        container.health_route = serving.HEALTH_ROUTE
        container.predict_route = serving.PREDICT_ROUTE
        container.env = [types.EnvVar(name=serving.VERSION_VARIABLE, value=version)]
        if digest:
            container.env.append(types.EnvVar(name=serving.DIGEST_VARIABLE, value=digest))
    return container


def check_serving_image(image: str, *, registers: bool, deploys: bool) -> None:
    """Raise InputError if a run registers models without an image, or deploys with an unfit one."""
    if registers and not image:
        raise InputError(
            "registered models need an image that serves them, but serving_image is empty; build "
            "this project's (docs/vertex.md, step 3) and set it, or register=false"
        )
    if deploys and is_prebuilt(image):
        raise InputError(
            f"deploy_champion sends records to the deployed model, but serving_image={image!r} is "
            "Google's, which accepts none; give this project's image: docs/serving.md"
        )
