"""Write report.html, the report of a run as a self-contained page."""

from collections.abc import Collection
from typing import Any

from trainer.data.schema import Dataset
from trainer.data.storage import write_text
from trainer.data.tables.columns import list_columns
from trainer.evaluation.drift import Drifts
from trainer.evaluation.gate import Verdict
from trainer.evaluation.gate_options import CANDIDATE
from trainer.report import background
from trainer.report.findings import list_findings
from trainer.report.learning import Rows, format_phase, summarize_learning
from trainer.report.page import render
from trainer.tasks import task_of
from trainer.tasks.base import Evaluation
from vertex.formats import count
from vertex.registry.version_aliases import CHAMPION


def write_report(
    uri: str,
    *,
    evaluation: Evaluation,
    dataset: Dataset,
    training: dict[str, Any],
    history: Rows,
    title: str,
    details: dict[str, Any],
    defaults: dict[str, Any],
    recipe_sets: Collection[str] = (),
    verdict: Verdict | None = None,
    drifts: Drifts | None = None,
    in_time: Drifts | None = None,
    price: dict[str, Any] | None = None,
    on_vertex: bool = False,
) -> None:
    """Write the report of a run to the file at `uri`.

    Args:
        training: content of metrics.json.
        history: rows of history.csv.
        details: parameters of the run.
        defaults: default values of parameters, in the order in which the page lists them.
        recipe_sets: names of the parameters that the recipe sets.
        drifts: drift of the training data since the champion's training data.
        in_time: drift from the training split to the test split, of a split by time.
        price: machines, per_hour (US dollars) and basis of the job's price; None if unknown.
    """
    text = render(
        "report.html.j2",
        title=title,
        subtitle=f"Evaluated on {evaluation.examples:,} test examples of {dataset.name}",
        evaluation=evaluation,
        dataset=dataset,
        verdict=verdict,
        outcome=describe_outcome(verdict) if verdict else None,
        measured=evaluation.page(dataset),
        findings=list_findings(
            evaluation, dataset, training, history, drifts=drifts, in_time=in_time
        ),
        training=training,
        epochs=_describe_epochs(training, history),
        replicas=_describe_replicas(training, details),
        drifts=drifts,
        in_time=in_time,
        price=price,
        on_vertex=on_vertex,
        learning=summarize_learning(training, history, task_of(dataset).measured),
        columns=list_columns(dataset),
        crosses=[feature.name for feature in dataset.features if feature.kind == "cross"],
        features=background.features(dataset),
        origin=background.origin(dataset),
        recipe=background.recipe(details, defaults, recipe_sets),
        timings=background.timings(evaluation, training, history),
        image=details.get("gpu_image_uri") or details.get("image_uri"),
    )
    # File names may contain bytes that are not valid text.
    write_text(uri, text.encode(errors="replace").decode())


def describe_outcome(verdict: Verdict) -> dict[str, str]:
    """Return the short reason of the verdict, and its effect on the registry."""
    result = verdict.comparison
    reason = verdict.reason
    if result:
        claim, metric = verdict.reason.partition(": ")[0], result.metric.replace("_", " ")
        reason = f"{claim}, {metric} {result.candidate:.4f} against {result.champion:.4f}"
    if verdict.accepted:
        effect = "It becomes the champion." if verdict.role == CHAMPION else "It is not registered."
    elif verdict.role == CANDIDATE:
        effect = "It is registered, but not as champion."
    elif verdict.role:
        effect = "It is registered as challenger; the champion stays."
    else:
        effect = "It is not registered" + ("; the champion stays." if result else ".")
    return {"reason": reason, "effect": effect}


def _describe_replicas(training: dict[str, Any], details: dict[str, Any]) -> tuple[str, str]:
    """Return the number of machines, including parameter servers and evaluator, and their roles."""
    counts = {role: int(details.get(f"{role}_count", 0)) for role in ("worker", "ps", "evaluator")}
    named = [count(n, role, role if role == "ps" else "") for role, n in counts.items() if n]
    return (
        f"{1 + sum(counts.values()):,}",
        f"{', '.join(['chief', *named])}; {training['strategy']}",
    )


def _describe_epochs(training: dict[str, Any], history: Rows) -> str:
    epochs, best = training["epochs"], training["best_epoch"]
    suffix = f", the best is {best}{format_phase(best, history)}" if best and epochs > 1 else ""
    return count(epochs, "epoch") + suffix
