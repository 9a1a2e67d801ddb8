"""Training and validation steps for all strategies: the gradient and the sums of a batch.

Sums are float32 [3]: cross-entropy in nats, correct predictions, examples. They exclude label
smoothing and class weights, so that training and validation metrics can be compared.
"""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from trainer.data.read import reader
from trainer.data.schema import Dataset
from trainer.training.config import TrainingConfig
from trainer.training.progress import Sums


def make_gradient_function(
    network: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    dataset: Dataset,
    config: TrainingConfig,
) -> Callable[..., Any]:
    """Return a function of a replica's (inputs, labels, weights, examples of the global batch).

    It returns the gradient of each trainable variable of `network`, scaled as `optimizer` requires
    and divided by the number of examples of the global batch, and the sums over the replica's part.
    """
    variables = network.trainable_variables
    class_weights = _compute_class_weights(dataset, config)
    scale = optimizer.scale_loss

    def compute(inputs: Any, labels: tf.Tensor, weights: tf.Tensor, examples: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            logits = network(inputs, training=True)
            targets = tf.one_hot(labels, len(dataset.classes))
            smooth = config.label_smoothing
            targets = targets * (1 - smooth) + smooth / len(dataset.classes)
            losses = tf.nn.softmax_cross_entropy_with_logits(targets, logits)
            objective = tf.reduce_sum(losses * weights * tf.gather(class_weights, labels))
            objective = scale(objective / examples)
        gradients = tape.gradient(objective, variables)
        # Weights that do not affect the logits have no gradient. Gradients of embeddings are
        # IndexedSlices, which clipping and FTRL treat differently.
        dense = [
            tf.zeros(variable.shape, variable.dtype)
            if gradient is None
            else tf.convert_to_tensor(gradient)
            for gradient, variable in zip(gradients, variables, strict=True)
        ]
        return dense, sums(logits, labels, weights)

    # Not a function within the step's without XLA: there, layers can't wait for other replicas, as
    # batch normalization does.
    return tf.function(compute, autograph=False, jit_compile=True) if config.xla else compute


def make_training_step(
    strategy: tf.distribute.Strategy,
    network: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    dataset: Dataset,
    config: TrainingConfig,
) -> Callable[..., Any]:
    """Return a function of (inputs, labels, weights, examples in the global batch, stop flag).

    The function returns float32 [4], the same on every replica: the sums over the global batch,
    and the number of replicas that have received SIGTERM.
    """
    variables = network.trainable_variables
    compute = make_gradient_function(network, optimizer, dataset, config)

    @tf.function(autograph=False)
    def step(inputs: Any, labels: Any, weights: Any, examples: tf.Tensor, stop: tf.Tensor) -> Any:
        def replica_step(inputs: Any, labels: Any, weights: Any) -> tf.Tensor:
            local, local_sums = compute(inputs, labels, weights, examples)
            report = tf.concat([local_sums, [stop]], axis=0)
            context = tf.distribute.get_replica_context()
            *summed, report = context.all_reduce(tf.distribute.ReduceOp.SUM, [*local, report])
            optimizer.apply(summed, variables)
            return report

        reports = strategy.run(replica_step, args=(inputs, labels, weights))
        return strategy.experimental_local_results(reports)[0]

    return step


def make_validation(
    strategy: tf.distribute.Strategy,
    model: keras.Model,
    dataset: Dataset,
    share: reader.InputShare,
) -> Callable[[], dict[str, float]]:
    """Return a function that returns loss and accuracy of the validation split; {} if empty."""
    count = reader.steps_per_epoch(dataset, "validation", share.batch_size)
    if not count:
        return dict
    batches = distribute(strategy, reader.read_evaluation_batches(dataset, "validation", share))

    @tf.function(autograph=False)
    def step(*batch: Any) -> Any:
        def replica_step(inputs: Any, labels: Any, weights: Any) -> tf.Tensor:
            local = sums(model(inputs, training=False), labels, weights)
            context = tf.distribute.get_replica_context()
            return context.all_reduce(tf.distribute.ReduceOp.SUM, local)

        return strategy.experimental_local_results(strategy.run(replica_step, args=batch))[0]

    def score() -> dict[str, float]:
        total = Sums()
        for _, batch in zip(range(count), batches, strict=False):
            total.add(*step(*batch).numpy().tolist())
        return total.means()

    return score


def distribute(strategy: tf.distribute.Strategy, batches: tf.data.Dataset) -> Any:
    """Distribute the elements of `batches` to this worker's replicas.

    The number of steps is known, so the dataset is declared infinite. Otherwise, each step of a
    multi-worker job would begin with a collective operation that asks which workers still have
    data. A single CPU uses `batches` directly, because distribution takes as long as half a step of
    a small model.
    """
    devices = strategy.extended.worker_devices
    if len(devices) == 1 and "CPU:" in devices[0]:
        return batches
    infinite = tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
    return strategy.distribute_datasets_from_function(lambda _: batches.apply(infinite))


def sums(logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Return the sums over a batch; `weights` (float32 [n]) are 1, or 0 for padding."""
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    correct = tf.cast(tf.equal(tf.argmax(logits, -1), labels), tf.float32)
    return tf.stack(
        [tf.reduce_sum(losses * weights), tf.reduce_sum(correct * weights), tf.reduce_sum(weights)]
    )


def _compute_class_weights(dataset: Dataset, config: TrainingConfig) -> list[float]:
    """Return the weight of each class in the objective.

    "balanced" is scikit-learn's rule: examples / (classes x examples of the class). The weights
    are Python numbers, because they become constants of a step that runs on another machine.
    """
    counts = dataset.splits["train"].class_counts
    if config.class_weights == "none":
        return [1.0] * len(counts)
    return [sum(counts) / (len(counts) * max(1, count)) for count in counts]
