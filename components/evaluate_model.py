"""The component that evaluates a model on the test split and applies the gate."""

import dataclasses
from typing import Any, NamedTuple

from kfp import dsl

from components import artifact_metadata
from components.planning.registered_model import RegisteredModel
from components.planning.worker_pools import MachineOptions
from components.typed import component
from trainer import quiet
from trainer.data import schema
from trainer.data.write.record_options import RecordOptions
from trainer.evaluation.gate_options import GateOptions
from trainer.exported.results import Results, load
from trainer.fields import default_of
from trainer.training.config import TrainingConfig
from vertex.registry.model_registry import Version


class EvaluationOutputs(NamedTuple):
    """Outputs of evaluate_model; all but `score`, the task's main metric, are the verdict."""

    score: float
    verdict: str
    role: str
    champion: str
    reason: str


@component
def evaluate_model(
    model: dsl.Input[dsl.Model],
    records: dsl.Input[dsl.Dataset],
    training: dsl.Input[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
    classification: dsl.Output[dsl.ClassificationMetrics],
    report: dsl.Output[dsl.HTML],
    evaluation: dsl.Output[dsl.Artifact],
    decision: dsl.Output[dsl.Artifact],
    predictions: dsl.Output[dsl.Artifact],
    options: GateOptions,
    registered_model: RegisteredModel,
    title: str,
    register: bool = True,
) -> EvaluationOutputs:
    """Evaluate a SavedModel and the current champion on the test records, and decide.

    Args:
        model: SavedModel to evaluate.
        records: Records with the test split.
        training: Directory with the job's metrics.json and history.csv. Its metadata holds the
            job's parameters, the names of those that the recipe sets, and the price if known.
        title: Title of the report.
        register: Whether the run registers its model; if not, the verdict is given all the same.
    """
    # Imported here, so that compiling does not wait for TensorFlow.
    quiet.import_tensorflow()
    from trainer.evaluation import split_drift
    from trainer.evaluation.scoring import evaluate
    from trainer.report.document import write_report

    report.uri += ".html"
    results = load(training.uri)
    dataset = schema.load_dataset(records.uri)
    result = evaluate(model.uri, records.uri)
    champion = registered_model.find_champion()
    verdict = registered_model.judge(result, options, champion, register=register)
    drifts = _measure_drift(dataset, champion) if champion else None
    write_report(
        report.uri,
        evaluation=result,
        dataset=dataset,
        title=title,
        verdict=verdict,
        drifts=drifts,
        in_time=split_drift.measure(dataset),
        on_vertex=not registered_model.is_local,
        **_describe_training(results, dataset, training, options, registered_model),
    )
    artifact_metadata.mark_as_html(report.uri)
    print(verdict.line)
    _write_results(result, verdict, predictions, evaluation, decision)
    # For register_model, which judges again if the champion has changed.
    evaluation.metadata.update(gate=dataclasses.asdict(options), schema=result.schema)
    for name, value in result.scalars().items():
        metrics.log_metric(name, value)
    shown = result.log_to_console(classification)
    given = (verdict.word, verdict.role, verdict.champion, verdict.reason)
    outputs = EvaluationOutputs(result.headline[1], *given)
    artifacts = [metrics, classification, report, evaluation, predictions, decision]
    if artifact_metadata.drop_if_too_large(artifacts, outputs, classification, "confusionMatrix"):
        print(f"The console can't show {shown}; see the report")
    return outputs


def _measure_drift(dataset: schema.Dataset, champion: Version) -> Any:
    from trainer.evaluation import drift

    drifts = drift.measure_since_training(champion.artifact_uri, dataset)
    if drifts:
        drifted = drift.format_drifts(drifts.columns)
        line = f"have drifted since {champion.name}: {drifted}"
        if not drifted:
            line = f"have not drifted by more than {drift.THRESHOLD:g} since {champion.name}"
        print("; ".join(filter(None, [f"The training data {line}", drifts.format_not_compared()])))
    return drifts


def _describe_training(
    results: Results,
    dataset: schema.Dataset,
    training: dsl.Artifact,
    options: GateOptions,
    registered_model: RegisteredModel,
) -> dict[str, Any]:
    """Return the arguments of write_report on the job, its price and the run's parameters."""
    details = dataset.creation.get("options", {}) | training.metadata
    details |= dataclasses.asdict(options) | {"model_name": registered_model.model_name}
    price, recipe_sets = details.pop("price", None), details.pop("recipe_sets", [])
    return {
        "training": results.metrics,
        "history": results.history,
        "details": details,
        "recipe_sets": recipe_sets,
        "price": price,
        "defaults": list_defaults(),
    }


def list_defaults() -> dict[str, Any]:
    """Return the default values of the parameters that a report lists, in its order."""
    return {
        field.name: default_of(field)
        for group in (RecordOptions, TrainingConfig, MachineOptions, GateOptions)
        for field in dataclasses.fields(group)
    }


def _write_results(
    result: Any,
    verdict: Any,
    predictions: dsl.Artifact,
    evaluation: dsl.Artifact,
    decision: dsl.Artifact,
) -> None:
    """Write each prediction, the metrics in the registry's schema, and the verdict."""
    from trainer.data.storage import write_json
    from trainer.evaluation import prediction_file

    predictions.uri += ".csv"
    prediction_file.write(predictions.uri, result.answers)
    write_json(evaluation.uri, result.registry_metrics())
    write_json(decision.uri, verdict.to_dict())
    decision.metadata.update(verdict.to_dict())
