"""Models, data and callbacks of users, trained by `trainer.fit` on several workers, or by Keras.

    python -m tests.trainer.fit_scenarios RESULT FOLDER [SCENARIO ...]

With TF_CONFIG or two logical devices, `fit` trains on all replicas; without, Keras' own does. The
file RESULT gets the history, the weights and the number of steps of each scenario, or why `fit` has
refused it. With EPOCHS in the environment, `fit` trains so many, with checkpoints in FOLDER. With
LEAVES, the process ends within an epoch.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.trainer.fit_scripts import REFUSED, ROWS, SCENARIOS, draw, scenario
from trainer.engine import strategies
from trainer.engine.applied_optimizers import list_optimizers
from trainer.engine.cluster import from_environment
from trainer.fit import create_strategy, fit
from vertex.errors import InputError


def dense(**options: Any) -> keras.Model:
    inputs = keras.Input((4,))
    hidden = keras.layers.Dense(8, activation="tanh", **options)(inputs)
    return keras.Model(inputs, keras.layers.Dense(3, activation="softmax")(hidden))


@scenario
def arrays():
    model = dense(kernel_regularizer="l2")
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9, clipnorm=0.05)
    metrics = ["accuracy", keras.metrics.SparseTopKCategoricalAccuracy(2, name="top")]
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=metrics)
    x, y = draw()
    return model, {"x": x, "y": y, "batch_size": 19, "shuffle": False, "validation_split": 0.2}


@scenario
def single_rows():
    model = dense()
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    x, y = draw()
    return model, {"x": x, "y": y, "batch_size": 38, "shuffle": False}


@scenario
def weighted_dataset():
    model = dense()
    model.compile(
        keras.optimizers.AdamW(0.01, use_ema=True),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
        weighted_metrics=[keras.metrics.SparseCategoricalCrossentropy(name="weighted")],
    )
    weights = np.random.default_rng(1).random(ROWS).astype(np.float32)
    data = tf.data.Dataset.from_tensor_slices((*draw(), weights)).shuffle(ROWS, seed=5)
    steps = {"steps_per_epoch": 6, "validation_steps": 2, "validation_freq": 2}
    validation = tf.data.Dataset.from_tensor_slices(draw(50, seed=9)).batch(16)
    return model, {"x": data.repeat().batch(16), "validation_data": validation, **steps}


@scenario
def several_outputs():
    inputs = keras.Input((4,), name="points")
    hidden = keras.layers.Dense(8, activation="relu")(inputs)
    hidden = keras.layers.ActivityRegularization(l2=0.01)(hidden)
    outputs = {
        "kind": keras.layers.Dense(3, activation="softmax", name="kind")(hidden),
        "sum": keras.layers.Dense(1, name="sum")(hidden),
    }
    model = keras.Model(inputs, outputs)
    model.compile(
        "rmsprop",
        {"kind": "sparse_categorical_crossentropy", "sum": keras.losses.Huber()},
        metrics={"kind": ["accuracy"], "sum": ["mae", keras.metrics.R2Score()]},
        loss_weights={"kind": 1.0, "sum": 0.5},
    )
    x, kinds = draw(80)  # Keras' losses of outputs are means over batches, not over rows.
    labels = {"kind": kinds, "sum": x.sum(axis=1, keepdims=True)}
    return model, {"x": {"points": x}, "y": labels, "batch_size": 20, "shuffle": False}


class OwnStep(keras.Model):
    """A model with a train_step, a loss and a metric of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.line = keras.layers.Dense(1)
        self.error = keras.metrics.MeanAbsoluteError(name="error")

    def call(self, inputs: Any) -> Any:
        return self.line(inputs)

    @property
    def metrics(self) -> list[keras.Metric]:
        return [self.error]

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            outputs = self(x, training=True)
            loss = tf.reduce_mean(tf.square(outputs - y))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        self.error.update_state(y, outputs)
        return {"error": self.error.result()}


class TwoParts(keras.Model):
    """Parts that train against each other, each with its optimizer, and no `call`."""

    def __init__(self) -> None:
        super().__init__()
        self.maker = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4)])
        self.judge = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])

    def compile(self, makes: Any, judges: Any) -> None:
        super().compile()
        self.makes, self.judges = makes, judges

    def train_step(self, data: Any) -> dict[str, Any]:
        with tf.GradientTape(persistent=True) as tape:
            made = self.judge(self.maker(data))
            known = self.judge(data)
            maker_loss = -tf.reduce_mean(made)
            judge_loss = tf.reduce_mean(tf.square(known - 1)) + tf.reduce_mean(tf.square(made))
        weights = self.judge.trainable_weights
        self.judges.apply_gradients(zip(tape.gradient(judge_loss, weights), weights, strict=True))
        weights = self.maker.trainable_weights
        self.makes.apply_gradients(zip(tape.gradient(maker_loss, weights), weights, strict=True))
        return {"losses": {"maker": maker_loss, "judge": judge_loss}}


