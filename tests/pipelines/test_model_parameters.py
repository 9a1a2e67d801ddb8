"""Parameters that no model can be built of are refused before anything starts."""

import pytest

from pipelines.parameters import checked
from tests import tables
from trainer.errors import InputError

PHOTOS = {"model": "transfer", "fine_tune_epochs": 1}
TABLE = {
    "source": "csv:trips.csv",
    "columns": tables.COLUMNS,
    "crosses": tables.CROSSES,
    "label": tables.LABEL,
    "model": "wide_and_deep",
}
SERVERS = {"ps_count": 1, "worker_count": 1}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"image_size": 3},
            "image_size=3 is too small for 2 poolings, each of which halves it; set image_size=4",
        ),
        ({"image_size": 8, "model_options": {"filters": [8] * 4}}, "set image_size=16 or more"),
        ({"image_size": 7, "model": "flowers_cnn"}, "image_size=7 is too small for 3 poolings"),
        ({"image_size": 3, "model": "mnist_cnn"}, "set image_size=4 or more"),
        ({"model_options": {"dropuot": 0.5}}, "small_cnn takes no 'dropuot'; did you mean 'drop"),
        ({"model_options": {"dropout": 1}}, "model_options: dropout=1.0 is out of range: it must"),
        ({"model_options": {"units": 0}}, "model_options: units=0 is out of range"),
        ({"model_options": {"units": 1.5}}, "model_options: units=1.5 is not a whole number"),
        ({"model_options": {"filters": [8, 0]}}, "model_options: filters=0 is out of range"),
        ({"model_options": {"filters": 8}}, "model_options: filters=8 is not a JSON list"),
        ({**PHOTOS, "channels": 1}, "takes images of 3 channels, but channels=1; set channels=3"),
        ({**PHOTOS, "model_options": {"input_size": -1}}, "input_size=-1 is out of range"),
        (
            {**PHOTOS, "model_options": {"backbone": "DenseNet112"}},
            "model_options: backbone='DenseNet112' is not in keras.applications; did you mean 'De",
        ),
        (
            {**PHOTOS, "model_options": {"weights": "imagnet"}},
            "weights='imagnet' is neither imagenet, none nor the URI of a weights file of Keras",
        ),
        ({**TABLE, "model_options": {"hidden_units": [8, -8]}}, "hidden_units=-8 is out of range"),
        ({**TABLE, "augmentation": "model"}, "augmentation='model' is for images, but model='wid"),
        (
            {"augmentation": "model", "augmentation_operations": []},
            "augmentation='model' with augmentation_operations=[] does nothing",
        ),
        (
            {"weight_decay": 0.1},
            "weight_decay=0.1 applies only to adamw, but optimizer='adam'; set op",
        ),
        ({"warmup_steps": 5, "schedule": "one_cycle"}, "'one_cycle' warms up by itself; set warm"),
        ({**SERVERS, "strategy": "parameter_server", "xla": True}, "set xla=false"),
        ({**SERVERS, "xla": True}, "xla=true can't be used with parameter servers"),
    ],
)
def test_a_model_that_can_not_be_built_is_refused(values, message):
    with pytest.raises(InputError) as raised:
        checked(values, place="here.toml")
    assert str(raised.value).startswith("here.toml: ")
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "values",
    [
        {"image_size": 4},
        {"image_size": 4, "model": "mnist_cnn"},
        {"image_size": 8, "model": "flowers_cnn"},
        {**PHOTOS, "image_size": 8, "model_options": {"input_size": 32.0}},
        {**TABLE, "model_options": {"hidden_units": [], "first_units": 8.0}},
    ],
)
def test_what_is_just_large_enough_is_taken(values):
    checked(values, place="here.toml")


@pytest.mark.parametrize("words", [["plan", "cats_vs_dogs"], ["run", "cats_vs_dogs", "--local"]])
def test_commands_refuse_it_with_exit_code_2(elsewhere, refused, tmp_path, words):
    assert "takes images of 3 channels, but channels=1" in refused(*words, "--set", "channels=1")
    assert not list(tmp_path.iterdir())
