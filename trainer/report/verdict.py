"""The top of the page: the verdict, what to know about it, and the run in a few figures."""

from typing import Any

from markupsafe import Markup

from trainer.data.schema import Dataset
from trainer.evaluation.gate import CHAMPION, Verdict
from trainer.evaluation.scoring import Evaluation
from trainer.report.findings import findings
from trainer.report.learning import in_phase
from trainer.report.markup import breakable, count, decimal, duration, join, number, percent


def summary(
    evaluation: Evaluation,
    dataset: Dataset,
    training: dict[str, Any],
    history: list[dict[str, Any]],
    details: dict[str, Any],
    verdict: Verdict | None,
    price: Markup,
) -> Markup:
    """The first section.

    Args:
        training: content of metrics.json; any key may be missing.
        details: parameters of the run; any may be missing.
        verdict: of the gate; None where none was asked.
        price: what the machines cost, where that is known.
    """
    listed = join(
        Markup("<li{}>{}</li>").format(
            Markup(' class="warn"') if finding.warning else "", finding.text
        )
        for finding in findings(evaluation, dataset, training, history)
    )
    return Markup(
        '<section id="summary">{}<div class="hero"><div>{}</div>'
        '<div><h2>What stands out</h2><ul class="findings">{}</ul></div></div>{}{}</section>\n'
    ).format(
        outcome(verdict) if verdict else "",
        _score(evaluation),
        listed,
        _tiles(evaluation, dataset, training, history, details),
        price,
    )


def outcome(verdict: Verdict) -> Markup:
    """What the gate said, why, and what it means for the registry, before any figure."""
    result = verdict.comparison
    why = verdict.reason
    if result:
        why = "{}, {} {:.4f} against {:.4f}".format(
            verdict.reason.partition(": ")[0],
            result.metric.replace("_", " "),
            result.candidate,
            result.champion,
        )
    if verdict.accepted:
        follows = (
            "It becomes the champion." if verdict.role == CHAMPION else "It is not registered."
        )
    elif verdict.role:
        follows = "It is registered as challenger; the champion stays."
    else:
        follows = "It is not registered" + ("; the champion stays." if result else ".")
    more = Markup(' <a href="#contest">More</a>') if verdict.champion else ""
    return Markup('<p class="outcome {}"><strong>{}</strong>: {}. {}{}</p>').format(
        verdict.word, verdict.word.title(), why, follows, more
    )


def _score(evaluation: Evaluation) -> Markup:
    low, high = evaluation.accuracy_interval
    right = round(evaluation.accuracy * evaluation.examples)
    baseline = evaluation.baseline_accuracy
    return Markup(
        '<div class="score-label">Accuracy on the {split} split</div>'
        '<div class="score">{accuracy}</div>'
        "<div>{right} of {examples} right</div>"
        '<div class="scale" role="img" aria-label="Between {low} and {high} with 95% confidence; '
        'always answering the commonest class gives {baseline}">'
        '<span class="track"></span>'
        '<span class="interval" style="--low:{low_at};--high:{high_at}"></span>'
        '<span class="baseline" style="--at:{baseline_at}"></span>'
        '<span class="point" style="--at:{at}"></span>'
        '<span class="tick" style="left:0">0%</span>'
        '<span class="tick" style="right:0">100%</span></div>'
        '<div class="score-label">95% interval {low} to {high}; '
        "the upright line is the commonest class alone, {baseline}</div>"
    ).format(
        split=evaluation.split,
        accuracy=percent(evaluation.accuracy),
        right=f"{right:,}",
        examples=count(evaluation.examples, "example"),
        low=percent(low),
        high=percent(high),
        baseline=percent(baseline),
        low_at=f"{low:.4f}",
        high_at=f"{high:.4f}",
        baseline_at=f"{baseline:.4f}",
        at=f"{evaluation.accuracy:.4f}",
    )


def _tiles(
    evaluation: Evaluation,
    dataset: Dataset,
    training: dict[str, Any],
    history: list[dict[str, Any]],
    details: dict[str, Any],
) -> Markup:
    areas = "of the second class" if len(evaluation.classes) == 2 else "mean over classes"
    seconds, rate = number(training.get("seconds")), number(training.get("images_per_second"))
    tiles: list[tuple[str, str | Markup | None, str]] = [
        ("Macro F1", decimal(evaluation.f1), "mean over classes"),
        ("ROC AUC", decimal(evaluation.roc_auc), areas),
        ("Log loss", decimal(evaluation.log_loss), "nats"),
        ("Calibration error", percent(evaluation.expected_calibration_error), "expected, 15 bins"),
        ("Model", breakable(str(training.get("model", ""))), _parameters(training)),
        (
            "Training time",
            None if seconds is None else duration(seconds),
            _epochs(training, history),
        ),
        (
            "Speed",
            None if rate is None else f"{rate:,.0f}",
            ", ".join(filter(None, ["examples/s", training.get("precision")])),
        ),
        ("Replicas", *_replicas(training, details)),
        ("Data", dataset.name, f"{_examples(dataset):,} examples"),
    ]
    if evaluation.top_k:
        label = f"Top-{evaluation.top_k} accuracy"
        tiles.insert(0, (label, percent(evaluation.top_k_accuracy), ""))
    return Markup('<dl class="tiles">{}</dl>').format(
        join(
            Markup("<div><dt>{}</dt><dd>{}<small>{}</small></dd></div>").format(label, value, note)
            for label, value, note in tiles
            if value
        )
    )


def _examples(dataset: Dataset) -> int:
    return sum(split.examples for split in dataset.splits.values())


def _replicas(training: dict[str, Any], details: dict[str, Any]) -> tuple[str | None, str]:
    """How many machines there were, parameter servers and evaluator included, and as what."""
    strategy = str(training.get("strategy", "")).removesuffix("Strategy")
    roles = {"worker": "worker_count", "ps": "ps_count", "evaluator": "evaluator_count"}
    counts = {role: int(number(details.get(key)) or 0) for role, key in roles.items()}
    if "worker_count" not in details:
        trained = number(training.get("replicas"))
        return (None if trained is None else f"{trained:,.0f}"), strategy
    listed = [count(times, role, role if role == "ps" else "") for role, times in counts.items()]
    named = [text for text, times in zip(listed, counts.values(), strict=True) if times]
    return f"{1 + sum(counts.values()):,}", f"{', '.join(['chief', *named])}; {strategy}"


def _parameters(training: dict[str, Any]) -> str:
    parameters = number(training.get("parameters"))
    return "" if parameters is None else count(parameters, "parameter")


def _epochs(training: dict[str, Any], history: list[dict[str, Any]]) -> str:
    epochs, best = number(training.get("epochs")), number(training.get("best_epoch"))
    if epochs is None:
        return ""
    return count(epochs, "epoch") + (
        f", the best is {best:.0f}{in_phase(best, history)}"
        if best is not None and epochs > 1
        else ""
    )
