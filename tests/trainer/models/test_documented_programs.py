"""The project's training programs train, and leave a model that the pipeline evaluates."""

import json

import pytest

from tests import replicas, tables
from trainer.data.schema import Dataset
from trainer.evaluation.prediction import ServedModel

SERVERS = [*replicas.CHIEF_AND_WORKER, ("ps", 0)]
SMALL = {"weights": "", "epochs": 1, "fine_tune_epochs": 1}
PROBED = {"image_size": 32, "batch_size": 2, "steps": 1, "megabytes": 1, "lost": "SIGKILL"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "records", "options", "roles"),
    [
        ("docs.programs.mnist", "digit_records", {"epochs": 2}, replicas.CHIEF_AND_WORKER),
        ("docs.programs.flowers", "colors", {"epochs": 2}, replicas.CHIEF_AND_WORKER),
        ("docs.programs.cats_vs_dogs", "colors", SMALL, replicas.ALONE),
        ("docs.programs.chicago_taxi", "trips", {"epochs": 2}, SERVERS),
        ("docs.programs.probe", "digit_records", PROBED, replicas.CHIEF_AND_WORKER),
    ],
)
def test_documented_program_trains(name, records, options, roles, request, tmp_path):
    dataset: Dataset = request.getfixturevalue(records)
    given = json.dumps(options, separators=(",", ":"))
    more = f"--model={name}:main --model_options={given}"
    flags = replicas.flags(dataset, tmp_path, more)
    with replicas.Cluster("trainer.task", flags, roles, tmp_path / "logs") as cluster:
        cluster.start_all()
        if name == "docs.programs.probe":
            cluster.wait_for(lambda: cluster.processes["worker", 0].poll() is not None, 400)
            cluster.start("worker", 0)
        assert cluster.processes["chief", 0].wait(400) == 0, cluster.tails()
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    if name == "docs.programs.probe":
        found = json.loads((tmp_path / "probe.json").read_text())
        assert found["replicas"] == 2 and found["dropout: same bits twice"]
        assert found["DenseNet121, pictures/s, float32"] > 0 < found["all-reduce, GB/s"]
        assert found["same bits after SIGKILL"] is True
        assert 0 <= found["seconds until the others left after SIGKILL"] < 60
        return
    assert 0 <= metrics["validation"]["accuracy"] <= 1
    model = ServedModel(str(tmp_path / "model"), dataset)
    batch = next(iter(model.read_stored_batches("validation")))
    assert model.answer(batch)["probabilities"].shape[1] == len(dataset.classes)


@pytest.fixture
def trips(tmp_path) -> Dataset:
    return tables.records(tmp_path / "trips", 700, **tables.DESCRIBED)
