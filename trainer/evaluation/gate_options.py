"""Options of the gate and roles of versions; importable without NumPy and TensorFlow."""

import dataclasses
import math
from collections.abc import Collection, Sequence

from trainer.conditions import when
from trainer.fields import option
from trainer.metrics import PERMUTATIONS
from trainer.metrics.metric import Compared
from trainer.tasks.label_kinds import AUTO, COMPARISONS, KINDS, labels_of
from vertex.errors import InputError
from vertex.formats import suggest

RULES = ("better", "not_worse", "none")
CANDIDATE = "candidate"
"""Role of a version without an alias: the gate rejected it, and there is no champion."""
ABOVE_BASELINE = "above_baseline"
_EXACT = [metric.name for metric in COMPARISONS if metric.compared is Compared.RIGHT]
"""Metrics with an exact test, at any confidence."""
_BOUNDED = "; ".join(f"{', '.join(kind.bounded)} ({kind.labels})" for kind in KINDS.values())


@dataclasses.dataclass(frozen=True, kw_only=True)
class GateOptions:
    """Conditions that a model must meet on the test split to be accepted."""

    min_accuracy: float = option(
        0.0,
        help="Minimum accuracy on the test split.",
        minimum=0,
        maximum=1,
        applies=labels_of("classes"),
    )
    min_recall: float = option(
        0.0,
        help="Minimum recall of each class on the test split.",
        minimum=0,
        maximum=1,
        applies=labels_of("classes"),
    )
    class_floors: dict = option(
        {},
        help="Minimum recall of individual classes on the test split, instead of min_recall, as a "
        'JSON object such as {"cat": 0.9}.',
        applies=labels_of("classes"),
    )
    floors: dict = option(
        {},
        help="Minimum values of metrics on the test split, by name, as a JSON object such as "
        f'{{"r2": 0.7}}. Metrics by the labels: {_BOUNDED}.',
    )
    ceilings: dict = option(
        {},
        help="Maximum values of metrics on the test split, by name, as a JSON object such as "
        '{"rmse": 50000}.',
    )
    champion_rule: str = option(
        "better",
        help="How a model must compare with the champion: better (by more than noise), "
        "not_worse (by at most margin) or none.",
        choices=RULES,
    )
    first_champion: str = option(
        ABOVE_BASELINE,
        help="Requirement besides the floors while there is no champion: above_baseline (better "
        "than a constant answer by more than noise: in accuracy or log loss, for numbers in "
        "squared error, for several labels in F1) or any.",
        choices=(ABOVE_BASELINE, "any"),
    )
    champion_metric: str = option(
        AUTO,
        help="Metric for comparing a model with the champion; auto: accuracy, r2 for numbers, "
        "example_f1 for several labels.",
        choices=(AUTO, *(metric.name for metric in COMPARISONS)),
    )
    confidence: float = option(
        0.95,
        help="Confidence of the comparison with the champion or, for the first one, with constant "
        "answers: at 0.95, at most 5 of 100 models that are not better pass.",
        above=0.5,
        below=1,
    )
    margin: float = option(
        0.01,
        help="Maximum difference by which a model may be worse than the champion: a fraction of "
        "the test examples (accuracy), nats (log_loss) or a share of the labels' variance (r2).",
        above=0,
        applies=when("champion_rule", "not_worse"),
    )
    register_challengers: bool = option(
        False,
        help="Register a model that meets the floors but does not beat the champion, under the "
        "alias challenger. Without a champion, a rejected model is registered in any case, without "
        "an alias.",
    )

    def __post_init__(self) -> None:
        for name, floor in self.class_floors.items():
            is_number = isinstance(floor, (int, float)) and not isinstance(floor, bool)
            if not is_number or not 0 <= floor <= 1:
                raise InputError(f"class_floors: {name!r} is {floor!r}, not a recall from 0 to 1")
        for option_name, bounds in (("floors", self.floors), ("ceilings", self.ceilings)):
            for name, bound in bounds.items():
                is_number = isinstance(bound, (int, float)) and not isinstance(bound, bool)
                if not is_number or not math.isfinite(bound):
                    raise InputError(f"{option_name}: {name!r} is {bound!r}, not a finite number")
        most = 1 - 1 / (1 + PERMUTATIONS)
        if self.champion_metric not in (AUTO, *_EXACT) and self.confidence > most:
            raise InputError(
                f"confidence={self.confidence} is more than the test of champion_metric="
                f"{self.champion_metric!r} can reach, {most:g}; set {most:g} or less"
            )


def check_floors(class_floors: Collection[str], classes: Sequence[str]) -> None:
    """Raise InputError if a floor names an unknown class."""
    for name in class_floors:
        if name not in classes:
            raise InputError(
                f"class_floors names {name!r}, which is not a class of the records"
                f"{suggest(name, classes)}"
            )
