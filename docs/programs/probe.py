"""A training program that measures GPUs before a first long run on them.

    python -m pipelines run digits --set model=docs.programs.probe:main --set register=false ...

Each replica prints what it finds; the chief also writes `probe.json` to the job's directory. What
fails is reported, and the rest is measured. The model that it returns has learned for one epoch.
It has run on CPUs only: no figure of a GPU is known yet.

With the option `lost`, the last replica is killed or stopped in that epoch. Vertex AI restarts the
job, which then measures how long the other replicas took to leave, and whether the weights have the
bits of a training without a loss.
"""

import contextlib
import functools
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainer.data import storage
from trainer.data.read.reader import read_for_keras
from trainer.data.schema import Dataset
from trainer.data.storage import join
from trainer.engine.cluster import Cluster, from_environment
from trainer.fit import create_strategy, fit
from vertex.errors import first_line

CHECKPOINT_STEPS = 2
WARM_UP = 2
"""Steps that are not timed."""
_PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")


def main(
    dataset: Dataset,
    directory: str,
    *,
    image_size: int = 224,
    batch_size: int = 64,
    steps: int = 20,
    megabytes: int = 100,
    lost: str = "",
) -> keras.Model:
    """Measure, and return a small model of the records.

    Args:
        image_size: height and width of the pictures of DenseNet121, in pixels.
        batch_size: pictures of a replica's step.
        steps: number of steps that are timed.
        megabytes: size of what is summed over the replicas, in 10^6 bytes.
        lost: signal for the last replica: "SIGKILL", or "SIGSTOP" if there are several.
    """
    strategy = create_strategy()
    cluster = from_environment(os.environ)
    tf.config.experimental.enable_op_determinism()
    found: dict[str, Any] = {}

    def measure(what: str, function: Callable[[], Any]) -> None:
        try:
            found[what] = function()
        except (tf.errors.OpError, RuntimeError, ValueError) as error:
            found[what] = f"failed: {first_line(error)}"
        print(f"probe: {what}: {found[what]}", flush=True)

    built = tf.sysconfig.get_build_info()
    kinds = [device.device_type for device in tf.config.list_logical_devices()]
    measure("devices", lambda: {kind: kinds.count(kind) for kind in sorted(set(kinds))})
    measure("libraries", lambda: {k: built[k] for k in sorted(built) if k.endswith("_version")})
    measure("replicas", lambda: strategy.num_replicas_in_sync)
    for name, layer, sample in _list_operations():
        measure(f"{name}: same bits twice", functools.partial(_repeats, layer, sample))
    measure("all-reduce, GB/s", lambda: _time_all_reduce(strategy, megabytes, steps))
    for precision in _PRECISIONS:
        for xla in (False, True):
            given = strategy, precision, xla, image_size, batch_size, steps
            what = f"DenseNet121, pictures/s, {precision}{', xla' if xla else ''}"
            measure(what, functools.partial(_time_network, *given))
    measure("records alone, examples/s", lambda: _time_input(dataset, batch_size))
    model = _train(dataset, strategy)
    if lost:
        survival = join(directory, "survival")
        resumed = _train(dataset, strategy, join(survival, "fit"), [_Loss(survival, lost, cluster)])
        weights = model.get_weights(), resumed.get_weights()
        measure(f"same bits after {lost}", lambda: all(map(np.array_equal, *weights)))
        measure(f"seconds until the others left after {lost}", lambda: _read_seconds(survival))
    if cluster.is_chief:
        storage.write_json(join(directory, "probe.json"), found)
    return model


class _Loss(keras.callbacks.Callback):
    """Send the last replica a signal after a checkpoint; let the others write while they live."""

    def __init__(self, directory: str, signal_name: str, cluster: Cluster) -> None:
        super().__init__()
        self._lost = join(directory, "lost.json")
        self._alive = join(directory, f"alive-{cluster.trainer_index}.json")
        self._signal = signal.Signals[signal_name]
        self._is_last = cluster.trainer_index == cluster.trainers - 1
        self._is_first_attempt = not tf.io.gfile.exists(self._lost)

    def on_train_begin(self, logs: Any = None) -> None:
        if self._is_first_attempt and not self._is_last:
            threading.Thread(target=self._write_times, daemon=True).start()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._is_first_attempt and self._is_last and batch == CHECKPOINT_STEPS:
            storage.write_json(self._lost, {"time": time.time()})
            os.kill(os.getpid(), self._signal)

    def _write_times(self) -> None:
        while True:
            storage.write_json(self._alive, {"time": time.time()})
            time.sleep(1)


def _read_seconds(directory: str) -> int | None:
    """Return the seconds from the loss of a replica to the end of the last other one."""
    paths = tf.io.gfile.glob(join(directory, "alive-*.json"))
    times = [json.loads(storage.read(path))["time"] for path in paths]
    lost = json.loads(storage.read(join(directory, "lost.json")))["time"]
    return round(max(times) - lost) if times else None


