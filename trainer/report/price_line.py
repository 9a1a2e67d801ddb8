"""What the machines of the training job cost, in a sentence."""

from typing import Any

from markupsafe import Markup

from trainer.machines.price import JobPrice
from trainer.report.markup import duration, number

_CENT = 0.01


def price(job: JobPrice | None, training: dict[str, Any], *, on_vertex: bool) -> Markup:
    """What an hour costs and, of a run on Vertex AI, what the training made of that.

    Args:
        job: None where a price is not known, of which nothing is said then.
        training: content of metrics.json; any key may be missing.
        on_vertex: whether the run was there; one on this machine has cost none of it.
    """
    if job is None:
        return Markup()
    hour = f"{_money(job.per_hour)} an hour {job.basis}"
    if not on_vertex:
        return Markup('<p class="lead price">On Vertex AI, {} would cost {}.</p>').format(
            job.machines, hour
        )
    seconds = number(training.get("seconds"))
    took = ""
    if seconds is not None:
        took = (
            f" The training took {duration(seconds)}, which is {_money(_total(job, seconds))}; the "
            "start of the machines and any restart come on top."
        )
    return Markup('<p class="lead price">{} cost {}.{}</p>').format(job.machines, hour, took)


def _total(job: JobPrice, seconds: float) -> float:
    return job.per_hour * seconds / 3600


def _money(amount: float) -> str:
    return f"{amount:.2f} USD" if amount >= _CENT else "less than a cent"
