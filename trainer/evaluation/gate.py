"""The gate, which decides whether a model goes into production.

    verdict = judge(evaluation, GateOptions(min_accuracy=0.9), registers=True, champion=None)
    verdict.accepted, verdict.line  # True, "accepted: accuracy 0.9841 (minimum 0.9000), ..."

Floors are checked first: a model that misses a floor is rejected, however bad the champion is.
Then the candidate is compared with the champion on the same examples. Depending on
`champion_rule`, it must be better or at least not worse. Where there is no champion, it must be
better than a constant answer, unless `first_champion` is any.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trainer.evaluation.gate_options import ABOVE_BASELINE, CANDIDATE, GateOptions
from trainer.metrics import comparison
from trainer.metrics.comparison import Comparison, Pairs
from trainer.metrics.metric import Compared, Metric
from vertex.registry.version_aliases import CHALLENGER, CHAMPION

if TYPE_CHECKING:
    from trainer.tasks.base import Evaluation

_MAX_LISTED = 5
"""Maximum number of missed floors that a verdict names."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChampionScores:
    """The champion's result on the examples of a candidate."""

    name: str  # model@version
    pairs: Pairs | None = None  # pairs with the candidate's scores; None if it can't be scored
    problem: str = ""  # why the champion can't be scored


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """The gate's decision."""

    accepted: bool  # whether the model goes into production
    # Role in which to register the model: champion, challenger, candidate, or "" for none.
    role: str
    reason: str  # one line
    champion: str = ""  # model@version; empty if there is none
    # Options of the comparison and its result, if there was one.
    rule: str = ""
    margin: float = 0.0
    comparison: Comparison | None = None
    baseline: Any = None  # a dataclass of what a first champion was compared with

    @property
    def word(self) -> str:
        return "accepted" if self.accepted else "rejected"

    @property
    def line(self) -> str:
        return f"{self.word}: {self.reason}"

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict and its comparison as one flat dict of plain values."""
        values: dict[str, Any] = {
            "verdict": self.word,
            "role": self.role or "none",
            "reason": self.reason,
            "champion": self.champion,
        }
        if self.comparison:
            values |= {"rule": self.rule, **dataclasses.asdict(self.comparison)}
            values["champion"], values["champion_score"] = self.champion, self.comparison.champion
            values["candidate_score"] = values.pop("candidate")
            if self.rule == "not_worse":
                values["margin"] = self.margin
        if self.baseline:
            figures = dataclasses.asdict(self.baseline)
            values |= {f"baseline_{name}": value for name, value in figures.items()}
        return values


def judge(
    evaluation: Evaluation,
    options: GateOptions,
    *,
    registers: bool,
    champion: ChampionScores | None,
) -> Verdict:
    """Judge a candidate by its evaluation.

    Args:
        registers: whether models are registered.
        champion: the champion's result; None if there is no champion.
    """
    # A first model that is rejected can be promoted by a person.
    rejected_as = CANDIDATE if registers and champion is None else ""
    failures = _find_missed_floors(evaluation, options)
    if failures:
        reason = "; ".join(failures[:_MAX_LISTED])
        if len(failures) > _MAX_LISTED:
            reason += f"; and {len(failures) - _MAX_LISTED} more"
        return Verdict(accepted=False, role=rejected_as, reason=reason)
    if champion is None:
        return _judge_first(evaluation, options, registers, rejected_as)
    if options.champion_rule != "none":
        return _judge_against(champion, options, registers, evaluation.comparisons)
    reason = f"{_format_floor(evaluation, options)}; champion_rule is none"
    role = CHAMPION if registers else ""
    return Verdict(accepted=True, role=role, reason=reason, champion=champion.name)


def _judge_first(
    evaluation: Evaluation, options: GateOptions, registers: bool, rejected_as: str
) -> Verdict:
    """Compare a candidate with constant answers, because there is no champion."""
    baseline = evaluation.baseline
    is_above, clause = evaluation.compare_with_baseline(options.confidence)
    if not is_above and options.first_champion == ABOVE_BASELINE:
        failure = evaluation.explain_not_above(options.confidence)
        reason = f"{failure}; first_champion=any accepts it"
        return Verdict(accepted=False, role=rejected_as, reason=reason, baseline=baseline)
    reason = f"{_format_floor(evaluation, options)}, {clause}"
    if not is_above:
        reason += "; first_champion is any"
    if registers:
        reason += "; no champion yet"
    role = CHAMPION if registers else ""
    return Verdict(accepted=True, role=role, reason=reason, baseline=baseline)


def _format_floor(evaluation: Evaluation, options: GateOptions) -> str:
    name, value = evaluation.headline
    floor = evaluation.find_floor(vars(options))
    return f"{name} {value:.4f}" + (f" (minimum {floor:.4f})" if floor else "")


def _judge_against(
    champion: ChampionScores, options: GateOptions, registers: bool, comparisons: Sequence[Metric]
) -> Verdict:
    pairs, problem = champion.pairs, champion.problem
    # It is auto, unless the options are another task's.
    named = (metric for metric in comparisons if metric.name == options.champion_metric)
    metric = next(named, comparisons[0])
    role = CHAMPION if registers else ""
    lesser_role = CHALLENGER if registers and options.register_challengers else ""
    if pairs and pairs.gains is None and metric.compared is not Compared.RIGHT:
        pairs = None
        problem = "its classes differ from the records'; set champion_metric=accuracy"
    if pairs is None:
        reason = (
            f"not comparable with the champion {champion.name}: {problem}; set model_name= to "
            "another model, or champion_rule=none"
        )
        return Verdict(accepted=False, role=lesser_role, reason=reason, champion=champion.name)
    result = comparison.compare(pairs, metric=metric, confidence=options.confidence)
    better = options.champion_rule == "better"
    passed = result.is_better if better else result.is_not_worse(options.margin)
    return Verdict(
        accepted=passed,
        role=role if passed else lesser_role,
        reason=_format_reason(passed, champion.name, result, metric, options),
        champion=champion.name,
        rule=options.champion_rule,
        margin=options.margin,
        comparison=result,
    )


def _format_reason(
    passed: bool, champion: str, result: Comparison, metric: Metric, options: GateOptions
) -> str:
    if options.champion_rule == "better":
        claim = f"better than the champion {champion}"
        claim = claim if passed else f"not {claim}"
    else:
        claim = f"worse than the champion {champion} by {options.margin:g}"
        claim = f"not {claim}" if passed else f"perhaps {claim}"
    name = metric.name.replace("_", " ")
    closer = metric.compared is Compared.EXPLAINED
    ahead = "the candidate is closer" if closer else "only the candidate is right"
    behind = "the champion" if closer else "only the champion"
    return (
        f"{claim} at {100 * result.confidence:g}% confidence: {name} {result.candidate:.4f} "
        f"against {result.champion:.4f}, improvement {result.difference:+.4f} "
        f"({result.low:+.4f} to {result.high:+.4f}), p {result.p_value:.3g}; of "
        f"{result.examples:,} examples, {ahead} on {result.candidate_only:,}, {behind} on "
        f"{result.champion_only:,}"
    )


def _find_missed_floors(evaluation: Evaluation, options: GateOptions) -> list[str]:
    missed = evaluation.find_missed_floors(vars(options))
    values = {name: value for name, value in evaluation.scalars().items() if math.isfinite(value)}
    for name in (*options.floors, *options.ceilings):
        if name not in values:
            missed.append(f"{name} has a bound, but is undefined on the test split")
    missed += [
        f"{name} {values[name]:.6g} is below its floor {floor:g}"
        for name, floor in options.floors.items()
        if values.get(name, floor) < floor
    ]
    missed += [
        f"{name} {values[name]:.6g} is above its ceiling {ceiling:g}"
        for name, ceiling in options.ceilings.items()
        if values.get(name, ceiling) > ceiling
    ]
    return missed
