"""Training by `trainer.fit` on several replicas, which compute each step together."""

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from trainer.engine import tried_step
from trainer.engine.agreement import add_up, agree, check_weights
from trainer.engine.batch_rows import count_rows
from trainer.engine.compile_checks import is_plain
from trainer.engine.internals import convert_optionals
from trainer.engine.step import repeat
from trainer.fit.divided_batches import DividedBatches
from trainer.fit.fit_loop import FitLoop
from vertex.errors import InputError

_DIFFERENT = (
    "The workers read different batches, and each learns from its own rows. If more than "
    "augmentation differs, rows are learned twice or never: import trainer.fit, or call "
    "keras.utils.set_random_seed, before the data is shuffled, or seed every shuffle."
)
_UNTRIED = (
    "several replicas can't compute {name} of the model {model!r} for a batch of several rows, "
    "because the first batch has a single row, by which this can't be tried; begin with a "
    "larger batch, or train on one replica"
)


class MirroredFit(FitLoop):
    """One worker's part of a training whose replicas compute each step together."""

    def open_training(self, training: dict[str, Any]) -> tuple[int | None, tf.data.Dataset]:
        # Keras' adapter is made once: each takes batches from a generator.
        self._training = DividedBatches(self.strategy, self.cluster, self.epochs, **training)
        return self._training.num_batches, self._training.undivided

    def make_steps(self, validation: dict[str, Any] | None) -> None:
        # Those of the mirrored step are made with the first rows of the data.
        if validation:
            self._validation = DividedBatches(self.strategy, self.cluster, 1, **validation)

    def train_epoch(self, called: keras.callbacks.CallbackList, done: int) -> dict[str, float]:
        begin, end = called.on_train_batch_begin, called.on_train_batch_end
        logs = self._run_epoch(self._training, "train_step", begin, end, done)
        check_weights(self.strategy, self.model.trainable_variables)
        return logs

    def validate(self, called: keras.callbacks.CallbackList) -> dict[str, float]:
        self._validation.reset()  # Each epoch is validated on the same steps.
        begin, end = called.on_test_batch_begin, called.on_test_batch_end
        return self._run_epoch(self._validation, "test_step", begin, end)

    def train(
        self, *arguments: Any, initial_epoch: int, initial_step: int = 0, **options: Any
    ) -> None:
        if not (agree(self.strategy, initial_epoch) and agree(self.strategy, initial_step % 2**20)):
            raise InputError(
                f"the workers do not all begin with epoch {initial_epoch + 1}, step "
                f"{initial_step + 1}; give each the same initial_epoch, and a directory that all "
                "can read"
            )
        options |= {"initial_epoch": initial_epoch, "initial_step": initial_step}
        super().train(*arguments, **options)

    def is_stopped(self) -> bool:
        self.model.stop_training = add_up(self.strategy, float(self.model.stop_training)) > 0
        return bool(self.model.stop_training)

    def _run_epoch(
        self,
        parts: DividedBatches,
        name: str,
        begin: Callable[[int], None],
        end: Callable[[int, Any], None],
        done: int = 0,
    ) -> dict[str, float]:
        """Run a step on every batch after those that are done; return the logs."""
        model = self.model
        logs: dict[str, Any] = {}
        stops = tf.zeros([])
        steps, untried = self.traced.functions, self.traced.untried
        known = parts.data_adapter.num_batches
        key = f"{name} {self.gather_batch} {parts.specification}"
        with parts.catch_stop_iteration():
            for first, last, iterator in parts:
                if first >= done:
                    begin(first)
                batch, rest = next(iterator), last - first
                if first == 0:
                    *_, checksum, rows = batch
                    if not agree(self.strategy, int(checksum)):
                        warnings.warn(_DIFFERENT, stacklevel=6)
                    if key not in steps or (key in untried and int(count_rows(rows)) > 1):
                        untried.discard(key)
                        steps[key] = self._make_step(getattr(model, name), parts, rows, key)
                        steps[f"{key} repeated"] = repeat(_take_batch(steps[key]))
                # Where the data may end before, a step is run for each batch that comes.
                is_counted = known and not parts.steps_per_epoch and key not in untried
                repeated = min(rest, known - first - 1) if is_counted and first >= done else 0
                batches = [batch, *itertools.islice(iterator, 0 if repeated else rest)]
                if first < done:
                    continue
                stop = tf.constant(float(model.stop_training))
                for local, size, *_ in batches:
                    if key in untried and int(size) > 1:
                        raise InputError(_UNTRIED.format(name=name, model=model.name))
                    before = stops
                    logs, self.totals, stops = steps[key](local, size, self.totals, stop)
                if repeated:
                    before, results = stops, (logs, self.totals, stops)
                    logs, self.totals, stops = steps[f"{key} repeated"](
                        iterator, tf.constant(repeated), results, stop
                    )
                end(last, logs)
                # Other workers learn of a stop by the next step, and this one does not wait for it.
                if before > 0 or (self.cluster.trainers == 1 and model.stop_training):
                    break
        return self.measure(logs)

    def _make_step(
        self, function: Callable[[Any], Any], parts: DividedBatches, rows: Any, key: str
    ) -> Any:
        """Return a function that runs Keras' train_step or test_step on all replicas.

        If it may compute what is not a mean over rows, it is tried with the first rows of the data.
        """
        states, first = self.states, parts.first  # The step outlives this training and its data.
        replicas_step, is_untried = tried_step.make_step(
            self.model,
            convert_optionals(self.model, function),
            states,
            lambda: rows,
            is_plain=is_plain(self.model),
            carry_states=self.strategy.num_replicas_in_sync == 1,
            gather_batch=self.gather_batch,
        )
        if is_untried:
            self.traced.untried.add(key)

        def select(replica: int, local: Any) -> Any:
            return local[replica - first]

        signature = [
            *parts.specification[:2],
            tf.TensorSpec(self.totals.shape, tf.float64),
            tf.TensorSpec([]),
        ]

        @tf.function(autograph=False, input_signature=signature)
        def step(local: Any, size: tf.Tensor, totals: Any, stop: Any) -> Any:
            totals = states.take_over(totals)
            logs, totals, stops = replicas_step.run(select, (local,), size, totals, stop)
            states.assign(totals)
            return logs, totals, stops

        return step


def _take_batch(step: Callable[..., Any]) -> Callable[..., Any]:
    """Return a step for `repeat`, from one of (rows, size, totals, stop)."""
    return lambda batch, _, results, stop: step(*batch[:2], results[1], stop)
