"""Models of users that `compile` themselves."""

from typing import Any

import keras
import tensorflow as tf

from trainer.data.schema import Dataset


def plain(dataset: Dataset, *, normalized: bool = False) -> keras.Model:
    image = dataset.feature("image")
    layers = [
        keras.layers.Rescaling(1 / 255),
        keras.layers.Flatten(),
        keras.layers.Dense(16, activation="relu", kernel_regularizer=keras.regularizers.L2(0.01)),
        *([keras.layers.BatchNormalization(synchronized=True)] if normalized else []),
        keras.layers.Dense(len(dataset.classes), dtype="float32"),
    ]
    return keras.Sequential([keras.Input(image.shape, dtype=image.dtype), *layers])


class Focal(keras.losses.Loss):
    """A loss of the user's own."""

    def call(self, labels: Any, outputs: Any) -> Any:
        entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.cast(labels, tf.int32), outputs)
        return entropy * tf.square(1 - tf.exp(-entropy))


class Largest(keras.metrics.Metric):
    """A metric whose state is no sum over the rows."""

    def __init__(self) -> None:
        super().__init__(name="largest")
        self.value = self.add_weight(name="value", initializer="zeros")

    def update_state(self, labels: Any, outputs: Any, sample_weight: Any = None) -> None:
        self.value.assign(tf.maximum(self.value, tf.reduce_max(outputs)))

    def result(self) -> Any:
        return self.value


def compiled(dataset: Dataset, *, accumulated: int = 0, normalized: bool = False) -> keras.Model:
    model = plain(dataset, normalized=normalized)
    top = keras.metrics.SparseTopKCategoricalAccuracy(2, name="top")
    options = {"clipnorm": 0.05, "use_ema": True, "ema_momentum": 0.5}
    options["gradient_accumulation_steps"] = accumulated or None
    optimizer = keras.optimizers.RMSprop(0.01, **options)
    model.compile(optimizer, Focal(), metrics=["accuracy", top], weighted_metrics=[PerClass()])
    return model


def accumulating(dataset: Dataset) -> keras.Model:
    return compiled(dataset, accumulated=2)


def normalized(dataset: Dataset) -> keras.Model:
    return compiled(dataset, normalized=True)


class PerClass(keras.metrics.Metric):
    """Tell how often each class is right, of all rows."""

    def __init__(self) -> None:
        super().__init__(name="right")
        self.sums = self.add_weight(name="sums", shape=(10,), initializer="zeros")
        self.rows = self.add_weight(name="rows", initializer="zeros")

    def update_state(self, labels: Any, outputs: Any, sample_weight: Any = None) -> None:
        labels = tf.reshape(tf.cast(labels, tf.int64), [-1])
        weights = tf.ones_like(labels, tf.float32) if sample_weight is None else sample_weight
        right = tf.cast(tf.argmax(outputs, axis=1) == labels, tf.float32) * weights
        self.sums.assign_add(tf.reduce_sum(tf.one_hot(labels, 10) * right[:, None], axis=0))
        self.rows.assign_add(tf.reduce_sum(weights))

    def result(self) -> Any:
        return self.sums / self.rows


def without_loss(dataset: Dataset) -> keras.Model:
    model = plain(dataset)
    model.compile("adam")
    return model


def with_largest(dataset: Dataset) -> keras.Model:
    model = plain(dataset)
    model.compile("adam", Focal(), metrics=[Largest()])
    return model


class OwnStep(keras.Model):
    def train_step(self, data: Any) -> dict[str, Any]:
        return {}


def with_own_step(dataset: Dataset) -> keras.Model:
    model = plain(dataset)
    return OwnStep(model.inputs, model.outputs[0])


def with_sums(dataset: Dataset) -> keras.Model:
    model = plain(dataset)
    model.compile("adam", Focal(reduction="sum"))
    return model
