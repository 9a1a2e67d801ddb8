"""The config survives the way through config.json, and flags override it."""

import dataclasses

from trainer.config import TrainingConfig, config_uri, write_config
from trainer.training.job import parse


def test_flags_override_the_config_file(tmp_path):
    config = TrainingConfig(
        model="transfer",
        model_options={"dropout": 0.5, "weights": "a 'quoted' = word.h5"},
        learning_rate=3e-5,
        xla=True,
        augmentation_operations=["vertical_flip"],
        seed=7,
    )
    write_config(config, str(tmp_path))
    flags = ["--dataset=gs://b/records", "--base_output_directory=gs://b/run"]
    flags.append(f"--config={config_uri(str(tmp_path))}")
    assert parse(flags, {}).config == config
    job = parse([*flags, "--learning_rate=0.5", "--seed=8"], {})
    assert job.config == dataclasses.replace(config, learning_rate=0.5, seed=8)
    assert (job.dataset, job.base_output_directory) == ("gs://b/records", "gs://b/run")
