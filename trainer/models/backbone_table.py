"""A table of the backbones in keras.applications, available without importing Keras.

A test compares the table with Keras.
"""

import dataclasses
from typing import NamedTuple

from trainer.fields import option

IMAGENET, NO_WEIGHTS = "imagenet", "none"
WEIGHTS_SUFFIXES = (".weights.h5", ".h5", ".hdf5", ".keras")
"""Suffixes with which Keras recognizes weights files."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoOptions:
    """A backbone without options."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MobileNetV2Options:
    """Arguments of MobileNetV2; all names in this module are Keras's."""

    alpha: float = option(1.0, help="Width of each layer as a multiple of the original's.", above=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MobileNetOptions(MobileNetV2Options):
    """Arguments of MobileNet."""

    depth_multiplier: int = option(
        1, help="Number of filters per channel in a depthwise convolution.", minimum=1
    )
    dropout: float = option(
        1e-3, help="Fraction of features dropped in training.", minimum=0, below=1
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class MobileNetV3Options(MobileNetV2Options):
    """Arguments of MobileNetV3Large and MobileNetV3Small."""

    minimalistic: bool = option(
        False, help="Leave out squeeze-and-excite blocks, hard-swish and 5x5 convolutions."
    )
    dropout_rate: float = option(
        0.2, help="Fraction of features dropped in training.", minimum=0, below=1
    )


class Backbone(NamedTuple):
    """The properties of a backbone without its top."""

    layers: int  # number of layers in Keras's summary; a minimalistic MobileNetV3 has fewer
    tail: int = 2  # number of layers at the end without weights to train, except BatchNorm's
    min_size: int = 32  # minimum height and width of images
    options: type = NoOptions  # dataclass of the backbone's arguments


BACKBONES = {
    "ConvNeXtBase": Backbone(259, tail=0),
    "ConvNeXtLarge": Backbone(259, tail=0),
    "ConvNeXtSmall": Backbone(259, tail=0),
    "ConvNeXtTiny": Backbone(133, tail=0),
    "ConvNeXtXLarge": Backbone(259, tail=0),
    "DenseNet121": Backbone(427, tail=3),
    "DenseNet169": Backbone(595, tail=3),
    "DenseNet201": Backbone(707, tail=3),
    "EfficientNetB0": Backbone(237),
    "EfficientNetB1": Backbone(339),
    "EfficientNetB2": Backbone(339),
    "EfficientNetB3": Backbone(384),
    "EfficientNetB4": Backbone(474),
    "EfficientNetB5": Backbone(576),
    "EfficientNetB6": Backbone(666),
    "EfficientNetB7": Backbone(813),
    "EfficientNetV2B0": Backbone(270),
    "EfficientNetV2B1": Backbone(334),
    "EfficientNetV2B2": Backbone(349),
    "EfficientNetV2B3": Backbone(409),
    "EfficientNetV2L": Backbone(1028),
    "EfficientNetV2M": Backbone(740),
    "EfficientNetV2S": Backbone(513),
    "InceptionResNetV2": Backbone(780, min_size=75),
    "InceptionV3": Backbone(311, tail=11, min_size=75),
    "MobileNet": Backbone(86, options=MobileNetOptions),
    "MobileNetV2": Backbone(154, options=MobileNetV2Options),
    "MobileNetV3Large": Backbone(187, options=MobileNetV3Options),
    "MobileNetV3Small": Backbone(157, options=MobileNetV3Options),
    "NASNetLarge": Backbone(1039, tail=15),
    "NASNetMobile": Backbone(769, tail=15),
    "ResNet101": Backbone(345, tail=3),
    "ResNet101V2": Backbone(377, tail=3),
    "ResNet152": Backbone(515, tail=3),
    "ResNet152V2": Backbone(564, tail=3),
    "ResNet50": Backbone(175, tail=3),
    "ResNet50V2": Backbone(190, tail=3),
    "VGG16": Backbone(19, tail=1),
    "VGG19": Backbone(22, tail=1),
    "Xception": Backbone(132, min_size=71),
}
"""Backbones by name in keras.applications. Add new backbones of Keras to this table to use them."""
