"""The component that plans a batch prediction by a model's champion."""

from typing import NamedTuple

from google_cloud_pipeline_components.types.artifact_types import VertexModel
from kfp import dsl

from components import prediction_input
from components.prediction_options import BIGQUERY, PredictionOptions, format_of
from components.registry.model_registry import find_champion, no_champion
from components.typed import component
from trainer.data.schema import training_data
from trainer.data.tables.columns import columns_in


@component
def plan_prediction(
    model: dsl.Output[VertexModel],
    predictions: dsl.Output[dsl.Artifact],
    options: PredictionOptions,
    project: str,
    location: str,
) -> NamedTuple(  # type: ignore[valid-type]
    "Plan",
    [
        ("instances_format", str),
        ("gcs_source_uris", list),
        ("bigquery_source_input_uri", str),
        ("instance_type", str),
        ("included_fields", list),
        ("predictions_format", str),
        ("gcs_destination_output_uri_prefix", str),
        ("bigquery_destination_output_uri", str),
    ],
):
    """Find the champion and check the input; return the arguments of ModelBatchPredictOp.

    Args:
        project: Google Cloud project.
        location: Region of the registry.
    """
    champion = find_champion(options.model_name, project, location)
    if champion is None:
        raise no_champion(options.model_name, project)
    dataset = training_data(champion.artifact_uri)
    prediction_input.check(options.input, dataset)
    print(f"{champion.name} predicts {options.input}")
    model.uri = f"https://{location}-aiplatform.googleapis.com/v1/{champion.resource}"
    model.metadata["resourceName"] = champion.resource
    kind = format_of(options.input)
    table, to_table = kind == "bigquery", options.output.startswith(BIGQUERY)
    return (
        kind,
        [] if table else [options.input],
        options.input if table else "",
        # Instances are objects with the model's columns.
        "object" if table else "",
        [column.name for column in columns_in(dataset)] if table and dataset else [],
        "bigquery" if to_table else "jsonl",
        "" if to_table else options.output or predictions.uri,
        options.output if to_table else "",
    )
