"""Data of the summary: the gate's verdict, its effect, and key figures of the run."""

from typing import Any

from trainer.evaluation.gate import Verdict
from trainer.evaluation.gate_options import CHAMPION
from trainer.report.formats import count, number
from trainer.report.learning import in_phase


def outcome(verdict: Verdict) -> dict[str, str]:
    """Return the short reason of the verdict, and its effect on the registry."""
    result = verdict.comparison
    reason = verdict.reason
    if result:
        reason = "{}, {} {:.4f} against {:.4f}".format(
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
    return {"reason": reason, "follows": follows}


def replicas(training: dict[str, Any], details: dict[str, Any]) -> tuple[str, str]:
    """Return the number of machines, parameter servers and evaluator included, and their roles.

    Args:
        training: content of metrics.json; any key may be missing.
        details: parameters of the run; any may be missing.
    """
    strategy = str(training.get("strategy", "")).removesuffix("Strategy")
    roles = {"worker": "worker_count", "ps": "ps_count", "evaluator": "evaluator_count"}
    counts = {role: int(number(details.get(key)) or 0) for role, key in roles.items()}
    if "worker_count" not in details:
        known = number(training.get("replicas"))
        return ("" if known is None else f"{known:,.0f}"), strategy
    named = [
        count(times, role, role if role == "ps" else "") for role, times in counts.items() if times
    ]
    return f"{1 + sum(counts.values()):,}", f"{', '.join(['chief', *named])}; {strategy}"


def epoch_summary(training: dict[str, Any], history: list[dict[str, Any]]) -> str:
    """Return the number of epochs and the best one in words; "" if unknown."""
    epochs, best = number(training.get("epochs")), number(training.get("best_epoch"))
    if epochs is None:
        return ""
    return count(epochs, "epoch") + (
        f", the best is {best:.0f}{in_phase(best, history)}"
        if best is not None and epochs > 1
        else ""
    )