def _list_operations() -> Iterator[tuple[str, Callable[[], keras.Layer], np.ndarray]]:
    """Yield layers whose gradient needs a library, or may not be deterministic, with an input."""
    draw = np.random.default_rng(0)
    pictures = draw.normal(size=(8, 32, 32, 3)).astype(np.float32)
    yield "convolution", lambda: keras.layers.Conv2D(8, 3), pictures
    yield "dropout", lambda: keras.layers.Dropout(0.5, seed=1), pictures
    yield "embedding", lambda: keras.layers.Embedding(100, 8), draw.integers(0, 100, (64, 20))


def _repeats(make: Callable[[], keras.Layer], sample: np.ndarray) -> bool:
    """Return whether a layer's outputs and gradients are equal to the bit when computed again."""

    def compute() -> list[np.ndarray]:
        keras.utils.set_random_seed(1)
        layer = make()
        with tf.GradientTape() as tape:
            outputs = layer(sample, training=True)
            loss = tf.reduce_sum(tf.square(outputs))
        gradients = tape.gradient(loss, layer.trainable_variables)
        return [
            outputs.numpy(),
            *(tf.convert_to_tensor(gradient).numpy() for gradient in gradients),
        ]

    pairs = zip(compute(), compute(), strict=True)
    return all(np.array_equal(first, second) for first, second in pairs)


def _time_all_reduce(strategy: tf.distribute.Strategy, megabytes: int, steps: int) -> float:
    """Return the GB of a replica that are summed in a second."""
    count = megabytes * 250_000

    @tf.function(autograph=False)
    def step() -> Any:
        def replica_step() -> tf.Tensor:
            context = tf.distribute.get_replica_context()
            summed = context.all_reduce(tf.distribute.ReduceOp.SUM, tf.ones([count]))
            return tf.reduce_sum(summed[:1])

        return strategy.experimental_local_results(strategy.run(replica_step))[0]

    return round(megabytes / 1000 / _time(step, steps), 3)


def _time_network(
    strategy: tf.distribute.Strategy,
    precision: str,
    xla: bool,
    image_size: int,
    batch_size: int,
    steps: int,
) -> int:
    """Return the pictures a second of all replicas that DenseNet121 learns from."""
    with _policy(precision), strategy.scope():
        model = keras.applications.DenseNet121(
            input_shape=(image_size, image_size, 3), weights=None, classes=2
        )
        optimizer = keras.optimizers.SGD(0.01)
        if precision == "mixed_float16":
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
        optimizer.build(model.trainable_variables)

    def compute(pictures: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.cast(model(pictures, training=True), tf.float32))
            scaled = optimizer.scale_loss(loss)
        return loss, tape.gradient(scaled, model.trainable_variables)

    compiled = tf.function(compute, autograph=False, jit_compile=True) if xla else compute

    @tf.function(autograph=False)
    def step() -> Any:
        def replica_step() -> tf.Tensor:
            pictures = tf.ones([batch_size, image_size, image_size, 3])
            loss, gradients = compiled(pictures)
            optimizer.apply(gradients, model.trainable_variables)
            return loss

        return strategy.experimental_local_results(strategy.run(replica_step))[0]

    return round(batch_size * strategy.num_replicas_in_sync / _time(step, steps))


@contextlib.contextmanager
def _policy(precision: str) -> Iterator[None]:
    keras.config.set_dtype_policy(precision)
    try:
        yield
    finally:
        keras.config.set_dtype_policy("float32")


def _time(step: Callable[[], tf.Tensor], steps: int) -> float:
    """Return the mean seconds of a step."""
    for _ in range(WARM_UP):
        step().numpy()
    started = time.monotonic()
    for _ in range(steps):
        result = step()
    result.numpy()
    return (time.monotonic() - started) / steps


def _time_input(dataset: Dataset, batch_size: int) -> int:
    """Return the examples a second that are read and decoded, without training."""
    started = time.monotonic()
    for _ in read_for_keras(dataset, "train", batch_size):
        pass
    return round(dataset.splits["train"].examples / (time.monotonic() - started))


def _train(
    dataset: Dataset,
    strategy: tf.distribute.Strategy,
    directory: str = "",
    callbacks: Sequence[keras.callbacks.Callback] = (),
) -> keras.Model:
    """Return a model that has learned the pictures of the records for an epoch.

    With a directory, training goes on from its newest checkpoint.
    """
    image = dataset.feature("image")
    keras.utils.set_random_seed(0)
    with strategy.scope():
        layers = [
            keras.layers.Rescaling(1 / 255),
            keras.layers.Flatten(),
            keras.layers.Dense(32, activation="relu"),
            keras.layers.Dense(len(dataset.classes)),
        ]
        model = keras.Sequential([keras.Input(image.shape, dtype=image.dtype), *layers])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss, metrics=["accuracy"])
    fit(
        model,
        read_for_keras(dataset, "train", 64, seed=1),
        callbacks=callbacks,
        directory=directory,
        checkpoint_steps=CHECKPOINT_STEPS if directory else 0,
    )
    return model
