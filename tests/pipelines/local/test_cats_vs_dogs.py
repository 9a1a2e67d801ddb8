"""The cats_vs_dogs recipe on real photos, with a smaller backbone on two logical CPU devices."""

import csv
import json
import subprocess
import sys

import pytest

from tests.pipelines.local.conftest import REPLICA


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_cats_are_told_from_dogs_by_transfer_in_two_phases(tmp_path, real_data):
    weights = real_data / "weights" / "mobilenet_2_5_224_tf_no_top.h5"
    options = {
        "backbone": "MobileNet",
        "backbone_options": {"alpha": 0.25},
        "weights": str(weights),
    }
    settings = {
        "source": f"images:{real_data / 'cats_dogs'}",
        "precision": "float32",
        "model_options": json.dumps(options),
    }
    command = [sys.executable, "-m", "pipelines", "run", "cats_vs_dogs", "--local"]
    command += ["--runs-directory", str(tmp_path)]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    subprocess.run(command, cwd=REPLICA.parents[3], check=True)
    training = tmp_path / "latest" / "artifacts" / "plan-training" / "training"
    metrics = json.loads((training / "metrics.json").read_text())
    assert (metrics["replicas"], metrics["strategy"]) == (2, "mirrored")
    with (training / "history.csv").open() as file:
        assert {row["phase"] for row in csv.DictReader(file)} == {"1", "2"}
    summary = json.loads((tmp_path / "latest" / "summary.json").read_text())
    # 0.924 measured; the larger class has 0.55 of the 66 photos.
    assert summary["metrics"]["accuracy"] > 0.75
