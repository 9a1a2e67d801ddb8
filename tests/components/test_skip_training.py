"""Test that skip_training records its verdict as the gate does."""

import json

from kfp import dsl

from components.skip_training import skip_training
from tests.components.artifacts import artifact


def test_verdict_is_an_output_a_line_and_an_artifact(tmp_path, capsys):
    decision = artifact(dsl.Artifact, tmp_path / "decision")
    why = {"reason": "nothing changed since digits@3", "version": "digits@3"}
    (verdict,) = skip_training.python_func(decision=decision, **why)
    assert verdict == "skipped"
    assert capsys.readouterr().out == "skipped: nothing changed since digits@3\n"
    assert decision.metadata == {"verdict": "skipped", "role": "none", **why}
    assert json.loads((tmp_path / "decision").read_text()) == decision.metadata
