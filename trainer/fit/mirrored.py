"""Training by `trainer.fit` on several replicas, which compute each step together."""

import contextlib
import itertools
import warnings
import zlib
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainer.engine import replica_sums
from trainer.engine.batches import count_rows
from trainer.engine.compile_checks import has_steps_of_keras, is_plain
from trainer.engine.gathered_losses import squares_as_losses
from trainer.engine.internals import convert_optionals
from trainer.engine.scales import Scales
from trainer.engine.step import Step
from trainer.engine.step_trial import find_scales, is_trial_needed
from trainer.errors import InputError
from trainer.fit.divided_batches import DividedBatches
from trainer.fit.fit_loop import FitLoop

_DIFFERENT = (
    "The workers read different batches, and each learns from its rows of its own. If more than "
    "augmentation differs, rows are learned twice or never: import trainer.fit, or call "
    "keras.utils.set_random_seed, before the data is shuffled, or seed every shuffle."
)
_UNTRIED = (
    "several replicas can't compute {name} of the model {model!r} for a batch of several rows, "
    "because the first batch has a single row, which does not show how rows add up; begin with a "
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

    @property
    def _is_alone(self) -> bool:
        return self.cluster.trainers == 1

    def train_epoch(self, called: keras.callbacks.CallbackList, done: int) -> dict[str, float]:
        begin, end = called.on_train_batch_begin, called.on_train_batch_end
        logs = self._run_epoch(self._training, "train_step", begin, end, done)
        self._check_weights()
        return logs

    def validate(self, called: keras.callbacks.CallbackList) -> dict[str, float]:
        self._validation.reset()  # Each epoch is validated on the same steps.
        begin, end = called.on_test_batch_begin, called.on_test_batch_end
        return self._run_epoch(self._validation, "test_step", begin, end)

    def train(
        self, *arguments: Any, initial_epoch: int, initial_step: int = 0, **options: Any
    ) -> None:
        if not (self._agree(initial_epoch) and self._agree(initial_step % 2**20)):
            raise InputError(
                f"the workers do not all begin with epoch {initial_epoch + 1}, step "
                f"{initial_step + 1}; give each the same initial_epoch, and a directory that all "
                "can read"
            )
        options |= {"initial_epoch": initial_epoch, "initial_step": initial_step}
        super().train(*arguments, **options)

    def is_stopped(self) -> bool:
        self.model.stop_training = self._sum(float(self.model.stop_training)) > 0
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
        key = f"{name} {self.gather_batch} {parts.specification}"
        with parts.catch_stop_iteration():
            for first, last, iterator in parts:
                if first >= done:
                    begin(first)
                batches = [next(iterator)]
                batches += itertools.islice(iterator, last - first)
                if first == 0:
                    *_, checksum, rows = batches[0]
                    if not self._agree(int(checksum)):
                        warnings.warn(_DIFFERENT, stacklevel=6)
                    if key not in steps or (key in untried and int(count_rows(rows)) > 1):
                        untried.discard(key)
                        steps[key] = self._make_step(getattr(model, name), parts, rows, key)
                if first < done:
                    continue
                for local, size, *_ in batches:
                    if key in untried and int(size) > 1:
                        raise InputError(_UNTRIED.format(name=name, model=model.name))
                    before = stops
                    logs, self.totals, stops = steps[key](
                        local, size, self.totals, float(model.stop_training)
                    )
                end(last, logs)
                # Other workers learn of a stop by the next step, and this one does not wait for it.
                if before > 0 or (self._is_alone and model.stop_training):
                    break
        return self.measure(logs)

    def _make_step(
        self, function: Callable[[Any], Any], parts: DividedBatches, rows: Any, key: str
    ) -> Any:
        """Return a function that runs Keras' train_step or test_step on all replicas.

        If it may compute what is no mean over rows, it is tried with the first rows of the data.
        """
        function = convert_optionals(self.model, function)
        scales, plain = Scales(), is_plain(self.model)
        several = self.strategy.num_replicas_in_sync > 1
        gathers = several and self.gather_batch
        is_tried = several and (gathers or is_trial_needed(self.model))
        if gathers and not has_steps_of_keras(self.model):
            raise InputError(
                f"gather_batch=True can't be used with the train_step, test_step or "
                f"compute_metrics of the model {self.model.name!r}; let Keras' own call its "
                "compute_loss"
            )
        if is_tried and int(count_rows(rows)) == 1:
            self.traced.untried.add(key)
        elif is_tried:
            with squares_as_losses(self.model) if gathers else contextlib.nullcontext():
                scales = find_scales(
                    self.model, self.strategy, function, self.states, rows, is_plain=plain
                )
            if gathers:  # The values of the loss are those of all rows.
                scales.values = []
        states, first = self.states, parts.first  # The step outlives this training and its data.
        replicas_step = Step(
            self.model,
            self.strategy,
            function,
            states,
            scales,
            is_plain=plain,
            gather_batch=gathers,
            carry_states=not several,
        )

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

    def _check_weights(self) -> None:
        """Raise InputError if the workers' weights differ."""
        checksum = 0
        for variable in [] if self._is_alone else self.model.trainable_variables:
            checksum = zlib.crc32(variable.numpy().tobytes(), checksum)
        if not self._agree(checksum % 2**20):
            raise InputError(
                "the workers' weights differ after an epoch, so that something changed them on one "
                "worker alone: look for what depends on the worker, its files or its clock in "
                "callbacks and in train_step"
            )

    def _agree(self, value: int) -> bool:
        """Return whether all workers have the same number, which is below 2^20."""
        total, squares = self._sum([value, value * value])
        return total * total == squares * self.strategy.num_replicas_in_sync

    def _sum(self, values: Any) -> np.ndarray:
        """Return the sums over the replicas, of which those of one worker have the same values."""
        total = self.strategy.run(replica_sums.add, args=(tf.cast(values, tf.float64),))
        return self.take_first(total).numpy()
