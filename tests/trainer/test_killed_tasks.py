"""A run that was killed ends with the weights of one that was not, whatever the task learns."""

import pytest

from tests import replicas
from tests.learned_weights import exported
from tests.trainer import test_multilabel, test_regression, test_row_weights

TASK = "trainer.task"
OPTIONS = "--model=wide_and_deep --epochs=8 --batch_size=32 --checkpoint_steps=10"


@pytest.mark.slow
@pytest.mark.parametrize("of", [test_regression, test_multilabel, test_row_weights])
def test_killed_run_learns_the_same(of, tmp_path):
    dataset = of.write(tmp_path, of.lines(2400))
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    replicas.run(TASK, replicas.flags(dataset, whole, OPTIONS), replicas.ALONE, tmp_path / "first")
    flags = replicas.flags(dataset, killed, OPTIONS)
    with replicas.Cluster(TASK, flags, replicas.ALONE, tmp_path / "second") as cluster:
        cluster.start_all()
        cluster.wait_for(lambda: replicas.position(killed) > (1, 0))
        cluster.kill("chief")
        assert replicas.position(killed) < (8, 0)
    replicas.run(TASK, flags, replicas.ALONE, tmp_path / "third")
    assert "resuming from the checkpoint" in (tmp_path / "third" / "chief-0.log").read_text()
    assert exported(killed) == exported(whole)
