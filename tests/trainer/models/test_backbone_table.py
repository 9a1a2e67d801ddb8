"""The table of backbones, which is read without Keras, agrees with Keras."""

import dataclasses
import inspect

import keras
import pytest

from trainer.errors import InputError
from trainer.fields import default_of
from trainer.models import backbones
from trainer.models.backbone_table import BACKBONES
from trainer.models.transfer import Transfer

# Arguments that are not for the user to set: those that all have, and one of some.
COMMON = {*inspect.signature(keras.applications.Xception).parameters, "include_preprocessing"}
QUICK = ("MobileNet", "MobileNetV3Small", "VGG16", "Xception")


def test_table_lists_every_backbone_and_its_own_arguments():
    known = {name for name in dir(keras.applications) if name[0].isupper()}
    assert set(BACKBONES) == known
    for name, backbone in BACKBONES.items():
        parameters = inspect.signature(getattr(keras.applications, name)).parameters
        defaults = {
            key: parameter.default for key, parameter in parameters.items() if key not in COMMON
        }
        listed = {field.name: default_of(field) for field in dataclasses.fields(backbone.options)}
        assert listed == defaults, name


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.slow, id=name)
        for name in BACKBONES
    ],
)
def test_layers_and_smallest_image_are_those_of_keras(name):
    keras.backend.clear_session()
    options, row = Transfer(backbone=name, weights="none"), BACKBONES[name]
    with pytest.raises(InputError, match=f"{name} can't be built"):
        backbones.create(options, (row.min_size - 1, row.min_size - 1, 3))
    backbone = backbones.create(options, (row.min_size, row.min_size, 3))
    assert len(backbone.layers) == row.layers
    model = keras.Sequential([backbone])
    if row.tail:
        Transfer().unfreeze(model, row.tail)
        assert not backbone.trainable_variables
    Transfer().unfreeze(model, row.tail + 1)
    assert backbone.trainable_variables
