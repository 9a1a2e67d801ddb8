"""What each model can be told, and which images it takes; known without TensorFlow.

    SmallCnn(filters=[32, 64]).check_images(size=3, channels=1)   # InputError: needs 4x4 pixels

Every class has defaults for all of its options, and judges them when it is made.
"""

import dataclasses
from typing import Any

from trainer import fields
from trainer.errors import InputError
from trainer.fields import nearest, option
from trainer.models.catalog import CATALOG

IMAGENET, NO_WEIGHTS = "imagenet", "none"
WEIGHTS_SUFFIXES = (".weights.h5", ".h5", ".hdf5", ".keras")
"""By which Keras tells files of weights."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SmallCnn:
    """Options of small_cnn."""

    filters: list[int] = option(
        [32, 64], help="Filters of the two convolutions before each pooling, as a list.", minimum=1
    )
    units: int = option(128, help="Units of the dense layer.", minimum=1)
    dropout: float = option(
        0.3,
        help="Share of features dropped before each of the last two layers.",
        minimum=0,
        below=1,
    )

    def check_images(self, size: int, channels: int) -> None:
        """Raises InputError where images of `size` x `size` x `channels` can't be used."""
        _check_halvings(self.filters, size)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FlowersCnn:
    """Options of flowers_cnn."""

    filters: list[int] = option(
        [16, 32, 64],
        help="Filters of each convolution, one before each pooling, as a list.",
        minimum=1,
    )
    units: int = option(128, help="Units of the dense layer.", minimum=1)

    def check_images(self, size: int, channels: int) -> None:
        """Raises InputError where images of `size` x `size` x `channels` can't be used."""
        _check_halvings(self.filters, size)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MnistCnn:
    """Options of mnist_cnn."""

    filters: int = option(32, help="Filters of the convolution.", minimum=1)
    units: int = option(128, help="Units of the dense layer.", minimum=1)

    def check_images(self, size: int, channels: int) -> None:
        """Raises InputError where images of `size` x `size` x `channels` can't be used."""
        # The convolution takes a pixel off each side, and the pooling halves the rest.
        if size < 4:
            raise InputError(
                f"image_size={size} is too small for model='mnist_cnn'; set image_size=4 or more"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Transfer:
    """Options of transfer."""

    backbone: str = option(
        "DenseNet121", help="Network of keras.applications that extracts features."
    )
    backbone_options: dict = option(
        {}, help='Arguments of the backbone, as a JSON object such as {"alpha": 0.25}.'
    )
    weights: str = option(
        IMAGENET,
        help="Weights of the backbone: imagenet, none (random), or the URI of a weights file of "
        "Keras.",
    )
    # Smaller than the backbone was trained at costs accuracy, some larger gains a little
    # (https://arxiv.org/abs/1906.06423: trained at 224, best at 288).
    input_size: int = option(
        0,
        help="Height and width, in pixels, that the model resizes images to; 0: as in the records.",
        minimum=0,
        maximum=4096,
    )
    dropout: float = option(
        0.2, help="Share of features dropped before the last layer.", minimum=0, below=1
    )

    def __post_init__(self) -> None:
        if self.backbone not in CATALOG:
            raise InputError(
                f"backbone={self.backbone!r} is not in keras.applications"
                f"{nearest(self.backbone, CATALOG)}"
            )
        self.backbone_arguments()
        if self.weights_file and not self.weights_file.endswith(WEIGHTS_SUFFIXES):
            raise InputError(
                f"weights={self.weights!r} is neither imagenet, none nor the URI of a weights file "
                f"of Keras ({', '.join(WEIGHTS_SUFFIXES)})"
            )

    @property
    def weights_file(self) -> str:
        """The URI of the backbone's weights; empty where they are no file of the user's."""
        return "" if self.weights in (IMAGENET, NO_WEIGHTS) else self.weights

    def backbone_arguments(self) -> dict[str, Any]:
        """`backbone_options` with their types: JSON has one kind of number."""
        try:
            read: Any = fields.build(
                CATALOG[self.backbone].options, self.backbone_options, taker=self.backbone
            )
        except InputError as error:
            raise InputError(f"backbone_options: {error}") from None
        return {name: getattr(read, name) for name in self.backbone_options}

    def check_images(self, size: int, channels: int) -> None:
        """Raises InputError where images of `size` x `size` x `channels` can't be used."""
        if channels != 3:
            raise InputError(
                f"model='transfer' takes images of 3 channels, but channels={channels}; set "
                "channels=3"
            )
        least = CATALOG[self.backbone].least_size
        if (self.input_size or size) < least:
            name, value = (
                ("input_size", self.input_size) if self.input_size else ("image_size", size)
            )
            raise InputError(
                f"{name}={value} is too small for backbone={self.backbone!r}, which takes {least} "
                f"pixels or more; set input_size={least} or more in model_options"
            )

    def check_fine_tuned(self, layers: int) -> None:
        """Raises InputError where the last `layers` layers of the backbone can't be fine-tuned."""
        count, tail = CATALOG[self.backbone].layers, CATALOG[self.backbone].tail
        if layers > count:
            raise InputError(
                f"fine_tune_layers={layers}: {self.backbone} has {count} layers; use {count} at "
                "most"
            )
        if layers <= tail:
            raise InputError(
                f"fine_tune_layers={layers}: the last {layers} layers of {self.backbone} have no "
                f"weights to train, BatchNorm apart; use {tail + 1} or more"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class WideAndDeep:
    """Options of wide_and_deep."""

    hidden_units: list[int] = option(
        [100, 70, 48, 34], help="Units of each hidden layer, as a list.", minimum=1
    )
    first_units: int = option(
        0,
        help="Units of the first hidden layer, in place of hidden_units; 0: as listed there.",
        minimum=0,
    )
    scale_factor: float = option(
        0.7,
        help="Units of a hidden layer as a multiple of the layer before, with first_units.",
        above=0,
    )
    layers: int = option(4, help="Number of hidden layers, with first_units.", minimum=1)
    dropout: float = option(
        0.0, help="Share of units dropped after each hidden layer.", minimum=0, below=1
    )
    batch_normalization: bool = option(False, help="Normalize each hidden layer over the batch.")
    wide: bool = option(True, help="Add the wide part: a linear model of categories and crosses.")


def _check_halvings(filters: list[int], size: int) -> None:
    """Raises InputError where images of `size` pixels do not survive a pooling a filter size."""
    least = 2 ** len(filters)
    if size < least:
        raise InputError(
            f"image_size={size} is too small for {len(filters)} poolings, each of which halves it; "
            f"set image_size={least} or more, or fewer filters than {filters} in model_options"
        )
