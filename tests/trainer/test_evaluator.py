"""The evaluator scores the checkpoints of any strategy, wherever Vertex AI has put it."""

import csv
import json

import pytest

from tests import replicas


@pytest.mark.slow
def test_beside_a_chief_that_trains_alone_it_scores_what_the_chief_ends_with(
    digit_records, tmp_path
):
    flags = [
        f"--dataset={digit_records.uri}",
        f"--base_output_directory={tmp_path}/run",
        "--epochs=6",
        "--max_train_examples=700",
        "--steps_per_epoch=9",
        "--learning_rate=0.002",
        "--augmentation=model",
        '--augmentation_operations=["shift"]',
        "--evaluator_pool=1",
    ]
    # The second pool is the workers' to Vertex AI, and so in TF_CONFIG.
    with replicas.Cluster("trainer.task", flags, replicas.CHIEF_AND_WORKER, tmp_path) as cluster:
        cluster.start_all()
        codes = [process.wait(240) for process in cluster.processes.values()]
        assert codes == [0, 0], cluster.tails()
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["replicas"] == 1
    with (tmp_path / "run" / "evaluations.csv").open() as file:
        *_, last = csv.DictReader(file)
    assert (last["epoch"], last["step"]) == ("6", str(6 * 9))
    for name in ("loss", "accuracy"):
        assert float(last[name]) == pytest.approx(metrics["validation"][name], rel=1e-4)
    assert list((tmp_path / "run" / "logs" / "evaluator").glob("events.*"))
