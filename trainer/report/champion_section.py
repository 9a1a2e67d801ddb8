"""The section on the gate: the candidate against the champion, and what follows."""

from markupsafe import Markup

from trainer.evaluation.comparison import Comparison
from trainer.evaluation.gate import Verdict
from trainer.report.markup import columns, decimal, facts, join, section

_ROOM = 1.25  # of the drawing, beyond the farther bound


def contest(verdict: Verdict) -> Markup:
    """Why the model was accepted or rejected; drawn, where it was compared with the champion."""
    parts = [Markup("<p><strong>{}</strong>: {}</p>").format(verdict.word.title(), verdict.reason)]
    if verdict.comparison:
        parts.append(columns(_drawing(verdict.comparison), _figures(verdict, verdict.comparison)))
    elif verdict.champion:
        parts.append(facts([("Champion", verdict.champion)]))
    return section("contest", "Champion and challenger", join(parts))


def _drawing(result: Comparison) -> Markup:
    """The improvement with its bounds, on a scale with zero in the middle."""
    reach = _ROOM * max(abs(result.low), abs(result.high), 1e-9)

    def at(value: float) -> str:
        return f"{0.5 + value / reach / 2:.4f}"

    return Markup(
        '<div><div class="score-label">Improvement of {metric} over the champion</div>'
        '<div class="score">{difference}</div>'
        '<div class="scale" role="img" aria-label="Between {low} and {high}; 0 is no difference">'
        '<span class="track"></span>'
        '<span class="interval" style="--low:{low_at};--high:{high_at}"></span>'
        '<span class="baseline" style="--at:0.5"></span>'
        '<span class="point" style="--at:{point_at}"></span>'
        '<span class="tick" style="left:0">champion better</span>'
        '<span class="tick" style="right:0">candidate better</span></div>'
        '<div class="score-label">{low} to {high}, each bound at {confidence:g}% confidence; '
        "the upright line is no difference</div></div>"
    ).format(
        metric=_metric(result),
        difference=f"{result.difference:+.4f}",
        low=f"{result.low:+.4f}",
        high=f"{result.high:+.4f}",
        low_at=at(result.low),
        high_at=at(result.high),
        point_at=at(result.difference),
        confidence=100 * result.confidence,
    )


def _figures(verdict: Verdict, result: Comparison) -> Markup:
    rule = "better by more than noise"
    if verdict.rule == "not_worse":
        rule = f"not worse by {verdict.margin:g} or more"
    test = "exact McNemar test" if result.metric == "accuracy" else "sign-flip permutation test"
    return facts(
        [
            ("Champion", verdict.champion),
            ("Rule", rule),
            (f"Candidate's {_metric(result)}", decimal(result.candidate, 4)),
            (f"Champion's {_metric(result)}", decimal(result.champion, 4)),
            ("Right only by the candidate", f"{result.candidate_only:,}"),
            ("Right only by the champion", f"{result.champion_only:,}"),
            ("Examples", f"{result.examples:,}"),
            (f"p ({test}, one-sided)", f"{result.p_value:.3g}"),
        ]
    )


def _metric(result: Comparison) -> str:
    return result.metric.replace("_", " ")
