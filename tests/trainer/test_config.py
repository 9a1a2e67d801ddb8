"""A training config survives the way through a command line, and bad flags do not."""

import dataclasses

import pytest

from trainer import fields
from trainer.config import TrainingConfig, to_flags
from trainer.errors import InputError
from trainer.training.job import parse

LOCATIONS = ["--dataset=gs://b/records", "--base_output_directory=gs://b/run"]


def test_flags_read_back_as_the_same_config():
    config = TrainingConfig(
        model="transfer",
        model_options={"dropout": 0.5, "weights": "a 'quoted' = word.h5"},
        learning_rate=3e-5,
        xla=True,
        augmentation_operations=["vertical_flip"],
        seed=7,
    )
    job = parse([*LOCATIONS, *to_flags(config)], {})
    assert job.config == config
    assert (job.dataset, job.base_output_directory) == ("gs://b/records", "gs://b/run")


def test_every_field_has_a_flag_and_a_description():
    flags = [flag.partition("=")[0] for flag in to_flags(TrainingConfig())]
    assert flags == [f"--{field.name}" for field in dataclasses.fields(TrainingConfig)]
    assert all(field.metadata["help"].endswith(".") for field in dataclasses.fields(TrainingConfig))


def test_defaults_are_within_their_own_bounds():
    defaults = {f.name: fields.default_of(f) for f in dataclasses.fields(TrainingConfig)}
    assert fields.build(TrainingConfig, defaults) == TrainingConfig()


def test_the_output_directory_comes_from_aip_model_dir_where_no_flag_gives_it():
    job = parse(["--dataset=d"], {"AIP_MODEL_DIR": "gs://b/run/model/"})
    assert job.base_output_directory == "gs://b/run"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "--dataset"),
        (["--dataset=d"], "give --base_output_directory"),
        ([*LOCATIONS, "--epochs=0"], "epochs=0 is out of range"),
        ([*LOCATIONS, "--epoch=1"], "--epoch=1"),
        ([*LOCATIONS, "--optimizer=adm"], "did you mean 'adam'?"),
        ([*LOCATIONS, "--model_options={"], "model_options='{' is not a JSON object"),
    ],
)
def test_a_bad_command_line_is_refused(flags, message):
    with pytest.raises(InputError) as raised:
        parse(flags, {})
    assert message in str(raised.value)
