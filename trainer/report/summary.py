"""The top of the page: what follows from the gate's verdict, and the run in a few figures."""

from typing import Any

from trainer.evaluation.gate import Verdict
from trainer.evaluation.gate_options import CHAMPION
from trainer.report.formats import count, number
from trainer.report.learning import in_phase


def outcome(verdict: Verdict) -> dict[str, str]:
    """Return why the gate decided so, in short, and what that means for the registry."""
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
    """Return how many machines there were, servers and evaluator included, and as what.

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


def epochs_told(training: dict[str, Any], history: list[dict[str, Any]]) -> str:
    """Return how many epochs there were, and which was the best; "" where it is not known."""
    epochs, best = number(training.get("epochs")), number(training.get("best_epoch"))
    if epochs is None:
        return ""
    return count(epochs, "epoch") + (
        f", the best is {best:.0f}{in_phase(best, history)}"
        if best is not None and epochs > 1
        else ""
    )
