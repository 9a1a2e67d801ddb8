"""Conditions with which an option has an effect, which its field declares.

    decay_rate: float = option(0.96, help="...", applies=when("schedule", "exponential"))

The help text names the condition, and `trainer.effects` refuses a value that would change nothing.
"""

import dataclasses
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(frozen=True)
class Condition:
    """A condition on other options, perhaps of another group."""

    options: tuple[str, ...]
    holds: Callable[..., bool]  # called with the values of `options`
    words: str  # what it needs, worded to follow "only with" and "use"
    # Property of the options' dataclass whose value `holds` gets instead; empty: none.
    reads: str = ""


def when(option: str, *values: Any) -> Condition:
    """Return the condition that `option` has one of `values`."""
    *others, last = (str(value).lower() if value is True else str(value) for value in values)
    listed = f"{', '.join(others)} or {last}" if others else last
    return Condition((option,), values.__contains__, f"{option}={listed}")


def above_zero(option: str) -> Condition:
    """Return the condition that the number `option` is above 0."""
    return Condition((option,), bool, f"{option} above 0")


def given(option: str) -> Condition:
    """Return the condition that the text `option` is not empty."""
    return Condition((option,), bool, f"a {option}")
