"""Base of models: a model declares its options, its inputs, and how it is built and trained."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, ClassVar

from trainer.errors import InputError

if TYPE_CHECKING:
    import keras

    from trainer.data.schema import Dataset

WIDE_LAYER = "wide_weights"
"""Name of the layer whose variables are the wide part of a model, for FTRL to learn."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
    """Options of a model, judged when they are read, and the model that they describe.

    A subclass is a file of this folder, whose name is the model's. Its methods import Keras, not
    its module: a recipe is read without TensorFlow.
    """

    takes_rows: ClassVar[bool | None] = False
    """True for rows of a table, False for images, None for either."""
    has_backbone: ClassVar[bool] = False
    """Tells if the model has a backbone, to be fetched and, in a second phase, fine-tuned."""
    has_wide_part: ClassVar[bool] = False
    """Tells if weights of WIDE_LAYER learn by an optimizer of their own."""

    @classmethod
    def register_layers(cls) -> None:
        """Import what Keras needs to load a model that was saved."""

    def check_images(self, size: int, channels: int) -> None:
        """Raise InputError where images of `size` x `size` x `channels` can't be used."""

    def check_fine_tuned(self, layers: int) -> None:
        """Raise InputError where the backbone's last `layers` layers can't be fine-tuned."""

    def local_files(self) -> dict[str, str]:
        """Return the files (URIs) that options name, by option."""
        return {}

    def downloads(self) -> str:
        """Return the backbone whose ImageNet weights Keras would download; empty: none."""
        return ""

    def prepare(self, dataset: Dataset, directory: str) -> Model:
        """Fetch to `directory` (URI), once, what the model needs from elsewhere.

        Returns:
            Options that name what was fetched.

        Raises:
            InputError: it is unavailable, or does not fit.
        """
        return self

    def build(self, dataset: Dataset) -> keras.Model:
        """Build a model from what `trainer.data.read.decoding.parse` gives to logits.

        Images are uint8 [n, height, width, channels], unscaled; logits float32 [n, classes].

        Raises:
            InputError: weights are unavailable, or do not fit.
        """
        raise NotImplementedError

    def unfreeze(self, model: keras.Model, layers: int) -> None:
        """Let the last `layers` layers of the backbone learn, too."""
        raise NotImplementedError


def image_classifier(name: str, dataset: Dataset, layers: list[keras.Layer]) -> keras.Model:
    """Return a model of images whose `layers` lie between the scaling of pixels and the logits."""
    import keras

    image = dataset.feature("image")
    return keras.Sequential(
        [
            keras.Input(image.shape, dtype=image.dtype, name=image.name),
            keras.layers.Rescaling(1 / 255),
            *layers,
            keras.layers.Dense(len(dataset.classes), dtype="float32", name="logits"),
        ],
        name=name,
    )


def check_halvings(filters: list[int], size: int) -> None:
    """Raise InputError where images of `size` pixels do not survive a pooling a filter size."""
    least = 2 ** len(filters)
    if size < least:
        raise InputError(
            f"image_size={size} is too small for {len(filters)} poolings, each of which halves it; "
            f"set image_size={least} or more, or fewer filters than {filters} in model_options"
        )
