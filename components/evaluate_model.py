"""A model's worth on the test split."""

from typing import NamedTuple

from kfp import dsl

from trainer.worker_pools import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def evaluate_model(
    model: dsl.Input[dsl.Model],
    records: dsl.Input[dsl.Dataset],
    training: dsl.Input[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
    classification: dsl.Output[dsl.ClassificationMetrics],
    report: dsl.Output[dsl.HTML],
    title: str,
) -> NamedTuple("Evaluated", [("accuracy", float)]):  # type: ignore[valid-type]
    """Evaluates a SavedModel on the test records and draws the report of the run.

    Args:
        model: SavedModel to judge.
        records: Records whose test split judges it.
        training: Directory where the job wrote metrics.json and history.csv; its metadata are
            the parameters of the job.
        title: Heading of the report.
    """
    from trainer.dataset import schema
    from trainer.errors import exit_on_input_error
    from trainer.evaluation import evaluate
    from trainer.report import write_report
    from trainer.results import load

    report.uri += ".html"
    with exit_on_input_error():
        results = load(training.path)
        dataset = schema.load(records.uri)
        evaluation = evaluate(model.uri, records.uri, split="test", progress=print)
        write_report(
            report.uri,
            evaluation=evaluation,
            dataset=dataset,
            training=results.metrics,
            history=results.history,
            title=title,
            details=training.metadata,
        )
    for name, value in evaluation.scalars().items():
        metrics.log_metric(name, value)
    classification.log_confusion_matrix(evaluation.classes, evaluation.confusion_matrix)
    curve = evaluation.roc_curve()
    if curve:
        classification.log_roc_curve(curve.fpr, curve.tpr, curve.thresholds)
    return (evaluation.accuracy,)
