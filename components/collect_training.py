"""Collect the results of a finished training job as artifacts."""

from kfp import dsl

from components.typed import component
from trainer.data.storage import join
from trainer.exported.results import load


@component
def collect_training(
    training: dsl.Input[dsl.Artifact],
    model: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
) -> None:
    """Turn the chief's SavedModel and metrics.json into a Model and Metrics.

    A CustomJob returns only its own name to the pipeline.

    Args:
        training: Directory with the job's model/, metrics.json and history.csv.
    """
    results = load(training.uri)
    model.uri = join(training.uri, "model")
    model.metadata["framework"] = "tensorflow"
    model.metadata["base_output_directory"] = training.uri
    for name, value in results.scalars().items():
        metrics.log_metric(name, value)
