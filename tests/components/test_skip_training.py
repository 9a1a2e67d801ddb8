"""A run that had nothing to train says so as the gate says its verdict."""

import json

from kfp import dsl

from components.skip_training import skip_training
from tests.components.artifacts import artifact


def test_the_verdict_is_an_output_a_line_and_an_artifact(tmp_path, capsys):
    decision = artifact(dsl.Artifact, tmp_path / "decision")
    (verdict,) = skip_training.python_func(
        decision=decision, reason="nothing changed since digits@3", version="digits@3"
    )
    assert verdict == "skipped"
    assert capsys.readouterr().out == "skipped: nothing changed since digits@3\n"
    assert decision.metadata == {
        "verdict": "skipped",
        "role": "none",
        "reason": "nothing changed since digits@3",
        "version": "digits@3",
    }
    assert json.loads((tmp_path / "decision").read_text()) == decision.metadata