@scenario
def two_parts():
    model = TwoParts()
    model.compile(keras.optimizers.Adam(0.01), keras.optimizers.SGD(0.05))
    return model, {"x": draw(80)[0], "batch_size": 16, "shuffle": False}


class Batches(keras.utils.PyDataset):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        x, _ = draw(13 + number, seed=number)
        return x, x.sum(axis=1, keepdims=True)


@scenario
def generator():
    model = keras.Sequential([keras.layers.Dense(1)])  # Its shapes follow from the data.
    model.compile(keras.optimizers.SGD(0.05), "mse")
    batches = ((x, x.sum(axis=1, keepdims=True)) for x, _ in (draw(12, n) for n in range(30)))
    return model, {"x": batches, "steps_per_epoch": 4}


@scenario
def shared_data():
    """Data that are shuffled anew for each iterator; `run` trains twice."""
    model = dense()
    model.compile("sgd", "sparse_categorical_crossentropy")
    data = tf.data.Dataset.from_tensor_slices(draw()).batch(16).shuffle(9).repeat()
    return model, {"x": data, "steps_per_epoch": 3}


@scenario
def shuffled():
    model = dense()
    model.compile("adam", "sparse_categorical_crossentropy")
    return model, {"x": tf.data.Dataset.from_tensor_slices(draw()).shuffle(ROWS).batch(16)}


@scenario
def few_batches():
    model = dense()
    model.compile("adam", "sparse_categorical_crossentropy")
    x, y = draw()
    return model, {"x": x, "y": y, "batch_size": ROWS, "shuffle": False}


@scenario
def periodic_updates():
    model = dense()
    options = {"gradient_accumulation_steps": 3, "use_ema": True, "ema_overwrite_frequency": 4}
    rate = keras.optimizers.schedules.ExponentialDecay(0.1, 3, 0.5)
    optimizer = keras.optimizers.AdamW(rate, weight_decay=0.01, global_clipnorm=0.1, **options)
    model.compile(optimizer, "sparse_categorical_crossentropy")
    x, y = draw()
    return model, {"x": x, "y": y, "batch_size": 16, "shuffle": False}


@scenario
def layers_in_data():
    model = dense()
    model.compile("adam", "sparse_categorical_crossentropy")
    noise = keras.layers.GaussianNoise(0.1, seed=1)
    data = tf.data.Dataset.from_tensor_slices(draw()).batch(16)
    return model, {"x": data.map(lambda x, y: (noise(x, training=True), y))}


@scenario
def own_step():
    model = OwnStep()
    model.compile(keras.optimizers.SGD(0.05))
    return model, {"x": Batches()}


@scenario
def random_layers():
    layers = [
        keras.layers.GaussianNoise(0.1, seed=3),
        keras.layers.Dense(9, activation="relu"),
        keras.layers.Dropout(0.3, seed=4),
        keras.layers.Dense(3, activation="softmax"),
    ]
    model = keras.Sequential([keras.Input((4,)), *layers])
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    x, y = draw()
    return model, {"x": x, "y": y, "batch_size": 16, "shuffle": False}


