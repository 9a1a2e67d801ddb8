"""The step that runs a HyperparameterTuningJob, by Google's launcher.

Google's own component of it has no timeout, scheduling, labels or early stopping.
"""

from google_cloud_pipeline_components import _image
from google_cloud_pipeline_components.v1.hyperparameter_tuning_job.component import (
    hyperparameter_tuning_job,
)
from kfp import dsl

_LAUNCHER = hyperparameter_tuning_job.component_spec.implementation.container


@dsl.container_component
def search(
    job: str,
    project: str,
    location: str,
    gcp_resources: dsl.OutputPath(str),  # type: ignore[valid-type]
):
    """Run a HyperparameterTuningJob (JSON), and wait for its end."""
    return dsl.ContainerSpec(
        image=_image.GCPC_IMAGE_TAG,
        command=list(_LAUNCHER.command),
        args=[
            *("--type", "HyperparameterTuningJob"),
            *("--payload", job),
            *("--project", project),
            *("--location", location),
            *("--gcp_resources", gcp_resources),
        ],
    )
