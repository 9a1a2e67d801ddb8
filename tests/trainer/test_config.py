"""A training config survives the way through a command line, and bad flags do not."""

import dataclasses

import pytest

from trainer import fields
from trainer.config import TrainingConfig, config_uri, write_config
from trainer.errors import InputError
from trainer.training.job import parse

LOCATIONS = ["--dataset=gs://b/records", "--base_output_directory=gs://b/run"]


def test_the_config_file_reads_back_and_flags_override_it(tmp_path):
    config = TrainingConfig(
        model="transfer",
        model_options={"dropout": 0.5, "weights": "a 'quoted' = word.h5"},
        learning_rate=3e-5,
        xla=True,
        augmentation_operations=["vertical_flip"],
        seed=7,
    )
    write_config(config, str(tmp_path))
    file = f"--config={config_uri(str(tmp_path))}"
    assert parse([*LOCATIONS, file], {}).config == config
    job = parse([*LOCATIONS, file, "--learning_rate=0.5", "--seed=8"], {})
    assert job.config == dataclasses.replace(config, learning_rate=0.5, seed=8)
    assert (job.dataset, job.base_output_directory) == ("gs://b/records", "gs://b/run")


def test_defaults_are_within_their_own_bounds():
    defaults = {f.name: fields.default_of(f) for f in dataclasses.fields(TrainingConfig)}
    assert fields.build(TrainingConfig, defaults) == TrainingConfig()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "--dataset"),
        ([*LOCATIONS, "--config=/no/config.json"], "--config=/no/config.json can't be read: "),
        ([*LOCATIONS, "--optimizer=adm"], "did you mean 'adam'?"),
        ([*LOCATIONS, "--model_options={"], "model_options='{' is not a JSON object"),
    ],
)
def test_a_bad_command_line_is_refused(flags, message):
    with pytest.raises(InputError) as raised:
        parse(flags, {})
    assert message in str(raised.value)
