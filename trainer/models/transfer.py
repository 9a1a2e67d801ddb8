"""Transfer learning: a backbone from keras.applications with a new head.

In the first phase of training, the backbone is frozen. In an optional second phase, `unfreeze`
makes its last layers trainable. BatchNorm stays frozen in both phases: its statistics come from
millions of images, and updates from a small dataset would damage the layers after it
(https://keras.io/guides/transfer_learning).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar

from trainer.data import storage
from trainer.data.schema import Dataset
from trainer.data.storage import join
from trainer.fields import build, option
from trainer.models.backbone_table import BACKBONES, IMAGENET, NO_WEIGHTS, WEIGHTS_SUFFIXES
from trainer.models.model import Model
from trainer.tasks import task_of
from vertex.errors import InputError
from vertex.formats import suggest

if TYPE_CHECKING:
    import keras


WEIGHTS_FILE = "backbone.weights.h5"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Transfer(Model):
    """A backbone from keras.applications, global average pooling and a dense layer."""

    has_backbone: ClassVar[bool] = True

    backbone: str = option(
        "DenseNet121", help="Network in keras.applications that extracts features."
    )
    backbone_options: dict = option(
        {}, help='Arguments of the backbone, as a JSON object such as {"alpha": 0.25}.'
    )
    weights: str = option(
        IMAGENET,
        help="Weights of the backbone: imagenet, none (random), or the URI of a Keras weights "
        "file.",
    )
    # A smaller size than in the backbone's training reduces accuracy; a somewhat larger size
    # slightly improves it (https://arxiv.org/abs/1906.06423: trained at 224, best at 288).
    input_size: int = option(
        0,
        help="Height and width, in pixels, to which the model resizes images; 0: as in the "
        "records.",
        minimum=0,
        maximum=4096,
    )
    dropout: float = option(
        0.2, help="Fraction of features dropped before the last layer.", minimum=0, below=1
    )

    def __post_init__(self) -> None:
        if self.backbone not in BACKBONES:
            hint = suggest(self.backbone, BACKBONES)
            raise InputError(f"backbone={self.backbone!r} is not in keras.applications{hint}")
        self.backbone_arguments()
        if self.weights_file and not self.weights_file.endswith(WEIGHTS_SUFFIXES):
            raise InputError(
                f"weights={self.weights!r} is neither imagenet, none nor the URI of a Keras "
                f"weights file ({', '.join(WEIGHTS_SUFFIXES)})"
            )

    @property
    def weights_file(self) -> str:
        """Return the URI of the backbone's weights file; empty: there is none."""
        return "" if self.weights in (IMAGENET, NO_WEIGHTS) else self.weights

    def backbone_arguments(self) -> dict[str, Any]:
        """Return `backbone_options` with the right types, since JSON has one type of number."""
        cls: type[Any] = BACKBONES[self.backbone].options
        try:
            parsed = build(cls, self.backbone_options, owner=self.backbone)
        except InputError as error:
            raise InputError(f"backbone_options: {error}") from None
        return {name: getattr(parsed, name) for name in self.backbone_options}

    def check_images(self, size: int, channels: int) -> None:
        if channels != 3:
            raise InputError(f"model='transfer' needs channels=3, but channels={channels}")
        minimum = BACKBONES[self.backbone].min_size
        if (self.input_size or size) < minimum:
            name = "input_size" if self.input_size else "image_size"
            raise InputError(
                f"{name}={self.input_size or size} is too small for backbone={self.backbone!r}, "
                f"which takes {minimum} pixels or more; set input_size={minimum} or more in "
                "model_options"
            )

    def check_fine_tuned(self, layers: int) -> None:
        count, tail = BACKBONES[self.backbone].layers, BACKBONES[self.backbone].tail
        if layers > count:
            raise InputError(f"fine_tune_layers={layers}: {self.backbone} has only {count} layers")
        if layers <= tail:
            raise InputError(
                f"fine_tune_layers={layers}: the last {layers} layers of {self.backbone} have no "
                f"weights to train, except BatchNorm's; use {tail + 1} or more"
            )

    @classmethod
    def register_layers(cls) -> None:
        from trainer.models import backbones  # noqa: F401 - registers its layer

    def local_files(self) -> dict[str, str]:
        return {"weights": self.weights_file} if self.weights_file else {}

    def backbone_to_download(self) -> str:
        return self.backbone if self.weights == IMAGENET else ""

    def prepare(self, dataset: Dataset, directory: str) -> Transfer:
        # One process writes this copy of the weights before training; then every replica reads it.
        if self.weights == NO_WEIGHTS:
            return self
        copy = join(directory, "weights", WEIGHTS_FILE)
        if not storage.exists(copy):
            with storage.uploaded(copy) as file:
                self._create_backbone(dataset).save_weights(file)
        return dataclasses.replace(self, weights=copy)

    def build(self, dataset: Dataset) -> keras.Model:
        import keras

        from trainer.models import backbones

        image = dataset.feature("image")
        shape = self._input_shape(dataset)
        base = self._create_backbone(dataset)
        base.trainable = False
        inputs = features = keras.Input(image.shape, dtype=image.dtype, name=image.name)
        if self.input_size:
            features = keras.ops.cast(features, "float32")
            features = keras.layers.Resizing(*shape[:2], dtype="float32")(features)
        features = backbones.create_preprocessing(self.backbone)(features)
        features = base(features, training=False)
        features = keras.layers.GlobalAveragePooling2D()(features)
        features = keras.layers.Dropout(self.dropout)(features)
        # A head that starts from zeros needs only one or two epochs of a few hundred images. Random
        # weights, whose scale fits no feature, would take most of a short phase 1 to unlearn.
        head = keras.layers.Dense(
            task_of(dataset).outputs, kernel_initializer="zeros", dtype="float32", name="logits"
        )
        return keras.Model(inputs, head(features), name="transfer")

    def unfreeze(self, model: keras.Model, layers: int) -> None:
        """Make the backbone's last `layers` layers trainable, except for BatchNorm."""
        import keras

        base = next(layer for layer in model.layers if isinstance(layer, keras.Model))
        count = len(base.layers)
        if layers > count:  # A minimalistic backbone has fewer layers than in the table.
            raise InputError(f"fine_tune_layers={layers}: {base.name} has only {count} layers")
        base.trainable = True
        for position, layer in enumerate(base.layers):
            for inner in _flatten_layers(layer):
                normalizes = isinstance(inner, keras.layers.BatchNormalization)
                inner.trainable = position >= count - layers and not normalizes

    def _create_backbone(self, dataset: Dataset) -> keras.Model:
        from trainer.models import backbones

        arguments, shape = self.backbone_arguments(), self._input_shape(dataset)
        return backbones.create(self.backbone, self.weights, arguments, shape)

    def _input_shape(self, dataset: Dataset) -> tuple[int, int, int]:
        """Return height, width and channels of the backbone's input."""
        height, width, channels = dataset.feature("image").shape
        return self.input_size or height, self.input_size or width, channels


def _flatten_layers(layer: keras.layers.Layer) -> list[keras.layers.Layer]:
    """Return the innermost layers of a nested layer, or the layer itself."""
    inner = getattr(layer, "layers", None)
    return [part for child in inner for part in _flatten_layers(child)] if inner else [layer]
