"""Upload a model and its evaluation to Vertex AI's Model Registry."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from trainer import serving
from vertex.client.vertex_client import UNSAFE_SECONDS, make_retry
from vertex.errors import InputError, one_line
from vertex.facts.resource_names import is_prebuilt

METRICS_SCHEMAS = "gs://google-cloud-aiplatform/schema/modelevaluation"
"""Folder of the schemas of evaluations."""
FILES_LABEL = "files"
"""Label of a version that identifies the files of its model: `model_files.identify`."""
MADE_BY = {"made-by": "vertex-tensorflow-training"}
"""Label by which `clean` recognizes resources of this project."""

PREBUILT = "us-docker.pkg.dev/vertex-ai/prediction/tf2-cpu.2-15:latest"
"""Google's newest image that serves TensorFlow, which versions on this machine name: they need an
image, although no container serves them. Vertex AI withdraws it on 2027-01-14.
https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/predictions/pre-built-containers"""

_UPLOAD_SECONDS = 1800.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """A model to register."""

    artifact_uri: str  # folder of the SavedModel; identifies the version when a step is retried
    serving_image: str  # empty on this machine: `PREBUILT`
    description: str
    labels: dict[str, str]  # run and commit identify the run and the code that produced it
    metrics: Mapping[str, Any]  # in `schema`
    schema: str = "classification_metrics_1.0.0"
    pipeline_job: str = ""  # projects/P/locations/L/pipelineJobs/RUN
    encryption_key: str = ""  # Cloud KMS key; empty: a Google-managed key


def upload(client: Any, parent: str, name: str, candidate: Candidate, **target: str) -> str:
    """Upload a version of a model, whose display name is `name`; return the version's number.

    `target` is model_id for the first version of a model, and parent_model, the model's resource
    name, for a later version.
    """
    from google.cloud.aiplatform_v1 import types

    image = candidate.serving_image or PREBUILT
    container = types.ModelContainerSpec(image_uri=image)
    # Google's images have default ports and routes.
    if not is_prebuilt(image):
        container.ports = [types.Port(container_port=serving.PORT)]
        container.health_route = serving.HEALTH_ROUTE
        container.predict_route = serving.PREDICT_ROUTE
        # The version number is unknown before the upload, so use the run.
        version = f"{name}/{candidate.labels.get('run', '')}"
        container.env = [types.EnvVar(name=serving.VERSION_VARIABLE, value=version)]
        if digest := candidate.labels.get(FILES_LABEL):
            container.env.append(types.EnvVar(name=serving.DIGEST_VARIABLE, value=digest))
    model = types.Model(
        display_name=name,
        artifact_uri=candidate.artifact_uri,
        container_spec=container,
        labels=candidate.labels,
        version_description=candidate.description,
        pipeline_job=candidate.pipeline_job,
    )
    if candidate.encryption_key:
        model.encryption_spec.kms_key_name = candidate.encryption_key
    request = types.UploadModelRequest(parent=parent, model=model, **target)
    # Sent once, because the version may exist although the answer was lost. A retried step looks
    # for the version before it uploads.
    operation = client.upload_model(request=request, timeout=UNSAFE_SECONDS)
    return operation.result(timeout=_UPLOAD_SECONDS).model_version_id


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


def import_evaluation(client: Any, version: str, candidate: Candidate) -> None:
    """Import the evaluation of a candidate, unless its version (a resource name) has one.

    If the confusion matrix is refused, the rest is imported without it. A failed import is only
    a warning, because the version is registered.
    """
    from google.api_core import exceptions
    from google.cloud.aiplatform_v1 import types
    from google.protobuf import json_format

    @make_retry()
    def send(metrics: Mapping[str, Any]) -> None:
        if list(client.list_model_evaluations(parent=version)):
            return
        evaluation = types.ModelEvaluation(
            display_name="Test split",
            metrics_schema_uri=f"{METRICS_SCHEMAS}/{candidate.schema}.yaml",
        )
        json_format.ParseDict(dict(metrics), evaluation._pb.metrics)
        client.import_model_evaluation(
            parent=version, model_evaluation=evaluation, timeout=UNSAFE_SECONDS
        )

    metrics = dict(candidate.metrics)
    try:
        try:
            send(metrics)
        except exceptions.BadRequest:
            # https://github.com/googleapis/python-aiplatform/issues/5570
            if not metrics.pop("confusionMatrix", None):
                raise
            send(metrics)
    except (exceptions.GoogleAPIError, OSError) as error:
        print(f"warning: the registry did not import the evaluation: {one_line(error)}")


def to_label(text: str) -> str:
    """Convert text to the value of a label: up to 63 of a-z, 0-9, - and _."""
    return re.sub(r"[^a-z0-9_-]", "-", text.lower())[:63]
