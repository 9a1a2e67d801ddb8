"""Training by `trainer.fit` on several replicas, which compute each step together."""

import contextlib
import itertools
import re
import warnings
import zlib
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.utils.python_utils import pythonify_logs

from trainer.errors import InputError, first_line
from trainer.fit import replica_sums
from trainer.fit.divided_batches import DividedBatches, count_rows
from trainer.fit.fit_loop import FitLoop
from trainer.fit.inlined_functions import inlined_functions
from trainer.fit.scales import Scale, Scales, flatten_logs
from trainer.fit.step_trial import find_scales, is_trial_needed
from trainer.training import draws
from trainer.training.applied_optimizers import list_optimizers, others_refused
from trainer.training.compile_checks import list_states

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

    def __init__(self, model: keras.Model, *arguments: Any) -> None:
        try:
            super().__init__(model, *arguments)
        except ValueError as error:
            if not hasattr(self, "data") or hasattr(self, "_steps"):
                raise  # Not by the build between.
            reason = re.sub(r"Exception encountered when calling .*|\x1b\[\d*m", "", str(error))
            raise InputError(
                f"several replicas can't build the model {model.name!r} with training=False: "
                f"{first_line(ValueError(reason))}; let its layers return the same shape as in "
                "training, and crop images, as RandomCrop does in training only, in the data's map"
            ) from error

    def open_training(self, training: dict[str, Any]) -> tuple[int | None, tf.data.Dataset]:
        # Keras' adapter is made once: each takes batches from a generator.
        self._training = DividedBatches(self.strategy, self.cluster, self.epochs, **training)
        return self._training.num_batches, self._training.undivided

    def make_steps(self, validation: dict[str, Any] | None) -> None:
        # A step is made with the first rows of its data.
        self._untried: set[str] = set()
        self._steps: dict[str, Callable[..., tuple[Any, tf.Tensor]]] = {}
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
        self.model.reset_metrics()
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
        """Run a step on every batch after those that are done; return the logs of all replicas."""
        model = self.model
        logs: dict[str, Any] = {}
        measured: dict[str, Any] = {}
        stops = tf.zeros([])
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
                    if name not in self._steps:
                        self._steps[name] = self._make_step(getattr(model, name), parts, rows)
                if first < done:
                    continue
                for local, total, *_ in batches:
                    if name in self._untried and int(total) > 1:
                        raise InputError(_UNTRIED.format(name=name, model=model.name))
                    before = stops
                    (logs, measured), stops = self._steps[name](
                        local, total, float(model.stop_training)
                    )
                end(last, logs)
                # Other workers learn of a stop by the next step, and this one does not wait for it.
                if before > 0 or (self._is_alone and model.stop_training):
                    break
        measured = measured or self._measure()
        # As in Keras: a step's own values are those of the last batch.
        return pythonify_logs(measured if set(logs) == set(measured) else logs)

    def _make_step(self, function: Callable[[Any], Any], parts: DividedBatches, rows: Any) -> Any:
        """Return a function that runs Keras' train_step or test_step on all replicas.

        If it may compute what is no mean over rows, it is tried with the first rows of the data.
        """
        function = self.model._autoconvert_optionals(function)
        is_tried = self.strategy.num_replicas_in_sync > 1 and is_trial_needed(self.model)
        scales = Scales()
        if is_tried and int(count_rows(rows)) == 1:
            self._untried.add(function.__name__)
        elif is_tried:
            # An epoch that goes on after a restart has metrics.
            variables = list_states(self.model)
            states = [variable.numpy() for variable in variables]
            self.model.reset_metrics()
            scales = find_scales(self.model, self.strategy, function, rows)
            for variable, state in zip(variables, states, strict=True):
                variable.assign(state)
        share = replica_sums.Share()
        others = others_refused(self.model)
        optimizers = list_optimizers(self.model)

        def replica_step(local: Any, total: tf.Tensor, stop: tf.Tensor) -> Any:
            replica_context = tf.distribute.get_replica_context()
            replica = int(tf.get_static_value(replica_context.replica_id_in_sync_group))
            part, offset, count = local[replica - parts.first]
            share.begin(count / total)
            scales.begin()
            draws.set_rows(offset, tf.maximum(count, 1))
            variables = list_states(self.model)
            before = [tf.convert_to_tensor(variable) for variable in variables]
            logs = function(part)
            states = [
                tf.where(count > 0, tf.convert_to_tensor(variable), state)
                for variable, state in zip(variables, before, strict=True)
            ]
            for variable, state in zip(variables, states, strict=True):
                variable.value.assign(state)
            stops, *sums = replica_sums.add_all([stop, *states])
            with keras.StatelessScope([*zip(variables, sums, strict=True)]):
                measured = flatten_logs(self.model.get_metrics_result())
            return (_name_logs(logs, measured, scales, share), measured), stops

        @tf.function(autograph=False, input_signature=[*parts.specification[:2], tf.TensorSpec([])])
        def step(*arguments: Any) -> Any:
            changes = [
                replica_sums.means_of_local_rows(),
                replica_sums.masks_of_all_rows(share.average),
                replica_sums.moments_of_all_rows(share),
                replica_sums.batch_means(share, scales),
                draws.by_row(),
                inlined_functions(),
                others,
                *(replica_sums.sum_gradients(one, share, scales) for one in optimizers),
            ]
            with contextlib.ExitStack() as stack:
                for change in changes:
                    stack.enter_context(change)
                return self.take_first(self.strategy.run(replica_step, args=arguments))

        return step

    def _measure(self) -> dict[str, Any]:
        """Return the metrics of all replicas, for an epoch that a restart finds done."""

        @tf.function(autograph=False)
        def measure() -> dict[str, Any]:
            variables = list_states(self.model)
            sums = replica_sums.add_all([tf.convert_to_tensor(variable) for variable in variables])
            with keras.StatelessScope([*zip(variables, sums, strict=True)]):
                return flatten_logs(self.model.get_metrics_result())

        return self.take_first(self.strategy.run(measure)) if self.model.metrics else {}

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


def _name_logs(logs: Any, measured: dict[str, Any], scales: Scales, share: Any) -> dict[str, Any]:
    """Return a step's logs of all replicas; `measured` are its metrics."""
    named = {}
    for name, value in flatten_logs(logs).items():
        metric = scales.metrics.get(name, name)
        metric = metric if metric in measured else name
        if name in scales.logs or metric not in measured:
            scale = scales.logs.get(name, Scale.SHARE)
            named[name] = replica_sums.all_reduce(share.weigh(tf.cast(value, tf.float32), scale))
        else:
            named[name] = measured[metric]
    return named
