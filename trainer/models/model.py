"""Define the base class of models, which declare options, inputs, construction and training."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from trainer.data.schema import IMAGES, Dataset
from trainer.tasks import task_of
from vertex.errors import InputError

if TYPE_CHECKING:
    import keras

WIDE_LAYER = "wide_weights"
"""Name of the layer with the variables of a model's wide part, which FTRL trains."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
    """Options of a model, checked when they are read, and the model that they describe.

    Each subclass is in a file in this folder that is named after the model. Keras is imported in
    methods, not at the top of the file, so that a recipe can be read without TensorFlow.
    """

    takes: ClassVar[str] = IMAGES
    """Kind of its examples, one of `schema.CONTENTS`; empty: either."""
    augmentable: ClassVar[bool] = True
    """True if its images can be augmented inside the model."""
    has_backbone: ClassVar[bool] = False
    """True if the model has a backbone, which a second phase can fine-tune."""
    has_wide_part: ClassVar[bool] = False
    """True if a separate optimizer trains the weights of WIDE_LAYER."""

    is_program: ClassVar[bool] = False
    """True if it is a training program, whose `train` replaces `build` and the training loop."""

    @classmethod
    def register_layers(cls) -> None:
        """Import the layers that Keras needs to load a saved model."""

    def check_images(self, size: int, channels: int) -> None:
        """Raise InputError if images of `size` x `size` x `channels` can't be used."""

    def check_texts(self, embeddings: Mapping[str, int]) -> None:
        """Raise InputError if texts with embeddings of these dimensions, by name, can't be read."""

    def check_fine_tuned(self, layers: int) -> None:
        """Raise InputError if the backbone's last `layers` layers can't be fine-tuned."""

    def local_files(self) -> dict[str, str]:
        """Return the options that are URIs of files, by name."""
        return {}

    def backbone_to_download(self) -> str:
        """Return the name of the backbone whose ImageNet weights Keras downloads, if any, or ""."""
        return ""

    def prepare(self, dataset: Dataset, directory: str) -> Model:
        """Copy the files that the model needs to `directory` (URI), once; return new options."""
        return self

    def build(self, dataset: Dataset) -> keras.Model:
        """Build a model that maps the inputs of `trainer.data.read.model_inputs` to logits.

        Images are uint8 [n, height, width, channels], unscaled; logits are float32 [n, classes].
        """
        raise NotImplementedError

    def train(self, dataset: Dataset, directory: str) -> keras.Model:
        """Train on this replica, in the job's base_output_directory; return a model as `build`."""
        raise NotImplementedError

    def unfreeze(self, model: keras.Model, layers: int) -> None:
        """Make the last `layers` layers of the backbone trainable."""
        raise NotImplementedError


def build_image_classifier(name: str, dataset: Dataset, layers: list[keras.Layer]) -> keras.Model:
    """Return a model for images, with `layers` between the scaling of pixels and the logits."""
    import keras

    image = dataset.feature("image")
    return keras.Sequential(
        [
            keras.Input(image.shape, dtype=image.dtype, name=image.name),
            keras.layers.Rescaling(1 / 255),
            *layers,
            keras.layers.Dense(task_of(dataset).outputs, dtype="float32", name="logits"),
        ],
        name=name,
    )


def check_halvings(filters: list[int], size: int) -> None:
    """Raise InputError if images of `size` pixels are too small for one pooling per item."""
    minimum = 2 ** len(filters)
    if size < minimum:
        raise InputError(
            f"image_size={size} is too small for {len(filters)} poolings, each of which halves it; "
            f"set image_size={minimum} or more, or fewer filters than {filters} in model_options"
        )
