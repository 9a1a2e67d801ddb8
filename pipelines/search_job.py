"""The step that runs a HyperparameterTuningJob, by Google's launcher.

Google's own component of it has no timeout, scheduling, labels or early stopping, and its package
imports the SDK, which takes two seconds.
"""

from google_cloud_pipeline_components import _image
from kfp import dsl

_LAUNCHER = "google_cloud_pipeline_components.container.v1.hyperparameter_tuning_job.launcher"


@dsl.container_component
def search(
    job: str,
    project: str,
    location: str,
    gcp_resources: dsl.OutputPath(str),  # type: ignore[valid-type]
) -> dsl.ContainerSpec:
    """Run a HyperparameterTuningJob (JSON), and wait for its end."""
    return dsl.ContainerSpec(
        image=_image.GCPC_IMAGE_TAG,
        command=["python3", "-u", "-m", _LAUNCHER],
        args=[
            *("--type", "HyperparameterTuningJob"),
            *("--payload", job),
            *("--project", project),
            *("--location", location),
            *("--gcp_resources", gcp_resources),
        ],
    )
