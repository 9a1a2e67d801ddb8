"""Steps, losses and metrics as people write them, for tests.trainer.fit_scenarios.

`fit` trains those of SCENARIOS as one process of Keras, and refuses those of REFUSED by words.
"""

import collections
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

ROWS = 77
"""Not a multiple of the batch size; the last batch of 38 has a single row."""
SOME, BATCH = 44, 11
Script = Callable[..., tuple[keras.Model, dict[str, Any]]]
SCENARIOS: dict[str, Script] = {}
REFUSED: dict[str, tuple[Script, str]] = {}


def scenario(function: Script) -> Script:
    SCENARIOS[function.__name__] = function
    return function


def draw(rows: int = ROWS, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return points [rows, 4], float32, and their classes, int64."""
    points = np.random.default_rng(seed).normal(size=(rows, 4)).astype(np.float32)
    return points, (points[:, 0] > points[:, 1]).astype(np.int64) + (points[:, 2] > 1)


def refused(words: str) -> Callable[[Callable], Callable]:
    def register(function: Callable) -> Callable:
        REFUSED[function.__name__] = function, words
        return function

    return register


def prepare(model: keras.Model, y: Any = None, **options: Any) -> tuple[keras.Model, Any]:
    """Return a model, and its data in batches of an odd number of rows."""
    x, classes = draw(SOME)
    y = classes[:, None].astype(np.float32) if y is None else y
    return model, {"x": x, "y": y, "batch_size": BATCH, "shuffle": False, **options}


def network(units: int = 1, **options: Any) -> keras.Model:
    layers = [keras.layers.Dense(6, activation="tanh"), keras.layers.Dense(units, **options)]
    return keras.Sequential([keras.Input((4,)), *layers])


def compiled(loss: Any, model: keras.Model | None = None, **options: Any) -> Any:
    """Return a model that is compiled with a loss, and data."""
    model = model or network(activation="sigmoid")
    model.compile(keras.optimizers.SGD(0.05), loss, **options)
    return prepare(model)


class Step(keras.Model):
    """A train_step with a loss, an optimizer and a tracker of its own."""

    def __init__(self, find_loss: Callable[..., Any], optimizer: Any = None) -> None:
        super().__init__()
        self.network = network()
        self.find_loss = find_loss
        self.find_optimizer = optimizer or (lambda model: model.optimizer)
        self.tracker = keras.metrics.Mean(name="tracker")
        self.compile(keras.optimizers.SGD(0.05))

    def call(self, inputs: Any) -> Any:
        return self.network(inputs)

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.find_loss(self, y, self(x))
        weights = self.trainable_weights
        optimizer = self.find_optimizer(self)
        optimizer.apply(self.change(tape.gradient(loss, weights)), weights)
        self.tracker.update_state(loss)
        return {"shown": self.tracker.result()}

    def change(self, gradients: Any) -> Any:
        return gradients


def square(model: Any, y: Any, outputs: Any) -> Any:
    return ops.mean(ops.square(y - outputs))


@scenario
def optimizer_in_a_list():
    model = Step(square, lambda model: model.kept["all"][0])
    model.kept = {"all": [keras.optimizers.Adam(0.05, clipnorm=0.1)]}
    return prepare(model)


@scenario
def optimizer_of_a_part():
    model = Step(square, lambda model: model.network.optimizer)
    model.network.compile(keras.optimizers.SGD(0.05))
    return prepare(model)


@scenario
def optimizers_by_variable():
    first = keras.optimizers.Adam(0.05, global_clipnorm=0.1)
    second = keras.optimizers.SGD(0.05, momentum=0.9, gradient_accumulation_steps=2)
    model = network()
    model.compile(
        keras.optimizers.MultiOptimizer(
            lambda variable: first if "bias" in variable.path else second
        ),
        "mse",
    )
    return prepare(model)


@scenario
def counted_steps():
    def weigh(model: Any, y: Any, outputs: Any) -> Any:
        count = model.kept["counts"][0]
        count.assign_add(1.0)
        return square(model, y, outputs) * (1 + 0.1 * count)

    model = Step(weigh)
    model.kept = {"counts": [tf.Variable(0.0)]}
    return prepare(model)


@scenario
def annealed_loss():
    class Annealed(keras.losses.Loss):
        def __init__(self) -> None:
            super().__init__()
            self.kept = {"weight": tf.Variable(1.0)}

        def call(self, y: Any, outputs: Any) -> Any:
            return self.kept["weight"] * ops.mean(ops.square(y - outputs), axis=-1)

    class Anneal(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            loss.kept["weight"].assign(0.5 * loss.kept["weight"])

    loss = Annealed()
    model, data = compiled(loss)
    return model, {**data, "callbacks": [Anneal()]}


@scenario
def averaged_weights():
    class Average(keras.callbacks.Callback):
        def on_train_begin(self, logs: Any = None) -> None:
            layers = enumerate(self.model.layers)
            self.kept = {number: (0, layer.get_weights()) for number, layer in layers}

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            for number, layer in enumerate(self.model.layers):
                count, means = self.kept[number]
                pairs = zip(means, layer.get_weights(), strict=True)
                means = [mean + (weight - mean) / (count + 1) for mean, weight in pairs]
                self.kept[number] = count + 1, means

        def on_train_end(self, logs: Any = None) -> None:
            for number, layer in enumerate(self.model.layers):
                layer.set_weights(self.kept[number][1])

    model, data = compiled("mse")
    return model, {**data, "callbacks": [Average()]}


@scenario
def averaged_model():
    class Average(keras.callbacks.Callback):
        def on_train_begin(self, logs: Any = None) -> None:
            self.mean = keras.models.clone_model(self.model)
            self.mean.set_weights(self.model.get_weights())
            self.share = tf.Variable(1.0)

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.share.assign(0.5 * self.share)
            pairs = zip(self.mean.get_weights(), self.model.get_weights(), strict=True)
            share = self.share.numpy()
            self.mean.set_weights([mean + share * (weight - mean) for mean, weight in pairs])

        def on_train_end(self, logs: Any = None) -> None:
            self.model.set_weights(self.mean.get_weights())

    model, data = compiled("mse")
    return model, {**data, "callbacks": [Average()]}


@scenario
def rate_by_recent_losses():
    class Rate(keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.recent: Any = collections.deque(maxlen=6)
            self.is_first = False

        def on_train_begin(self, logs: Any = None) -> None:
            self.rate, self.is_first = float(self.model.optimizer.learning_rate), True

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.recent.append(logs["loss"])

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            rate = self.rate * (9 if self.is_first else np.mean(self.recent))
            self.is_first = False
            self.model.optimizer.learning_rate.assign(rate)

    model, data = compiled("mse")
    return model, {**data, "callbacks": [Rate()]}


@refused("applies the optimizer")
def optimizer_elsewhere():
    optimizer = keras.optimizers.SGD(0.05)
    return prepare(Step(square, lambda _: optimizer))


@scenario
def average_by_the_guide():
    return prepare(
        Step(
            lambda model, y, outputs: (
                tf.nn.compute_average_loss(tf.square(y - outputs)[:, 0], global_batch_size=BATCH)
                + tf.nn.scale_regularization_loss(0.01 * ops.sum(model.trainable_weights[0] ** 2))
            )
        )
    )


@scenario
def mean_over_replicas():
    def find(model: Any, y: Any, outputs: Any) -> Any:
        return square(model, y, outputs) / model.distribute_strategy.num_replicas_in_sync

    return prepare(Step(find))


class SumOverBatch(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.network = network()

    def call(self, inputs: Any) -> Any:
        return self.network(inputs)

    def compute_loss(self, x: Any, y: Any, y_pred: Any, sample_weight: Any, training: bool) -> Any:
        return ops.sum(ops.square(y - y_pred)) / BATCH


@scenario
def own_compute_loss():
    x, classes = draw(22, seed=9)
    model = SumOverBatch()
    model.compile(keras.optimizers.SGD(0.05))
    validation = x, classes[:, None].astype(np.float32)
    return prepare(model, validation_data=validation, validation_batch_size=BATCH)


@scenario
def loss_that_is_a_sum():
    return compiled(lambda y, outputs: 0.1 * ops.sum(ops.square(y - outputs)))


@scenario
def masked_words():
    words = np.array([[1, 2, 3, 4]] * 22 + [[1, 0, 0, 0]] * 22)
    model = keras.Sequential(
        [
            keras.Input((4,), dtype="int32"),
            keras.layers.Embedding(5, 4, mask_zero=True),
            keras.layers.Dense(5, activation="softmax"),
        ]
    )
    loss = "sparse_categorical_crossentropy"
    model.compile(keras.optimizers.SGD(1.0), loss, metrics=["accuracy"])
    return prepare(model, x=words, y=words)


@scenario
def ignored_class():
    loss = keras.losses.SparseCategoricalCrossentropy(ignore_class=0)
    model = network(3, activation="softmax")
    model.compile(keras.optimizers.SGD(0.5), loss)
    return prepare(model, draw(SOME)[1] * (np.arange(SOME) % 11 < 7))


@scenario
def synchronized_normalization():
    hidden = [keras.layers.Dense(6), keras.layers.BatchNormalization(synchronized=True)]
    model = keras.Sequential([keras.Input((4,)), *hidden, keras.layers.Dense(1)])
    return compiled("mse", model)


@scenario
def sum_after_synchronized_normalization():
    hidden = [keras.layers.Dense(6), keras.layers.BatchNormalization(synchronized=True)]
    model = keras.Sequential([keras.Input((4,)), *hidden, keras.layers.Dense(1)])
    return compiled(lambda y, outputs: 0.1 * ops.sum(ops.square(y - outputs)), model)


class ShowScale(keras.callbacks.Callback):
    """Log the scale of a loss, which a gradient that overflows divides by 2."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        logs["scale"] = np.log2(self.model.optimizer.dynamic_scale.numpy())


def in_half_precision(find_model: Callable[[], keras.Model], *arguments: Any) -> Any:
    """Return a model whose loss begins with a scale that a batch's gradient overflows by 2."""
    keras.config.set_dtype_policy("mixed_float16")
    model = find_model()
    keras.config.set_dtype_policy("float32")
    optimizer = keras.optimizers.SGD(0.05)
    scaled = keras.optimizers.LossScaleOptimizer(optimizer, 2.0**15, dynamic_growth_steps=3)
    model.compile(scaled, *arguments)
    model, arguments = prepare(model, callbacks=[ShowScale()])
    return model, {**arguments, "y": arguments["x"][:, :1] * 2}


@scenario
def mixed_precision_that_overflows():
    return in_half_precision(network, "mse")


class Scaled(Step):
    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            loss = square(self, y, ops.cast(self(x), "float32"))
            scaled = self.optimizer.scale_loss(loss)
        weights = self.trainable_weights
        self.optimizer.apply(self.change(tape.gradient(scaled, weights)), weights)
        self.tracker.update_state(loss)
        return {"shown": self.tracker.result()}


@scenario
def mixed_precision_of_an_own_step():
    return in_half_precision(lambda: Scaled(square))


@refused("is not only that of a loss that optimizer.scale_loss returns")
def decay_besides_a_scaled_loss():
    class Decayed(Scaled):
        def change(self, gradients: Any) -> Any:
            weights = self.trainable_weights
            return [one + 0.1 * weight for one, weight in zip(gradients, weights, strict=True)]

    return in_half_precision(lambda: Decayed(square))


@scenario
def two_outputs():
    inputs = keras.Input((4,))
    outputs = [keras.layers.Dense(1, name=name)(inputs) for name in ("first", "second")]
    model = keras.Model(inputs, outputs)
    model.compile(keras.optimizers.SGD(0.05), ["mse", "mae"], metrics=[["mae"], ["mse"]])
    x, _ = draw(SOME)
    return prepare(model, [x[:, :1], x[:, 1:2]], batch_size=10)


@scenario
def clipped_weights():
    """A Wasserstein GAN, whose critic takes two steps."""

    class Gan(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.maker, self.critic = network(4), network()
            self.compile()
            self.rules = [keras.optimizers.RMSprop(0.01) for _ in range(2)]

        def train_step(self, x: Any) -> dict[str, Any]:
            weights = self.critic.trainable_weights
            for _ in range(2):
                with tf.GradientTape() as tape:
                    loss = ops.mean(self.critic(self.maker(x))) - ops.mean(self.critic(x))
                self.rules[0].apply(tape.gradient(loss, weights), weights)
                for weight in weights:
                    weight.assign(ops.clip(weight, -0.3, 0.3))
            weights = self.maker.trainable_weights
            with tf.GradientTape() as tape:
                made = -ops.mean(self.critic(self.maker(x)))
            self.rules[1].apply(tape.gradient(made, weights), weights)
            return {"critic": loss, "maker": made}

    model, arguments = prepare(Gan())
    del arguments["y"]
    return model, arguments


@scenario
def drawn_by_tensorflow():
    """A step whose draws by tf.random can't equal those of one process, but have no effect."""

    def find(model: Any, y: Any, outputs: Any) -> Any:
        noise = tf.random.normal(tf.shape(outputs)) * model.tracker.total * 0
        return square(model, y, outputs + noise)

    return prepare(Step(find))


@scenario
def rate_by_the_batch():
    class Follow(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.model.optimizer.learning_rate = 0.1 * min(1.0, logs["loss"])

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            logs["rate"] = float(self.model.optimizer.learning_rate)

    model, arguments = compiled("mse", metrics=["mae"])
    return model, {**arguments, "callbacks": Follow()}


@scenario
def metric_of_a_function():
    def error(y: Any, outputs: Any) -> Any:
        return ops.mean(ops.abs(y - outputs))

    return compiled("mse", metrics=[error])


@scenario
def generator_without_weights():
    model, arguments = compiled("mse")
    x, y = arguments["x"], arguments["y"]
    begins = [*range(0, SOME, BATCH)] * 4
    batches = ((x[begin : begin + BATCH], y[begin : begin + BATCH], None) for begin in begins)
    return model, {"x": batches, "steps_per_epoch": 4}


@scenario
def decorated_step():
    class Decorated(Step):
        @tf.function
        def train_step(self, data: Any) -> dict[str, Any]:
            return super().train_step(data)

        @tf.function
        def call(self, inputs: Any) -> Any:
            return self.network(self.drop(inputs, training=True))

    model = Decorated(square)
    model.drop = keras.layers.Dropout(0.5, seed=3)
    return prepare(model)


@scenario
def weights_with_noise():
    """Draws of a shape that is a multiple of a replica's rows, whose number is known."""

    class Noisy(keras.layers.Layer):
        def build(self, shape: Any) -> None:
            self.kernel = self.add_weight(shape=(shape[-1], 6))
            self.seeds = keras.random.SeedGenerator(5)

        def call(self, inputs: Any) -> Any:
            noise = keras.random.normal(self.kernel.shape, seed=self.seeds)
            return ops.matmul(inputs, self.kernel + 0.3 * noise)

    drop = keras.layers.Dropout(0.5, noise_shape=(1, 6), seed=3)
    model = keras.Sequential([keras.Input((4,)), Noisy(), drop, keras.layers.Dense(1)])
    model, arguments = compiled("mse", model)
    rows = tf.data.Dataset.from_tensor_slices((arguments["x"], arguments["y"]))
    return model, {"x": rows.batch(3, drop_remainder=True)}


@scenario
def values_named_as_metrics():
    class Named(Step):
        def train_step(self, data: Any) -> dict[str, Any]:
            return {"loss": ops.sqrt(super().train_step(data)["shown"]), "tracker": self.rate}

    class Follow(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.model.optimizer.learning_rate = 0.1 * min(1.0, float(logs["tracker"]))

    model = Named(square)
    model.rate = 0.3
    return prepare(model, callbacks=[Follow()])


def gathered(loss: Any, model: keras.Model, metric: str = "mae", **options: Any) -> Any:
    model.compile(keras.optimizers.SGD(0.1), loss, metrics=[metric])
    model, arguments = prepare(model, **options)
    validation = {"validation_data": (arguments["x"][:15], arguments["y"][:15])}
    return model, {**arguments, **validation, "gather_batch": True}


@scenario
def rows_compared_with_each_other():
    def contrast(y: Any, outputs: Any) -> Any:
        likeness = ops.matmul(outputs[:, :2], ops.transpose(outputs[:, 2:]))
        numbers = ops.arange(ops.shape(outputs)[0])
        return keras.losses.sparse_categorical_crossentropy(numbers, likeness, from_logits=True)

    weights = np.linspace(0.1, 2, SOME, dtype=np.float32)
    y = np.zeros((SOME, 4), np.float32)
    # The last batch has a single row.
    return gathered(contrast, network(4), y=y, batch_size=43, sample_weight=weights)


@scenario
def dice_of_a_batch():
    return gathered(keras.losses.Dice(axis=(0, 1)), network(activation="sigmoid"))


@scenario
def own_loss_of_a_batch():
    class Whole(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.network, self.tracker = network(), keras.metrics.Mean(name="tracker")

        def call(self, inputs: Any) -> Any:
            return self.network(inputs)

        def compute_loss(
            self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None
        ) -> Any:
            noise = keras.random.normal(ops.shape(y_pred), seed=3)
            loss = ops.std(y_pred - y + 0.1 * noise) + ops.mean(
                ops.matmul(ops.transpose(x), y_pred)
            )
            self.tracker.update_state(loss)
            return loss

    return gathered(None, Whole())


@scenario
def masked_words_of_a_batch():
    words = np.random.default_rng(0).integers(1, 9, (SOME, 5))
    words[::3, 3:] = 0
    layers = [
        keras.layers.Embedding(9, 4, mask_zero=True),
        keras.layers.LSTM(4, return_sequences=True),
        keras.layers.Dense(9),
    ]
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model = keras.Sequential([keras.Input((5,), dtype="int64"), *layers])
    return gathered(loss, model, "accuracy", x=words, y=words)


@refused("gather_batch=True can't be used with the train_step")
def own_step_of_a_batch():
    return gathered(None, Step(square))


@refused("the loss of 11 rows is neither")
def layer_of_a_batch():
    def center(rows: Any) -> Any:
        return rows - ops.mean(rows, 0, keepdims=True)

    return gathered("mse", keras.Sequential([network(), keras.layers.Lambda(center)]))


@scenario
def metrics_seen_by_callbacks():
    class Watch(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.seen = float(self.model.metrics[0].count.numpy())

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.seen += float(self.model.metrics[0].total.numpy())
            if batch == 0:
                self.model.reset_metrics()
            if batch == 2:
                x, classes = draw(SOME, seed=1)
                self.seen += self.model.evaluate(x, classes[:, None] > 0, verbose=0)[0]
            self.model.metrics[0].update_state(float(batch))

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            logs["seen"] = self.seen + float(self.model.metrics[0].result())

    model, arguments = compiled("binary_crossentropy", metrics=["accuracy"])
    validation = {"validation_data": (arguments["x"][:15], arguments["y"][:15])}
    return model, {**arguments, **validation, "callbacks": [Watch()]}


@scenario
def metric_of_updated_weights():
    class Size(keras.metrics.Mean):
        def __init__(self, layer: keras.Layer) -> None:
            super().__init__(name="size")
            self.layer = layer

        def update_state(self, y: Any, outputs: Any, sample_weight: Any = None) -> None:
            super().update_state(ops.sum(ops.square(self.layer.kernel)))

    model = network()
    return compiled("mse", model, metrics=[Size(model.layers[0])])


class Counter(keras.metrics.Metric):
    """A sum that only its own method changes, and that is never reset."""

    def __init__(self) -> None:
        super().__init__(name="counter")
        self.number = self.add_weight(shape=(), initializer="zeros", dtype="int32")

    def add(self, number: Any) -> None:
        self.number.assign_add(number)

    def result(self) -> Any:
        return self.number + 0

    def reset_state(self) -> None:
        pass


@scenario
def results_read_by_the_step():
    class Reading(Step):
        def __init__(self) -> None:
            super().__init__(weighted)
            self.counter = Counter()

        @property
        def metrics(self) -> list[keras.Metric]:
            return [self.tracker]

        def train_step(self, data: Any) -> dict[str, Any]:
            self.counter.add(ops.shape(data[0])[0])
            shown = super().train_step(data)["shown"]
            tracker = self.tracker
            return {
                "exponential": ops.exp(shown),
                "ratio": tracker.total / tracker.count,
                "number": self.counter.result(),
                "tracker": tracker.count,
            }

    def weighted(model: Any, y: Any, outputs: Any) -> Any:
        return square(model, y, outputs) * (1 + model.tracker.result())

    return prepare(Reading())


@scenario
def metric_of_integers():
    class Positive(keras.metrics.Metric):
        def __init__(self) -> None:
            super().__init__(name="positive")
            self.counts = self.add_variable((2,), initializer="zeros", dtype="int32")

        def update_state(self, y: Any, outputs: Any, sample_weight: Any = None) -> None:
            self.counts.assign_add(ops.stack([ops.sum(ops.cast(y > 0, "int32")), ops.size(y)]))

        def result(self) -> Any:
            return {"part": self.counts[0] / self.counts[1], "number": self.counts[1]}

        def reset_state(self) -> None:
            self.counts.assign(ops.zeros_like(self.counts))

    return compiled("mse", metrics=[Positive()])


@refused("if it is 10000 times as large")
def clipped_later():
    class Clipped(Step):
        def change(self, gradients: Any) -> Any:
            return [tf.clip_by_value(gradient, -100.0, 100.0) for gradient in gradients]

    return prepare(Clipped(square))


@refused("to a variable of shape []")
def rows_counted():
    def find(model: Any, y: Any, outputs: Any) -> Any:
        model.seen.assign_add(ops.shape(y)[0])
        return square(model, y, outputs)

    model = Step(find)
    model.seen = model.add_weight(shape=(), dtype="int32", initializer="zeros", trainable=False)
    return prepare(model)


@refused("by keras.ops.shape(x)[0]")
def number_of_rows_while_traced():
    model, arguments = prepare(Step(lambda _, y, outputs: ops.sum((y - outputs) ** 2) / y.shape[0]))
    rows = tf.data.Dataset.from_tensor_slices((arguments["x"], arguments["y"]))
    return model, {"x": rows.batch(12, drop_remainder=True)}


@refused("different numbers of rows")
def row_for_all_rows():
    inputs = keras.Input((4,)), keras.Input((4,))
    outputs = keras.layers.Dense(1)(keras.layers.Add()(inputs))
    model, arguments = compiled("mse", keras.Model(inputs, outputs))
    rows = tf.data.Dataset.from_tensor_slices((arguments["x"], arguments["y"])).batch(BATCH)
    return model, {"x": rows.map(lambda x, y: ((x, tf.ones((1, 4))), y))}


@refused("the first batch has a single row")
def single_row_first():
    model, arguments = compiled(lambda y, outputs: ops.sum((y - outputs) ** 2))
    x, y = arguments["x"], arguments["y"]
    begins = [0, 1, 9] * 9
    batches = ((x[begin : begin * 2 + 1], y[begin : begin * 2 + 1]) for begin in begins)
    return model, {"x": batches, "steps_per_epoch": 3}


@refused("the loss of 11 rows is neither")
def root_of_a_mean():
    return compiled(lambda y, outputs: ops.sqrt(ops.mean(ops.square(y - outputs))))


@refused("the loss of 11 rows is neither")
def dice():
    return compiled(keras.losses.Dice())


@refused("the loss of 11 rows is neither")
def weights_by_the_batch():
    return compiled(lambda y, outputs: ops.mean(ops.square(y - outputs) * (1 + y / ops.sum(y))))


@refused("the gradient for the optimizer")
def contrast():
    def find(model: Any, y: Any, outputs: Any) -> Any:
        likeness = ops.matmul(outputs, ops.transpose(outputs))
        return -ops.mean(ops.diagonal(ops.log_softmax(likeness)))

    return prepare(Step(find))


@refused("the gradient for the optimizer")
def clipped_by_hand():
    class Clipped(Step):
        def change(self, gradients: Any) -> Any:
            return tf.clip_by_global_norm(gradients, 0.01)[0]

    return prepare(Clipped(square))


@refused("the gradient for the optimizer")
def contrast_that_begins_later():
    def find(model: Any, y: Any, outputs: Any) -> Any:
        weight = ops.minimum(1.0, ops.cast(model.optimizer.iterations, "float32") / 10)
        return square(model, y, outputs) + weight * ops.var(outputs)

    return prepare(Step(find))


@refused("the loss of 11 rows is neither")
def contrast_of_outputs_that_begin_at_zero():
    model = network(kernel_initializer="zeros")
    return compiled(lambda y, outputs: ops.mean(ops.square(y - outputs)) + ops.var(outputs), model)


@refused("the loss of 11 rows is neither")
def rows_that_meet():
    class Centered(keras.layers.Layer):
        def call(self, inputs: Any) -> Any:
            return inputs - ops.mean(inputs, axis=0)

    model = keras.Sequential([keras.Input((4,)), Centered(), keras.layers.Dense(1)])
    return compiled("mse", model)


@refused("the loss of 11 rows is neither")
def rows_that_meet_between_layers():
    inputs = keras.Input((4,))
    centered = inputs - ops.mean(inputs, axis=0, keepdims=True)
    return compiled("mse", keras.Model(inputs, keras.layers.Dense(1)(centered)))


@refused("assigns from its rows to a variable of shape [4]")
def statistics_of_rows():
    class Remembering(keras.layers.Layer):
        def build(self, shape: Any) -> None:
            options = {"initializer": "zeros", "trainable": False}
            self.seen = self.add_weight(shape=(shape[-1],), **options)

        def call(self, inputs: Any, training: bool = False) -> Any:
            if training:
                self.seen.assign(ops.mean(inputs, axis=0))
            return inputs

    return compiled("mse", keras.Sequential([Remembering(), keras.layers.Dense(1)]))


@refused("fails with fewer rows")
def hardest_rows():
    def hardest(y: Any, outputs: Any) -> Any:
        return ops.mean(ops.top_k(ops.square(y - outputs)[:, 0], 3)[0])

    return compiled(hardest)


@refused("the metric 'error' of 11 rows is neither")
def metric_that_is_no_mean():
    def error(y: Any, outputs: Any) -> Any:
        return ops.sqrt(ops.mean(ops.square(y - outputs)))

    return compiled("mse", metrics=[error])


def find_hits(y: Any, outputs: Any) -> Any:
    """Return the part of the positive labels that are met, none by an untrained model."""
    positive = ops.cast(y > 0, "float32")
    return ops.sum(ops.cast(outputs > 0.9, "float32") * positive) / ops.sum(positive)


@refused("as when it divides by a mask's sum")
def metric_that_begins_at_zero():
    return compiled("mse", metrics=[find_hits])


@refused("does not add up")
def state_that_begins_at_zero():
    class Average(keras.metrics.Metric):
        def __init__(self) -> None:
            super().__init__(name="average")
            self.value = self.add_variable((), initializer="zeros")

        def update_state(self, y: Any, outputs: Any, sample_weight: Any = None) -> None:
            self.value.assign(0.9 * self.value + 0.1 * find_hits(y, outputs))

        def result(self) -> Any:
            return self.value

    return compiled("mse", metrics=[Average()])


@scenario
def right_answers():
    class Same(keras.layers.Layer):
        def build(self, _: Any) -> None:
            self.unused = self.add_weight(trainable=False)

        def call(self, inputs: Any) -> Any:
            return inputs

    model = keras.Sequential([keras.Input((4,)), Same()])
    model.compile("sgd", "mse")
    return prepare(model, draw(SOME)[0])


@refused("is 0 or NaN for the first 11 rows")
def metric_without_rows():
    def error(y: Any, outputs: Any) -> Any:
        return ops.sum(ops.abs(outputs) * ops.cast(y > 9, "float32"))

    return compiled("mse", metrics=[error])


@refused("ignore_class of keras.losses.SparseCategoricalCrossentropy")
def masked_by_hand():
    def mean(y: Any, outputs: Any) -> Any:
        mask = ops.cast(y > 0, "float32")
        return ops.sum(ops.square(y - outputs) * mask) / ops.sum(mask)

    return compiled(mean)


@refused("give the optimizer gradient_accumulation_steps")
def accumulated_by_hand():
    class Accumulating(Step):
        def train_step(self, data: Any) -> dict[str, Any]:
            x, y = data
            with tf.GradientTape() as tape:
                loss = square(self, y, self(x))
            for total, one in zip(
                self.totals, tape.gradient(loss, self.trainable_weights), strict=True
            ):
                total.assign_add(one)
            is_due = self.count.assign_add(1) % 2 == 0
            tf.cond(is_due, self.update, lambda: None)
            return {"shown": loss}

        def update(self) -> None:
            self.optimizer.apply([*self.totals], self.trainable_weights)
            for total in self.totals:
                total.assign(tf.zeros_like(total))

    model = Accumulating(square)
    model.count = tf.Variable(0, trainable=False)
    model.totals = [
        tf.Variable(tf.zeros(one.shape), trainable=False) for one in model.trainable_weights
    ]
    return prepare(model)


def changed(layer: keras.Layer) -> Any:
    """Return a model of images that a layer changes, and data."""
    layers = [keras.Input((8, 8, 3)), layer, keras.layers.Flatten(), keras.layers.Dense(1)]
    model, arguments = compiled("mse", keras.Sequential(layers))
    images = np.random.default_rng(0).random((SOME, 8, 8, 3), np.float32)
    return model, {**arguments, "x": images}


@refused("can't build the model")
def cropped_in_training():
    return changed(keras.layers.RandomCrop(6, 6, seed=1))


@refused("the layer 'rand_augment' changes images by draws for a whole batch, or")
def equalized_in_some_draws():
    return changed(keras.layers.RandAugment((0, 1), seed=1))


@refused("the layer 'mix_up' changes")
def mixed_images():
    return changed(keras.layers.MixUp(seed=1))


@refused("the layer 'cut_mix' changes")
def parts_of_other_images():
    return changed(keras.layers.CutMix(seed=1))


@refused("the layer 'aug_mix' changes")
def chains_of_draws():
    return changed(keras.layers.AugMix((0, 1), seed=1))


@refused("the layer 'random_elastic_transform' changes")
def elastic_images():
    return changed(keras.layers.RandomElasticTransform(seed=1))


def changing_metrics(metric: keras.Metric, change: Callable[..., None]) -> Any:
    """Return a model whose step changes a metric in some way, and data."""

    class Changing(Step):
        def __init__(self) -> None:
            super().__init__(square)
            self.metric = metric

        def train_step(self, data: Any) -> dict[str, Any]:
            logs = super().train_step(data)
            change(self, data[1], self(data[0]))
            return {**logs, "changed": self.metric.result()}

    return prepare(Changing())


@refused("assigns to the variable 'mean_absolute_error/total' of a metric outside")
def metric_that_a_step_resets():
    def change(model: Any, y: Any, outputs: Any) -> None:
        model.metric.reset_state()
        model.metric.update_state(y, outputs)

    return changing_metrics(keras.metrics.MeanAbsoluteError(), change)


@refused("uses the variable 'mean_absolute_error/total' of a metric in a branch")
def metric_in_a_branch():
    def change(model: Any, y: Any, outputs: Any) -> None:
        def update() -> int:
            model.metric.update_state(y, outputs)
            return 0

        tf.cond(model.optimizer.iterations % 2 == 0, update, lambda: 1)

    return changing_metrics(keras.metrics.MeanAbsoluteError(), change)


@refused("the metric 'f1_score' creates its variables in a step")
def metric_built_by_a_step():
    def change(model: Any, y: Any, outputs: Any) -> None:
        model.metric.update_state(y, outputs)

    return changing_metrics(keras.metrics.F1Score(threshold=0.5), change)


@refused("has the type bool")
def metric_that_is_true_or_false():
    class Reached(keras.metrics.Metric):
        def __init__(self) -> None:
            super().__init__()
            self.value = self.add_weight(shape=(), initializer="zeros", dtype="bool")

        def update_state(self, y: Any, outputs: Any, sample_weight: Any = None) -> None:
            self.value.assign(ops.logical_or(self.value, ops.any(outputs > 0.5)))

        def result(self) -> Any:
            return ops.cast(self.value, "float32")

    return compiled("mse", metrics=[Reached()])


@refused("the metric 'seen'")
def sum_of_means():
    class Summed(Step):
        def __init__(self) -> None:
            super().__init__(square)
            self.seen = keras.metrics.Sum(name="seen")

        def change(self, gradients: Any) -> Any:
            self.seen.update_state(ops.mean(gradients[0]))
            return gradients

    return prepare(Summed())


class BatchLosses(keras.callbacks.Callback):
    """Adds the losses that are seen at the ends of an epoch's calls to its logs."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.losses: list[float] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.losses.append(batch + logs["loss"])

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        logs["losses"] = sum(self.losses)


@scenario
def several_steps_a_call():
    model = compiled("mse", metrics=["mae"], steps_per_execution=3)[0]
    return prepare(model, callbacks=[BatchLosses()])


@scenario
def steps_of_an_epoch_that_calls_exceed():
    model = compiled("mse", steps_per_execution=4)[0]
    x, y = draw(SOME)
    data = tf.data.Dataset.from_tensor_slices((x, y[:, None])).batch(BATCH).repeat()
    return model, {"x": data, "steps_per_epoch": 6, "callbacks": [BatchLosses()]}


SCRIPTS = [*SCENARIOS]
"""Names of the scenarios of this file, to which fit_scenarios adds its own."""
