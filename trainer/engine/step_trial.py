"""Try a step on a few rows, whole and cut in two, to find how replicas' values add up.

A replica computes a step of its rows. The values of the whole batch are those of the replicas, each
times the replica's share of the rows, if they are means over rows; they are the sums if the step
divides by the global batch size itself, as TensorFlow's guide to custom training says. What is
neither, such as a contrastive loss, several replicas can't compute from their rows alone.

The trial is not needed for models that consist of Keras' layers, losses and metrics alone.
"""

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainer.engine.applied_optimizers import list_inner, list_optimizers
from trainer.engine.batch_rows import count_rows, slice_rows
from trainer.engine.compile_checks import is_plain as has_plain_steps
from trainer.engine.compile_checks import list_metrics, list_states
from trainer.engine.internals import get_count, is_of_keras, list_layers
from trainer.engine.metric_states import MetricStates
from trainer.engine.scales import Scale, Scales
from trainer.engine.trial_passes import GRADIENT, PARTS, SCALED, Pass, PassResult
from vertex.errors import InputError

ROWS_TRIED = 32
"""Rows of the first batch with which a step is tried; as many as a replica's, if those are more."""
_CPU_TOLERANCE, _GPU_TOLERANCE, _HALF_TOLERANCE = 1e-4, 1e-3, 0.05
"""Relative errors that are rounding; the last one in 16 bits."""
_STEPS = 1000
"""Steps that a model seems to have trained in a trial."""
_ATTEMPTS = 6
"""Weights with which a model is tried while they leave a value 0."""
_COMPARED = (
    "as when rows are compared with each other, or divided by their number or a mask's; give "
    "trainer.fit gather_batch=True, make it a mean over rows, mask by mask_zero=True of an "
    "Embedding or ignore_class of keras.losses.SparseCategoricalCrossentropy, which count "
    "the valid entries of the whole batch"
)
_METRIC = "as when it divides by a mask's sum; let a keras.metrics.Metric keep sums over rows"
_FACTOR = 1e4
"""Factor of gradients with which a limit is reached, to which a step may clip them."""
_BATCHWISE = {"circle", "dice", "tversky"}
"""Keras' losses that are no means over rows."""
_MIXING = ("layers.preprocessing.", "layers.core.lambda_layer")
"""Modules of Keras' layers that may mix the rows of a batch."""
_OF_ROWS = (keras.layers.Normalization, keras.layers.Rescaling)
"""Layers of these modules that don't."""
_BATCH_LAYERS = (
    keras.layers.AugMix,
    keras.layers.CutMix,
    keras.layers.Equalization,
    keras.layers.MixUp,
    keras.layers.RandAugment,
    keras.layers.RandomElasticTransform,
)
"""Keras' layers of images that draw for a batch, mix its images, or use their common histogram."""


def is_trial_needed(model: keras.Model) -> bool:
    """Return whether a model may compute what is not a mean over the rows of a batch."""
    if not has_plain_steps(model) or type(model).compute_loss is not keras.Model.compute_loss:
        return True
    layers = list_layers(model)
    operations = [operation for layer in layers for operation in getattr(layer, "operations", ())]
    if any(not isinstance(operation, keras.Layer) for operation in operations):
        return True
    if not all(_is_of_rows(layer) for layer in layers):
        return True
    return not all(_is_mean(loss) for loss in tf.nest.flatten(model.loss) if loss is not None)


def _is_of_rows(layer: keras.Layer) -> bool:
    functions = [getattr(layer, name, None) for name in ("activation", "activity_regularizer")]
    return (
        is_of_keras(type(layer))
        and not getattr(layer, "stateful", False)  # States of so many rows.
        and (isinstance(layer, _OF_ROWS) or not is_of_keras(type(layer), *_MIXING))
        and all(is_of_keras(function) for function in functions if function is not None)
    )


