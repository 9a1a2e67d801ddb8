"""The component that records a skipped training."""

from typing import NamedTuple

from kfp import dsl

from components.typed import component
from trainer.data import storage


class Skipped(NamedTuple):
    """The output of skip_training."""

    verdict: str


@component
def skip_training(decision: dsl.Output[dsl.Artifact], reason: str, version: str) -> Skipped:
    """Record that training was skipped, and why, in the format of the gate's verdict.

    Args:
        reason: Reason in one line.
        version: Existing version of the model.
    """
    verdict = {"verdict": "skipped", "role": "none", "reason": reason, "version": version}
    storage.write_json(decision.uri, verdict)
    decision.metadata.update(verdict)
    print(f"skipped: {reason}")
    return Skipped("skipped")
