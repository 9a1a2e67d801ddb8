"""The compiled pipeline, run again: trained only where something changed."""

import io
import shutil

import pytest
from rich.console import Console

from pipelines import compilation, recipe
from pipelines.local import run
from tests.trainer.dataset.folders import two_classes, write_pictures


@pytest.fixture
def photos(tmp_path):
    return two_classes(tmp_path / "photos", 40)


@pytest.fixture
def start(tmp_path, photos):
    """Runs the digits recipe on the photos, small; returns its summary and what was shown."""
    package = compilation.write(recipe.load("digits"), tmp_path / "build")
    small = {
        "source": f"images:{photos}",
        "image_size": 8,
        "epochs": 1,
        "batch_size": 16,
        "strategy": "one_device",
        "worker_count": 0,
        "min_accuracy": 0.0,
        "champion_rule": "none",
        "skip_if_unchanged": True,
    }

    def start(**changes):
        shown = io.StringIO()
        result = run(
            package,
            recipe="digits",
            parameters={**small, **changes},
            runs_directory=tmp_path / "runs",
            console=Console(file=shown, width=100),
        )
        assert result.state == "SUCCEEDED", shown.getvalue()
        return result.summary, shown.getvalue()

    return start


def states(summary):
    return {task["name"]: task["state"] for task in summary["tasks"]}


def test_a_run_on_unchanged_data_skips_training_with_a_verdict(start):
    first, _ = start()
    assert (first["verdict"], first["registered"]) == ("accepted", "digits@1")
    assert states(first)["skip-training"] == "SKIPPED"

    second, shown = start()
    assert states(second) == {
        "fingerprint-source": "SUCCEEDED",
        "create-tfrecords": "CACHED",
        "plan-training": "SUCCEEDED",
        "custom-training-job": "SKIPPED",
        "collect-training": "SKIPPED",
        "evaluate-model": "SKIPPED",
        "register-model": "SKIPPED",
        "register-model-2": "SKIPPED",
        "skip-training": "SUCCEEDED",
    }
    assert second["verdict"] == "skipped"
    assert second["gate"]["reason"] == "nothing changed since digits@1"
    assert second["custom_jobs"] == []
    assert "registered" not in second
    assert "verdict   skipped: nothing changed since digits@1\n" in shown


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_fresh_data_another_configuration_and_the_users_word_train_again(start, photos):
    start()
    # Touched, but the same: records are written again, and are the same.
    for picture in (photos / "cat").iterdir():
        shutil.copyfile(picture, picture.with_suffix(".copy"))
        picture.with_suffix(".copy").replace(picture)
    touched, _ = start()
    assert states(touched)["create-tfrecords"] == "SUCCEEDED"
    assert touched["verdict"] == "skipped"
    write_pictures(photos / "cat" / "new", 5, seed=9)
    fresh, _ = start()
    assert states(fresh)["create-tfrecords"] == "SUCCEEDED"
    assert fresh["registered"] == "digits@2"
    assert start(epochs=2)[0]["registered"] == "digits@3"
    assert start()[0]["gate"]["reason"] == "nothing changed since digits@2"
    assert start(skip_if_unchanged=False)[0]["registered"] == "digits@4"
