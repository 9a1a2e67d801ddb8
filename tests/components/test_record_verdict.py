"""The gate's decision is kept with the figures that made it."""

import json

import pytest
from kfp import dsl

from components.record_verdict import record_verdict
from tests.components.artifacts import artifact


@pytest.mark.parametrize(("accepted", "word"), [(True, "accepted"), (False, "rejected")])
def test_the_decision_is_an_artifact_with_its_figures(tmp_path, capsys, accepted, word):
    decision = artifact(dsl.Artifact, tmp_path / "decision")
    (verdict,) = record_verdict.python_func(
        model=dsl.Model(uri="gs://bucket/model"),
        decision=decision,
        accepted=accepted,
        accuracy=0.93,
        min_accuracy=0.9,
    )
    figures = {"verdict": word, "accuracy": 0.93, "min_accuracy": 0.9}
    assert verdict == word
    assert decision.metadata == figures
    written = json.loads((tmp_path / "decision").read_text())
    assert written == {**figures, "model": "gs://bucket/model"}
    assert capsys.readouterr().out == f"{word}: accuracy 0.9300, the floor is 0.9000\n"
