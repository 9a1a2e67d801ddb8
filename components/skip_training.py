"""The verdict of a run that had nothing to train."""

import json
from typing import NamedTuple

from kfp import dsl

from components.typed import component
from trainer.data import storage


@component
def skip_training(
    decision: dsl.Output[dsl.Artifact],
    reason: str,
    version: str,
) -> NamedTuple("Skipped", [("verdict", str)]):  # type: ignore[valid-type]
    """Record that there was no training, and why, as the gate records its verdict.

    Args:
        reason: Why, in one line.
        version: Version of the model that there is already.
    """
    verdict = {"verdict": "skipped", "role": "none", "reason": reason, "version": version}
    storage.write_whole(decision.uri, f"{json.dumps(verdict, indent=1)}\n".encode())
    decision.metadata.update(verdict)
    print(f"skipped: {reason}")
    return ("skipped",)