@scenario
def equal_batches():
    hidden = [keras.layers.Dense(16, activation="relu"), keras.layers.Dropout(0.3)]
    model = keras.Sequential([keras.Input((4,)), *hidden, keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x, y = draw(72)
    return model, {"x": x, "y": y, "batch_size": 24, "shuffle": False}


@scenario
def embedded_words():
    layers = [
        keras.layers.Embedding(50, 8, mask_zero=True),
        keras.layers.LSTM(6),
        keras.layers.Dense(1, activation="sigmoid"),
    ]
    model = keras.Sequential([keras.Input((7,), dtype="int32"), *layers])
    model.compile(keras.optimizers.Adam(0.01, global_clipnorm=0.1), "binary_crossentropy")
    x = np.random.default_rng(2).integers(0, 50, (ROWS, 7)) * (np.arange(7) < 5)
    return model, {"x": x, "y": x[:, 0] % 2, "batch_size": 19, "shuffle": False}


class Positions(keras.layers.Layer):
    """Embedded positions, which no row decides, and draws without a seed."""

    def build(self, shape: Any) -> None:
        self.places = keras.layers.Embedding(shape[1], shape[2])
        self.places.build(())

    def call(self, inputs: Any, training: bool = False) -> Any:
        if training:
            inputs += 0.1 * keras.random.uniform(keras.ops.shape(inputs))
        return inputs + self.places(keras.ops.arange(inputs.shape[1]))


@scenario
def embedded_positions():
    layers = [Positions(), keras.layers.Flatten(), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((6, 4)), *layers])
    model.compile(keras.optimizers.Adam(0.01), "mse")
    x = np.random.default_rng(3).normal(size=(ROWS, 6, 4)).astype(np.float32)
    return model, {"x": x, "y": x.sum(axis=(1, 2)), "batch_size": 19, "shuffle": False}


@scenario
def mixed_precision():
    keras.config.set_dtype_policy("mixed_float16")
    model = dense()
    keras.config.set_dtype_policy("float32")
    model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy")
    x, y = draw()
    return model, {"x": x, "y": y, "batch_size": 16, "shuffle": False}


@scenario
def callbacks(folder: Path):
    model = dense()
    model.compile(
        keras.optimizers.Adam(0.05), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    x, y = draw()
    disk = folder / f"disk-{from_environment(os.environ).trainer_index}"
    called = [
        keras.callbacks.EarlyStopping("val_loss", patience=2, restore_best_weights=True),
        keras.callbacks.ReduceLROnPlateau("loss", factor=0.5, patience=1, min_delta=0.2),
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.98),
        keras.callbacks.ModelCheckpoint(disk / "best.keras", "val_loss", save_best_only=True),
        keras.callbacks.CSVLogger(folder / "log.csv"),
        keras.callbacks.TensorBoard(folder / "logs"),
        keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: logs["loss"]),
    ]
    arguments = {"x": x, "y": y, "batch_size": 16, "shuffle": False, "callbacks": called}
    return model, {**arguments, "validation_data": draw(50, seed=9), "epochs": 40}


class Leave(keras.callbacks.Callback):
    """End the process in the fourth batch of the sixth epoch."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if (self.epoch, batch) == (5, 3):
            raise SystemExit


def main(result: str, folder: str, *chosen: str) -> None:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    strategies.divide_cpu(os.environ)
    strategy = tf.distribute.get_strategy()
    if from_environment(os.environ).addresses.get("ps"):
        strategy = create_strategy()
    elif "TF_CONFIG" in os.environ:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    elif strategies.LOGICAL_CPUS in os.environ:
        strategy = tf.distribute.MirroredStrategy(tf.config.list_logical_devices("CPU"))
    results: dict[str, Any] = {}
    for name in chosen or SCENARIOS:
        try:
            results[name] = run(name, strategy, folder)
        except InputError as error:
            results[name] = str(error)
    if from_environment(os.environ).is_chief:
        Path(result).write_text(json.dumps(results))


def run(name: str, strategy: tf.distribute.Strategy, folder: str, seed: int = 1) -> dict[str, Any]:
    """Return what RESULT gets of a scenario, trained by `fit` or, alone, by Keras."""
    keras.utils.set_random_seed(seed)
    with strategy.scope():
        takes_folder = name == "callbacks"
        make = SCENARIOS.get(name) or REFUSED[name][0]
        model, arguments = make(*[Path(folder)] * takes_folder)
    arguments = {"epochs": 4, "verbose": 0, **arguments}
    is_keras = strategy is tf.distribute.get_strategy()
    if name == "shared_data":
        model.fit(**arguments) if is_keras else fit(model, **arguments)
    if is_keras:
        arguments.pop("gather_batch", None)
        history = model.fit(**arguments)
    elif takes_folder or "EPOCHS" in os.environ:
        arguments["epochs"] = int(os.environ.get("EPOCHS", arguments["epochs"]))
        if "LEAVES" in os.environ:
            arguments["checkpoint_steps"] = 2
            arguments["callbacks"] += [Leave()]
        history = fit(model, directory=f"{folder}/checkpoints", **arguments)
    else:
        history = fit(model, **arguments)
    weights = np.concatenate([weight.ravel() for weight in model.get_weights()])
    values = {key: [float(value) for value in of] for key, of in history.history.items()}
    return {
        "history": values,
        "epochs": history.epoch,
        "weights": weights.astype(float).tolist(),
        "steps": [int(one.iterations.numpy()) for one in list_optimizers(model)],
        **_evaluate(model, arguments.get("validation_data")),
    }


def _evaluate(model: keras.Model, data: Any) -> dict[str, list[float]]:
    """Return what Keras' `evaluate` and `predict` return for validation data."""
    if data is None:
        return {}
    data = data if isinstance(data, tuple) else (data,)
    predicted = model.predict(data[0], batch_size=16, verbose=0)
    evaluated = model.evaluate(*data, batch_size=16, verbose=0)
    return {"evaluated": evaluated, "predicted": predicted.ravel().tolist()}


if __name__ == "__main__":
    main(*sys.argv[1:])
