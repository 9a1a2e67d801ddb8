"""The component that plans a batch prediction by a model's champion."""

from typing import NamedTuple

from google_cloud_pipeline_components.types.artifact_types import VertexModel
from kfp import dsl

from components.planning import prediction_input
from components.planning.prediction_options import BIGQUERY, PredictionOptions, format_of
from components.planning.registered_model import check_files
from components.typed import component
from trainer.data.schema import find_training_data
from trainer.data.tables.columns import list_columns
from vertex.client.cloud_errors import as_input_error
from vertex.registry.model_registry import connect_registry


class PredictionPlan(NamedTuple):
    """Outputs of plan_prediction: arguments of ModelBatchPredictOp."""

    instances_format: str
    gcs_source_uris: list
    bigquery_source_input_uri: str
    instance_type: str
    included_fields: list
    predictions_format: str
    gcs_destination_output_uri_prefix: str
    bigquery_destination_output_uri: str


@component
def plan_prediction(
    model: dsl.Output[VertexModel],
    predictions: dsl.Output[dsl.Artifact],
    options: PredictionOptions,
    project: str,
    location: str,
) -> PredictionPlan:
    """Find the champion and check the input; return the arguments of ModelBatchPredictOp.

    Args:
        project: Google Cloud project.
        location: Region of the registry.
    """
    with as_input_error(f"looking for the champion of {options.model_name!r}"):
        champion = connect_registry(project, location).fetch_champion(options.model_name)
    check_files(champion)
    dataset = find_training_data(champion.artifact_uri)
    prediction_input.check(options.input, dataset)
    print(f"{champion.name} predicts {options.input}")
    model.uri = f"https://{location}-aiplatform.googleapis.com/v1/{champion.resource}"
    model.metadata["resourceName"] = champion.resource
    kind = format_of(options.input)
    table, to_table = kind == "bigquery", options.output.startswith(BIGQUERY)
    return PredictionPlan(
        instances_format=kind,
        gcs_source_uris=[] if table else [options.input],
        bigquery_source_input_uri=options.input if table else "",
        # Instances are objects with the model's columns.
        instance_type="object" if table else "",
        included_fields=[column.name for column in list_columns(dataset)]
        if table and dataset
        else [],
        predictions_format="bigquery" if to_table else "jsonl",
        gcs_destination_output_uri_prefix="" if to_table else options.output or predictions.uri,
        bigquery_destination_output_uri=options.output if to_table else "",
    )
