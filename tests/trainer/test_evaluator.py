"""The evaluator scores the checkpoints of any strategy, wherever Vertex AI has put it."""

import csv
import json

import pytest

from tests import replicas


@pytest.mark.slow
def test_evaluator_of_a_single_chief_scores_its_last_checkpoint(digit_records, tmp_path):
    run = tmp_path / "run"
    options = (
        "--epochs=6 --max_train_examples=700 --steps_per_epoch=9 --learning_rate=0.002 "
        '--augmentation=model --augmentation_operations=["shift"] --evaluator_pool=1'
    )
    # The second pool is the workers' to Vertex AI, and so in TF_CONFIG.
    flags = replicas.flags(digit_records, run, options)
    replicas.run("trainer.task", flags, replicas.CHIEF_AND_WORKER, tmp_path)
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["replicas"] == 1
    with (run / "evaluations.csv").open() as file:
        *_, last = csv.DictReader(file)
    assert (last["epoch"], last["step"]) == ("6", str(6 * 9))
    for name in ("loss", "accuracy"):
        assert float(last[name]) == pytest.approx(metrics["validation"][name], rel=1e-4)
    assert list((run / "logs" / "evaluator").glob("events.*"))
