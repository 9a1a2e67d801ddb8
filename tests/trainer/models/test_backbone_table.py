"""Compare what the catalog says of backbones without Keras with Keras itself."""

import dataclasses
import inspect

import keras
import pytest

from trainer.errors import InputError
from trainer.fields import default_of
from trainer.models import backbones
from trainer.models.backbone_table import BACKBONES
from trainer.models.transfer import Transfer

COMMON = {
    "include_top",
    "include_preprocessing",
    "weights",
    "input_tensor",
    "input_shape",
    "pooling",
    "classes",
    "classifier_activation",
    "name",
}
"""Arguments of keras.applications that are not for the user to set."""
QUICK = ("MobileNet", "MobileNetV3Small", "VGG16", "Xception")


def test_it_lists_every_backbone_with_the_arguments_of_its_own():
    known = {name for name in dir(keras.applications) if name[0].isupper()}
    assert set(BACKBONES) == known
    for name, backbone in BACKBONES.items():
        taken = inspect.signature(getattr(keras.applications, name)).parameters
        own = {key: one.default for key, one in taken.items() if key not in COMMON}
        listed = {field.name: default_of(field) for field in dataclasses.fields(backbone.options)}
        assert listed == own, name


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.slow, id=name)
        for name in BACKBONES
    ],
)
def test_its_layers_and_the_smallest_image_are_those_of_keras(name):
    keras.backend.clear_session()
    options, said = Transfer(backbone=name, weights="none"), BACKBONES[name]
    with pytest.raises(InputError, match=f"{name} can't be built"):
        backbones.create(options, (said.min_size - 1, said.min_size - 1, 3))
    backbone = backbones.create(options, (said.min_size, said.min_size, 3))
    assert len(backbone.layers) == said.layers
    model = keras.Sequential([backbone])
    if said.tail:
        Transfer().unfreeze(model, said.tail)
        assert not backbone.trainable_variables
    Transfer().unfreeze(model, said.tail + 1)
    assert backbone.trainable_variables
