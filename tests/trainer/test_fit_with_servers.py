"""`trainer.fit` with parameter servers, whose workers compute steps independently."""

import json

import pytest
import tensorflow as tf

from tests import replicas
from tests.trainer import fit_scenarios
from tests.trainer.fit_scripts import SCRIPTS

MODULE = fit_scenarios.__name__
ROLES = [("chief", 0), ("worker", 0), ("worker", 1), ("ps", 0)]
ONE_WORKER = [("chief", 0), ("worker", 0), ("ps", 0)]
REFUSED = {
    "generator": "a generator or a PyDataset can't be read by the workers",
    "own_step": "a generator or a PyDataset can't be read by the workers",
    "periodic_updates": "gradient_accumulation_steps=3 can't be used with parameter servers",
    "generator_without_weights": "a generator or a PyDataset can't be read by the workers",
    "layers_in_data": "the data use variables, as Keras' layers",
}
QUICK = ["weighted_dataset", "optimizer_in_a_list", *REFUSED]
ALL = [*(fit_scenarios.SCENARIOS.keys() - {*SCRIPTS}), *REFUSED]
SEEDS = range(1, 6)


def train(names, folder, roles=ROLES):
    arguments = [str(folder / "results.json"), str(folder), *names]
    with replicas.Cluster(MODULE, arguments, roles, folder / "logs") as cluster:
        cluster.start_all()
        assert cluster.processes["chief", 0].wait(240) == 0, cluster.tails()
    return json.loads((folder / "results.json").read_text())


@pytest.mark.parametrize(
    ("names", "roles"), [(QUICK, ONE_WORKER), pytest.param(ALL, ROLES, marks=pytest.mark.slow)]
)
def test_workers_learn_as_keras(names, roles, tmp_path):
    results = train(names, tmp_path, roles)
    assert results.keys() == {*names}
    for name, message in REFUSED.items():
        assert message in results.pop(name)
    for name, result in results.items():
        alone = [
            fit_scenarios.run(name, tf.distribute.get_strategy(), str(tmp_path), seed)
            for seed in SEEDS
        ]
        keys = [*alone[0]["history"]]
        assert [*result["history"]] == keys
        if name != "callbacks":  # It is stopped when the loss no longer falls.
            assert all(one["steps"] == result["steps"] for one in alone)
        # Five seeds don't show the whole spread.
        final = [one["history"][keys[0]][-1] for one in alone]
        margin = max(final) - min(final)
        assert min(final) - margin <= result["history"][keys[0]][-1] <= max(final) + margin, name


@pytest.mark.slow
def test_goes_on_without_a_worker_and_resumes_after_a_lost_server(tmp_path, monkeypatch):
    def saved():
        newest = tf.train.latest_checkpoint(str(tmp_path / "checkpoints"))
        return int(newest.rpartition("-")[2]) // 10**9 if newest else 0

    monkeypatch.setenv("EPOCHS", "300")
    arguments = [str(tmp_path / "results.json"), str(tmp_path), "single_rows"]
    with replicas.Cluster(MODULE, arguments, ROLES, tmp_path / "logs") as cluster:
        cluster.start_all()
        cluster.wait_for(lambda: saved() > 0)
        cluster.kill("worker", 1)
        then = saved()
        cluster.wait_for(lambda: saved() > then + 2)
        cluster.kill("ps", 0)
        assert cluster.processes["chief", 0].wait(120) != 0
    then = saved()
    assert then < 300
    result = train(["single_rows"], tmp_path)["single_rows"]
    assert result["epochs"] == list(range(300))
    assert result["steps"] == [300 * 3]
    assert f"Epoch {then}/300" not in (tmp_path / "logs" / "chief-0.log").read_text()