def _is_mean(loss: Any) -> bool:
    if isinstance(loss, str):
        loss = keras.losses.get(loss)
    if isinstance(loss, keras.losses.Loss):
        loss = getattr(loss, "fn", type(loss))
    return is_of_keras(loss) and loss.__name__ not in _BATCHWISE


def find_scales(
    model: keras.Model,
    function: Callable[[Any], Any],
    states: MetricStates,
    rows: Any,
    *,
    is_plain: bool,
) -> Scales:
    """Return how the values of a step add up; raise InputError for a step that rows can't divide.

    Call this in `trained_for_long`. `rows` are a batch of two rows or more; for the other
    arguments, see `Step`.
    """
    for layer in list_layers(model):
        if isinstance(layer, _BATCH_LAYERS):
            raise InputError(
                f"the layer {layer.name!r} changes images by draws for a whole batch, or by its "
                "other images, which several replicas would do differently; call it in the data's "
                "map, or train on one replica"
            )
    number = int(count_rows(rows))
    whole_pass, part_pass = (
        Pass(model, function, states, rows, is_whole=is_whole, is_plain=is_plain)
        for is_whole in (True, False)
    )
    whole = whole_pass.run(rows)
    places = {1, number // 4, number // 2, number * 3 // 4, number - 1} - {0, number}
    tolerance = _find_tolerance(model)
    constant = {("values", index) for index in whole_pass.recorded.constants}
    changed = whole_pass.recorded.states

    def run(factor: float = 1.0, rows: Any = rows) -> _Attempt:
        whole = whole_pass.run(rows, factor=factor)
        cuts = [
            [
                (
                    part_pass.run(
                        slice_rows(rows, begin, end), begin, factor=factor, known=whole.known
                    ),
                    (end - begin) / number,
                )
                for begin, end in ((0, cut), (cut, number))
            ]
            for cut in sorted(places)
        ]
        return _Attempt(whole, cuts, tolerance)

    def refuse(reason: str) -> InputError:
        return InputError(
            f"several replicas can't compute {function.__name__} of the model {model.name!r}: "
            f"{reason}, or train on one replica"
        )

    def refuse_value(name: str, remedy: str) -> InputError:
        return refuse(
            f"{name} of {number} rows is neither the mean nor the sum of those of two parts of "
            f"them, {remedy}"
        )

    attempts = [run()]
    for seed in range(_ATTEMPTS):
        if not _find_zeros(attempts, changed) - constant:
            break
        with _other_weights(model, seed):
            attempts.append(run())
    if _find_zeros(attempts, changed) - constant:
        attempts.append(run(rows=_change_labels(rows)))
    zeros = _find_zeros(attempts, changed) - constant

    def fits(scale: Scale, kind: str, key: Any) -> bool:
        return all(attempt.adds_up(scale, kind, key) for attempt in attempts)

    def find(kind: str, key: Any) -> Scale | None:
        return next((one for one in Scale if fits(one, kind, key)), None)

    scales = Scales()
    scaled: Scale | None = None  # That of the last loss that an optimizer scales.
    names = whole_pass.recorded.names
    for index, name in enumerate(names):
        scale = find("values", index)
        if scaled and name.startswith(GRADIENT) and fits(scaled, "values", index):
            scale = scaled  # Several may fit gradients that are 0.
        elif scaled and name.startswith(GRADIENT):
            scale = None
        if scale is None:
            raise refuse_value(name, _METRIC if name.startswith("the metric") else _COMPARED)
        if ("values", index) in zeros:
            raise refuse(
                f"{name} is 0 or NaN for the first {number} rows, whatever the weights, so that "
                "it can't be tried; begin with other rows, leave it out"
            )
        scales.values.append(scale)
        scaled = scale if name.startswith(SCALED) else scaled
    if scaled:
        unscaled = whole_pass.run(rows, loss_factor=0.0)
        for name, value in zip(names, unscaled.values, strict=True):
            if name.startswith(GRADIENT) and _is_shown(value):
                raise refuse(
                    f"{name} is not only that of a loss that optimizer.scale_loss returns; compute "
                    "it by the tape of the scaled loss alone"
                )
    if whole_pass.recorded.has_changed_gradients:
        larger = run(_FACTOR)
        for index, (name, scale) in enumerate(zip(names, scales.values, strict=True)):
            if name.startswith(GRADIENT) and not larger.adds_up(scale, "values", index):
                raise refuse_value(
                    f"{name}, if it is {_FACTOR:.0f} times as large,",
                    "as when it is clipped; let the optimizer do that, by clipnorm or clipvalue",
                )
    before, after = (part_pass.run(rows, known=whole.known + more).logs for more in (0.0, 1.0))
    for name in whole.logs:
        scale = find("logs", name)
        is_measured = bool(np.any(before[name] != after[name]))
        if scale is None or (("logs", name) in zeros and not is_measured):
            warnings.warn(
                f"the log {name!r} of {function.__name__} is not a mean over rows, or 0 for the "
                f"first {number}: the mean of the replicas' values is shown",
                stacklevel=2,
            )
        scales.logs[name] = scale or Scale.SHARE
    for attempt in attempts:
        for parts in attempt.cuts:
            results = [result for result, _ in parts]
            of_parts = [result.states for result in results]
            check_states(model, list_metrics(model), attempt.whole.states, of_parts)
            _check_assigned(model, function, attempt.whole, results, tolerance)
    return scales


@contextlib.contextmanager
def trained_for_long(model: keras.Model) -> Iterator[None]:
    """Let a model have no zeros that hide what its step compares later.

    A new layer's outputs may all be 0, and so may the weight of a loss that rises with the steps.
    """
    optimizers = list_optimizers(model)
    counts = [get_count(one) for outer in optimizers for one in (outer, *list_inner(outer))]
    zeros = [
        weight for weight in model.weights if "float" in weight.dtype and not np.any(weight.numpy())
    ]
    with _restored([*counts, *zeros]):
        for count in counts:
            count.assign(count.numpy() + _STEPS)
        for weight in zeros:
            places = np.arange(np.prod(weight.shape)).reshape(weight.shape)
            weight.assign(0.01 * (1.5 + np.cos(places)))
        yield


@contextlib.contextmanager
def _restored(variables: Sequence[keras.Variable]) -> Iterator[None]:
    """Restore the values of variables that change in this context."""
    before = [variable.numpy() for variable in variables]
    try:
        yield
    finally:
        for variable, value in zip(variables, before, strict=True):
            variable.assign(value)


@dataclasses.dataclass(frozen=True)
class _Attempt:
    """The results of a step of some rows, and of two parts of them, with the parts' shares."""

    whole: PassResult
    cuts: list[list[tuple[PassResult, float]]]
    tolerance: float

    def adds_up(self, scale: Scale, kind: str, key: Any) -> bool:
        expected = getattr(self.whole, kind)[key]
        for parts in self.cuts:
            terms = [
                getattr(part, kind)[key] * np.array(scale.factor(share, PARTS))
                for part, share in parts
            ]
            # Terms may cancel each other, as gradients do near a minimum.
            largest = max(np.max(np.abs(term), initial=0) for term in terms)
            rounding = self.tolerance * largest + 1e-12
            if not _is_close(sum(terms), expected, self.tolerance, rounding):
                return False
        return True


def _find_zeros(attempts: list[_Attempt], changed: list[int]) -> set[tuple[str, Any]]:
    """Return the kinds and keys of the values that all attempts have left 0, or no number."""
    zeros: set[tuple[str, Any]] = set()
    results = [result for one in attempts for result in (one.whole, *(c[0][0] for c in one.cuts))]
    whole = attempts[0].whole
    for kind, keys in (
        ("values", range(len(whole.values))),
        ("logs", whole.logs),
        ("states", changed),
    ):
        for key in keys:
            if not any(_is_shown(getattr(one, kind)[key]) for one in results):
                zeros.add((kind, key))
    return zeros


def _is_shown(value: np.ndarray) -> bool:
    return bool(np.any(value[np.isfinite(value)]))


@contextlib.contextmanager
def _other_weights(model: keras.Model, seed: int) -> Iterator[None]:
    """Let a model have random weights, larger for a larger seed: a value may differ from 0."""
    generator = np.random.default_rng(seed)
    with _restored(model.trainable_weights):
        for weight in model.trainable_weights:
            value = weight.numpy()
            spread = (np.std(value.astype(np.float32)) + 0.1) * 2**seed
            weight.assign(value + generator.normal(0, spread, value.shape).astype(value.dtype))
        yield


def _change_labels(rows: Any) -> Any:
    """Return a batch with other labels, if they are numbers: the loss of right answers may be 0."""

    def change(part: Any) -> Any:
        if not tf.is_tensor(part) or not part.dtype.is_floating:
            return part
        places = tf.reshape(tf.range(tf.size(part), dtype=tf.float32), tf.shape(part))
        return part + tf.cast(0.1 * (1.5 + tf.cos(places)), part.dtype)

    if not isinstance(rows, tuple) or len(rows) < 2:
        return rows
    return (rows[0], keras.tree.map_structure(change, rows[1]), *rows[2:])


def _find_tolerance(model: keras.Model) -> float:
    if any("16" in layer.compute_dtype for layer in list_layers(model)):
        return _HALF_TOLERANCE
    return _GPU_TOLERANCE if tf.config.list_logical_devices("GPU") else _CPU_TOLERANCE


def check_states(
    model: keras.Model,
    metrics: Sequence[keras.Metric],
    whole: Sequence[Any],
    parts: Sequence[Sequence[Any]],
) -> None:
    """Raise InputError for metrics whose states are no sums over rows.

    Args:
        metrics: the metrics to check.
        whole: what a batch adds to each of `list_states(model)`.
        parts: the same for parts of the batch.
    """
    names = {id(variable): metric.name for metric in metrics for variable in metric.variables}
    for variable, change, *of_parts in zip(list_states(model), whole, *parts, strict=True):
        is_sum = _is_close(sum(of_parts), change, _find_tolerance(model))
        if id(variable) in names and not is_sum:
            raise InputError(
                f"the metric {names[id(variable)]!r} can't be computed by several replicas, "
                "because its state over two parts of a batch does not add up to that over the "
                "batch; leave it out, or keep sums over rows in its variables"
            )


def _check_assigned(
    model: keras.Model,
    function: Callable[[Any], Any],
    whole: PassResult,
    parts: list[PassResult],
    tolerance: float,
) -> None:
    """Raise InputError for variables that do not end the same if replicas compute a step."""
    for key, begin in whole.begin.items():
        if not (begin.dtype.is_floating or begin.dtype.is_integer):
            continue
        start = np.array(begin, np.float64)
        changes = [result.change(key) for result in (whole, *parts)]
        rounding = 1e-6 * np.max(np.abs(start), initial=0) * begin.dtype.is_floating
        if not all(_is_close(one, changes[0], tolerance, rounding) for one in changes[1:]):
            raise InputError(
                f"{function.__name__} of the model {model.name!r} assigns from its rows to a "
                f"variable of shape {begin.shape.as_list()}, which several replicas would do "
                "differently; let an optimizer or a metric update it (an optimizer accumulates "
                "gradients by gradient_accumulation_steps), or train on one replica"
            )


def _is_close(found: Any, expected: Any, tolerance: float, rounding: float = 1e-12) -> bool:
    """Return whether values equal others, relative to the largest in the last axis."""
    if not np.all(np.isfinite(expected)):
        return True  # One process would not get a number, either.
    size = np.max(np.abs(expected), axis=-1, keepdims=True) if np.ndim(expected) else expected
    least = 1e-6 * np.max(np.abs(expected), initial=0) + rounding
    return bool(np.all(np.abs(found - expected) <= tolerance * np.abs(size) + least))
