"""Upload a model and its evaluation to Vertex AI's Model Registry."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from vertex.client.vertex_client import UNSAFE_SECONDS, make_retry
from vertex.errors import one_line

METRICS_SCHEMAS = "gs://google-cloud-aiplatform/schema/modelevaluation"
"""Folder of the schemas of evaluations."""
FILES_LABEL = "files"
"""Label of a version that identifies the files of its model: `model_files.identify`."""
MADE_BY = {"made-by": "vertex-tensorflow-training"}
"""Label by which `clean` recognizes resources of this project."""

_UPLOAD_SECONDS = 1800.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """A model to register."""

    artifact_uri: str  # folder of the SavedModel; identifies the version when a step is retried
    container: Any  # types.ModelContainerSpec that serves the model
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

    model = types.Model(
        display_name=name,
        artifact_uri=candidate.artifact_uri,
        container_spec=candidate.container,
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
