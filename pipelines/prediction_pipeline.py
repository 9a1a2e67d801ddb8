"""The pipeline of batch prediction by the champion of a recipe's model."""

from typing import Any

from google_cloud_pipeline_components.v1.batch_predict_job import ModelBatchPredictOp
from kfp import dsl

from components.plan_prediction import plan_prediction
from pipelines.run_options import RunOptions
from pipelines.training_pipeline import (
    LOCATION_PLACEHOLDER,
    PROJECT_ID_PLACEHOLDER,
    add_step,
    notified,
)


def batch_prediction(parameters: dict[str, Any], run_options: RunOptions) -> None:
    """Predict in a batch job, by the model that is the champion when the run starts."""
    with notified(run_options):
        plan = add_step(
            "Find the champion",
            plan_prediction,
            parameters,
            project=PROJECT_ID_PLACEHOLDER,
            location=LOCATION_PLACEHOLDER,
        )
        arguments = {name: output for name, output in plan.outputs.items() if name != "predictions"}
        job = ModelBatchPredictOp(
            job_display_name=dsl.PIPELINE_JOB_NAME_PLACEHOLDER,
            location=LOCATION_PLACEHOLDER,
            machine_type=parameters["machine_type"],
            # Vertex AI uses only the starting count, which must not exceed the maximum.
            starting_replica_count=parameters["replica_count"],
            max_replica_count=parameters["replica_count"],
            manual_batch_tuning_parameters_batch_size=parameters["batch_size"],
            service_account=parameters["service_account"],
            labels=parameters["labels"],
            encryption_spec_key_name=parameters["encryption_spec_key_name"],
            **arguments,
        )
        job.set_display_name("Predict").set_caching_options(False)
