"""Transfer learning: a backbone of keras.applications with a head of its own.

Trains in one phase, the backbone frozen, or in two: in the second, `unfreeze` lets the last
layers of the backbone learn too. BatchNorm stays as it was trained, in both: its statistics
are of millions of pictures, and updates by the few at hand would wreck the layers after it
(https://keras.io/guides/transfer_learning).
"""

import keras
import tensorflow as tf

from trainer.data.schema import Dataset, join
from trainer.errors import InputError
from trainer.models import backbones
from trainer.models.model_options import NO_WEIGHTS, Transfer

WEIGHTS_FILE = "backbone.weights.h5"


def build(dataset: Dataset, options: Transfer) -> keras.Model:
    """Builds preprocessing, the frozen backbone, global average pooling, dropout, logits.

    Raises:
        InputError: the backbone does not fit the images or the weights.
    """
    image = dataset.feature("image")
    shape = _shape(dataset, options)
    base = backbones.create(options, shape)
    base.trainable = False
    inputs = features = keras.Input(image.shape, dtype=image.dtype, name=image.name)
    if options.input_size:
        features = keras.ops.cast(features, "float32")
        features = keras.layers.Resizing(*shape[:2], dtype="float32")(features)
    features = backbones.preprocessing(options.backbone)(features)
    features = base(features, training=False)
    features = keras.layers.GlobalAveragePooling2D()(features)
    features = keras.layers.Dropout(options.dropout)(features)
    # From zero, an epoch or two of a few hundred pictures are enough; random weights of a size
    # that fits no feature take most of a short phase 1 to unlearn.
    head = keras.layers.Dense(
        len(dataset.classes), kernel_initializer="zeros", dtype="float32", name="logits"
    )
    return keras.Model(inputs, head(features), name="transfer")


def prepare(dataset: Dataset, options: Transfer, directory: str) -> str:
    """Fetches the backbone's weights to `<directory>/weights`, unless they are there.

    One process does so before training; then every replica reads them from there.

    Returns:
        What `build` is to take as its weights: the copy's URI, or none.

    Raises:
        InputError: as `build`.
    """
    if options.weights == NO_WEIGHTS:
        return NO_WEIGHTS
    copy = join(directory, "weights", WEIGHTS_FILE)
    if not tf.io.gfile.exists(copy):
        backbones.save(backbones.create(options, _shape(dataset, options)), copy)
    return copy


def unfreeze(model: keras.Model, layers: int) -> None:
    """Lets the last `layers` layers of the backbone learn, but for BatchNorm, as the head does.

    Args:
        model: as `build` returned it.
        layers: of the backbone, counted as Keras' summary lists them.

    Raises:
        InputError: the backbone has fewer, or none of those has weights to train.
    """
    base = next(layer for layer in model.layers if isinstance(layer, keras.Model))
    count = len(base.layers)
    if layers > count:
        raise InputError(
            f"fine_tune_layers={layers}: {base.name} has {count} layers; use at most {count}"
        )
    base.trainable = True
    for position, layer in enumerate(base.layers):
        for part in _parts(layer):
            normalizes = isinstance(part, keras.layers.BatchNormalization)
            part.trainable = position >= count - layers and not normalizes
    if not base.trainable_variables:
        raise InputError(
            f"fine_tune_layers={layers}: the last {layers} layers of {base.name} have no weights "
            "to train, BatchNorm apart; use more"
        )


def _parts(layer: keras.layers.Layer) -> list[keras.layers.Layer]:
    """A layer, or what it is nested of."""
    inner = getattr(layer, "layers", None)
    return [part for one in inner for part in _parts(one)] if inner else [layer]


def _shape(dataset: Dataset, options: Transfer) -> tuple[int, int, int]:
    """Of what the backbone gets."""
    height, width, channels = dataset.feature("image").shape
    return options.input_size or height, options.input_size or width, channels
