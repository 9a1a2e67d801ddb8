"""The private parts of Keras and TensorFlow that trainer/ uses; no other module imports one.

Each says what it is for, and which public hook would make it unnecessary. They are checked when
this module is imported: RuntimeError names those that are missing or take other arguments. What
functions that are replaced must compute is checked where they are replaced (draws.py).

`replaced` lets a function of Keras or TensorFlow do something else for one training.
"""

import contextlib
import contextvars
import functools
import inspect
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

_VERSIONS = f"Keras {keras.__version__} with TensorFlow {tf.__version__}"

try:
    # `cond`, by which an optimizer does something at some steps only, fails on several replicas.
    # Unnecessary if Keras took the branch outside of the replicas' steps.
    from keras.src import ops as optimizer_ops

    # Masks of outputs. Unnecessary if losses took masks as arguments.
    from keras.src.backend.common import masking

    # Moments of a synchronized BatchNormalization, which Keras takes for means of equal parts.
    # Unnecessary if Keras weighed replicas by their rows.
    from keras.src.backend.tensorflow import nn as normalization

    # Losses: a mean over a replica's rows, and masks of the whole batch.
    # Unnecessary if Keras had a public hook for how losses are scaled on several replicas.
    from keras.src.losses import loss as losses

    # The generator of draws without a seed, which Keras makes anew in each thread.
    # Unnecessary if keras.random took a default SeedGenerator.
    from keras.src.random import seed_generator

    # Data as `fit` takes them. Unnecessary if Keras exported what makes a tf.data.Dataset of them.
    from keras.src.trainers.data_adapters.array_slicing import train_validation_split
    from keras.src.trainers.data_adapters.generator_data_adapter import GeneratorDataAdapter
    from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter
    from keras.src.trainers.epoch_iterator import EpochIterator

    # Logs as `fit` gives them to callbacks. Unnecessary if Keras exported it.
    from keras.src.utils.python_utils import pythonify_logs

    # AutoGraph, see `inlined_functions`.
    from tensorflow.python.autograph.core.ag_ctx import ControlStatusCtx, Status
    from tensorflow.python.autograph.impl.api import tf_convert

    # Orders of a dataset: attributes of these, see `draws_order` and `is_unordered`.
    from tensorflow.python.data.ops import map_op, shuffle_op

    # The scope of strategies, see `outside_strategies`; threads of replicas, see `replaced`.
    from tensorflow.python.distribute import distribute_lib, mirrored_run

    # A dataset that workers of parameter servers read. Unnecessary if
    # create_per_worker_dataset took a dataset whose graph each worker divides.
    from tensorflow.python.distribute.coordinator.values import (
        deserialize_dataset_from_graph,
        serialize_dataset_to_graph,
    )

    # Whether the user has set a seed. Unnecessary if tf.random had a function that returns it.
    from tensorflow.python.eager.context import global_seed

    # What tf.function returns, see `inlined_functions`.
    from tensorflow.python.eager.polymorphic_function.polymorphic_function import (
        Function as TracedFunction,
    )

    # The shape that a tensor holds, as far as it is known. Unnecessary if it were exported.
    from tensorflow.python.framework.tensor_util import constant_value_as_shape

    # Random operations, which begin at a replica's rows, or are repeated in a trial.
    # Unnecessary if tf.random.stateless_* took the offset of the first element.
    from tensorflow.python.ops import gen_random_ops as random_ops
    from tensorflow.python.ops import gen_stateless_random_ops_v2 as stateless_random_ops

    # Variables of one process, see `create_here`.
    from tensorflow.python.ops.resource_variable_ops import ResourceVariable
except ImportError as error:
    raise RuntimeError(f"{_VERSIONS} lacks a part that training needs: {error}") from error

__all__ = [
    "EpochIterator",
    "GeneratorDataAdapter",
    "PyDatasetAdapter",
    "constant_value_as_shape",
    "deserialize_dataset_from_graph",
    "global_seed",
    "losses",
    "masking",
    "normalization",
    "optimizer_ops",
    "pythonify_logs",
    "random_ops",
    "seed_generator",
    "serialize_dataset_to_graph",
    "stateless_random_ops",
    "train_validation_split",
]
"""Parts that other modules use as they are, besides the functions below."""

_SIGNATURES: list[tuple[Any, str, str]] = [
    (normalization, "_compute_moments_sync", "x axes keepdims"),
    (losses, "apply_mask", "sample_weight mask dtype reduction"),
    (losses, "scale_loss_for_distribution", "value"),
    (losses, "unscale_loss_for_distribution", "value"),
    (optimizer_ops, "cond", "pred true_fn false_fn"),
    (seed_generator, "global_seed_generator", ""),
    (masking, "get_keras_mask", "x"),
    (masking, "set_keras_mask", "x mask"),
    (keras.Optimizer, "apply", "self grads trainable_variables"),
    (keras.Optimizer, "scale_loss", "self loss"),
    (keras.Optimizer, "_all_reduce_sum_gradients", "self grads_and_vars"),
    (keras.Optimizer, "_backend_apply_gradients", "self grads trainable_variables"),
    (
        keras.Optimizer,
        "_overwrite_model_variables_with_average_value",
        "self trainable_variables",
    ),
    (keras.metrics.Mean, "update_state", "self values sample_weight"),
    (keras.Variable, "_direct_assign", "self value"),
    (keras.layers.BatchNormalization, "call", "self inputs training mask"),
    (keras.Model, "_symbolic_build", "self iterator data_batch"),
    (keras.Model, "_flatten_layers", "self include_self recursive"),
    (keras.Model, "_should_eval", "self epoch validation_freq"),
    (keras.Model, "_autoconvert_optionals", "self step_func"),
    (keras.callbacks.EarlyStopping, "_set_monitor_op", "self"),
    (distribute_lib, "_push_per_thread_mode", "context"),
    (distribute_lib, "_pop_per_thread_mode", ""),
    (distribute_lib, "_get_default_replica_mode", ""),
    (mirrored_run, "_call_for_each_replica", "distribution fn args kwargs"),
    (mirrored_run, "_MirroredReplicaContext._merge_call", "self fn args kwargs"),
    (TracedFunction, "__call__", "self args kwds"),
    (EpochIterator, "_get_iterator", "self"),
    (tf.data.Dataset, "_inputs", "self"),
    (
        tf.data.Dataset,
        "_as_serialized_graph",
        "self allow_stateful strip_device_assignment external_state_policy",
    ),
    (random_ops, "random_standard_normal", "shape dtype seed seed2 name"),
    (random_ops, "truncated_normal", "shape dtype seed seed2 name"),
    (random_ops, "random_uniform", "shape dtype seed seed2 name"),
    (random_ops, "random_uniform_int", "shape minval maxval seed seed2 name"),
    *(
        (stateless_random_ops, f"stateless_random_{name}_v2", f"shape key counter alg {last} name")
        for name, last in {
            "normal": "dtype",
            "uniform": "dtype",
            "uniform_full_int": "dtype",
            "uniform_int": "minval maxval",
        }.items()
    ),
]
"""Owners, names and parameters of functions that are called or replaced."""
_ATTRIBUTES: list[tuple[Any, str, str]] = [
    (keras.Model, "compile", "_compile_loss"),
    (keras.Model, "compile", "_loss_tracker"),
    (keras.Optimizer, "build", "_trainable_variables"),
    (keras.Variable, "_initialize", "_value"),
    (keras.Optimizer, "iterations.fget", "_iterations"),
    (keras.metrics.MeanMetricWrapper, "__init__", "_fn"),
    (EpochIterator, "__iter__", "_epoch_iterator"),
    (TracedFunction, "__init__", "_autograph"),
    (shuffle_op, "_ShuffleDataset.__init__", "_reshuffle_each_iteration"),
    (map_op, "_ParallelMapDataset.__init__", "_deterministic"),
]
"""Owners and names of functions, and an attribute of objects that each uses."""


def _check() -> None:
    """Raise RuntimeError if a private part is missing, or takes other arguments."""
    wrong = []
    for owner, name, parameters in _SIGNATURES:
        function = _look_up(owner, name)
        found = " ".join(inspect.signature(function).parameters) if function else None
        if found is None:
            wrong.append(f"{owner.__name__} has no {name}")
        elif found != parameters:
            wrong.append(f"{owner.__name__}.{name} takes ({found}), not ({parameters})")
    for owner, name, attribute in _ATTRIBUTES:
        function = _look_up(owner, name)
        if not function or attribute not in inspect.unwrap(function).__code__.co_names:
            wrong.append(f"{owner.__name__}.{name} has no {attribute}")
    if wrong:
        raise RuntimeError(f"{_VERSIONS} has other parts than training needs: {'; '.join(wrong)}")


def _look_up(owner: Any, name: str) -> Any:
    """Return what `owner` has by a name with dots, or None."""
    return functools.reduce(lambda part, one: getattr(part, one, None), name.split("."), owner)


_check()

_Key = tuple[int, str]
_replacements: contextvars.ContextVar[Mapping[_Key, Callable[..., Any]]] = contextvars.ContextVar(
    "replacements", default=types.MappingProxyType({})
)
_INHERITED = object()


class _Installed(NamedTuple):
    """A function that is replaced in some thread."""

    original: Callable[..., Any]
    before: Any
    """The owner's own attribute of this name, or _INHERITED."""
    users: int


_installed: dict[_Key, _Installed] = {}
_lock = threading.Lock()


@contextlib.contextmanager
def replaced(owner: Any, /, **functions: Callable[..., Any]) -> Iterator[None]:
    """Let calls of functions, methods or properties do something else in this context.

    Only calls of this thread do, and of the threads in which tf.distribute traces the replicas of
    its steps; other threads get the original. A replacement gets it by `find`.

    Args:
        owner: a module, a class or an object.
        functions: what is called instead, with the same arguments, by the name in the owner.
    """
    changes = [*((owner, name, new) for name, new in functions.items()), *_IN_REPLICAS]
    with contextlib.ExitStack() as stack:
        for changed, called, _ in changes:
            stack.enter_context(_installed_at(changed, called))
        added = {_key(changed, called): new for changed, called, new in changes}
        token = _replacements.set({**_replacements.get(), **added})
        try:
            yield
        finally:
            _replacements.reset(token)


def find(owner: Any, name: str) -> Callable[..., Any]:
    """Return the function that a call in this thread reaches, for a replacement that calls it.

    While another thread has replaced it, getattr would return what calls the replacement.
    """
    key = _key(owner, name)
    with _lock:
        known = _installed.get(key)
        original = known.original if known else _get_function(owner, name)
    return _replacements.get().get(key, original)


def _key(owner: Any, name: str) -> _Key:
    return id(owner), name


def _get_function(owner: Any, name: str) -> Callable[..., Any]:
    found: Any = getattr(owner, name)
    return getattr(found, "fget", found)


@contextlib.contextmanager
def _installed_at(owner: Any, name: str) -> Iterator[None]:
    """Let a function call the replacement of the thread that calls it, if there is one."""
    key = _key(owner, name)
    with _lock:
        known = _installed.get(key)
        if not known:
            known = _Installed(
                _get_function(owner, name), vars(owner).get(name, _INHERITED), users=0
            )
            choose = _choose(key, known.original)
            is_property = isinstance(getattr(owner, name), property)
            setattr(owner, name, property(choose) if is_property else choose)
        _installed[key] = known._replace(users=known.users + 1)
    try:
        yield
    finally:
        with _lock:
            known = _installed.pop(key)
            if known.users > 1:
                _installed[key] = known._replace(users=known.users - 1)
            elif known.before is _INHERITED:
                delattr(owner, name)
            else:
                setattr(owner, name, known.before)


def _choose(key: _Key, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original, updated=())
    def choose(*arguments: Any, **options: Any) -> Any:
        return _replacements.get().get(key, original)(*arguments, **options)

    return choose


def _carried(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that has the replacements of this thread in whichever calls it."""
    context = contextvars.copy_context()
    return lambda *arguments, **options: context.copy().run(function, *arguments, **options)


_trace_replicas = mirrored_run._call_for_each_replica
_trace_merged = mirrored_run._MirroredReplicaContext._merge_call
_IN_REPLICAS: list[tuple[Any, str, Callable[..., Any]]] = [
    (
        mirrored_run,
        "_call_for_each_replica",
        lambda strategy, fn, args, kwargs: _trace_replicas(strategy, _carried(fn), args, kwargs),
    ),
    (
        mirrored_run._MirroredReplicaContext,
        "_merge_call",
        lambda self, fn, args, kwargs: _trace_merged(self, _carried(fn), args, kwargs),
    ),
]
"""A replica's thread and those that wait for it take each other's replacements along.

Unnecessary if tf.distribute ran its threads in the contextvars of the one that starts them.
"""


@contextlib.contextmanager
def outside_strategies() -> Iterator[None]:
    """Leave the scope of the current tf.distribute strategy, as if none had been entered.

    Unnecessary if Keras' evaluate and predict worked on several workers.
    """
    distribute_lib._push_per_thread_mode(distribute_lib._get_default_replica_mode())
    try:
        yield
    finally:
        distribute_lib._pop_per_thread_mode()


def create_here(value: Any) -> tf.Variable:
    """Return a variable of this process, also in a strategy's scope.

    Unnecessary if tf.Variable had an option for it.
    """
    return ResourceVariable(value, trainable=False)


@contextlib.contextmanager
def held_here(variables: Sequence[keras.Variable], own: Sequence[tf.Variable]) -> Iterator[None]:
    """Let variables of a strategy be this process's own in this context, and get their values.

    Unnecessary if a variable that replicas sum when it is read could be read by one process.
    """
    of_strategy = [variable._value for variable in variables]
    for variable, held in zip(variables, own, strict=True):
        held.assign(variable.numpy())
        variable._value = held
    try:
        yield
    finally:
        for variable, distributed in zip(variables, of_strategy, strict=True):
            value = variable.numpy()
            variable._value = distributed
            variable.assign(value)


def inlined_functions() -> contextlib.AbstractContextManager[None]:
    """Let a step that is traced in this context contain the functions of tf.function in it.

    TensorFlow would trace a decorated train_step or call once for all steps and replicas, with the
    values of the first. Unnecessary if tf.function had an option to be inlined where it is called.
    """
    call = find(TracedFunction, "__call__")

    def call_inlined(function: Any, *arguments: Any, **options: Any) -> Any:
        if tf.executing_eagerly():
            return call(function, *arguments, **options)
        status = Status.ENABLED if function._autograph else Status.DISABLED
        inlined = tf_convert(function.python_function, ControlStatusCtx(status))
        return inlined(*arguments, **options)

    return replaced(TracedFunction, __call__=call_inlined)


def is_of_keras(thing: Any, *parts: str) -> bool:
    """Return whether a class or function is Keras' own, of these of its modules if any are given.

    Unnecessary if layers, losses and metrics told whether they work on each row by itself.
    """
    prefixes = tuple(f"keras.src.{part}" for part in parts or ("",))
    return getattr(thing, "__module__", "").startswith(prefixes)


def get_metric_function(metric: keras.Metric) -> Callable[..., Any] | None:
    """Return the function of which a metric is the mean, if it is one.

    Unnecessary if metrics said whether they work on each row by itself.
    """
    return getattr(metric, "_fn", None)


def next_batch(iterator: EpochIterator) -> Any:
    """Return the next batch of an epoch. Unnecessary if EpochIterator were an iterator."""
    return next(iterator._epoch_iterator)


def build_symbolically(model: keras.Model, batch: Any) -> None:
    """Build a model, its losses and metrics for a batch of KerasTensors or tf.TensorSpecs.

    Unnecessary if compiled losses and metrics had a public build.
    """
    model._symbolic_build(data_batch=batch)


def list_layers(model: keras.Model) -> list[keras.Layer]:
    """Return a model and all layers in it. Unnecessary if `model.layers` had those of layers."""
    return model._flatten_layers()


def has_loss(model: keras.Model) -> bool:
    """Return whether `compile` was given a loss. Unnecessary if there were a property of it."""
    return model._compile_loss is not None


def get_loss_tracker(model: keras.Model) -> keras.Metric:
    """Return the metric of the loss, which each `compile` makes anew.

    Unnecessary if train_step took the tracker from `metrics`.
    """
    return model._loss_tracker


def validates_after(model: keras.Model, epoch: int, frequency: Any) -> bool:
    """Return whether `fit` validates after an epoch, from 0. Unnecessary if it were exported."""
    return model._should_eval(epoch, frequency)


def convert_optionals(model: keras.Model, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a step for batches with tf.experimental.Optional as fit calls it, with None instead.

    Unnecessary if train_step took them.
    """
    return model._autoconvert_optionals(step)


def set_monitor(callback: keras.callbacks.Callback) -> None:
    """Let a callback that compares values know how, before its first epoch ends.

    Unnecessary if it did so in on_train_begin.
    """
    if getattr(callback, "monitor_op", False) is None:
        callback._set_monitor_op()


def get_count(optimizer: keras.Optimizer) -> keras.Variable:
    """Return an optimizer's count of steps, also of those that only accumulate gradients.

    Unnecessary if `iterations` were this one.
    """
    return optimizer._iterations


def overwrite_with_averages(optimizer: keras.Optimizer) -> None:
    """Overwrite the weights with their averages. Unnecessary with a public method for it."""
    optimizer._overwrite_model_variables_with_average_value(optimizer._trainable_variables)


def get_variable_type(handle: tf.Tensor) -> tf.DType | None:
    """Return the type of the variable that a handle refers to, None if it is of none.

    Unnecessary if a FuncGraph listed the variables that it captures by handle.
    """
    data = getattr(handle, "_handle_data", None)
    if handle.dtype != tf.resource or data is None or not data.shape_and_type:
        return None
    return tf.as_dtype(data.shape_and_type[0].dtype)


def list_sources(dataset: tf.data.Dataset) -> list[tf.data.Dataset]:
    """Return the datasets from which one is made. Unnecessary if tf.data listed them."""
    return dataset._inputs()


def draws_order(dataset: tf.data.Dataset) -> bool:
    """Return whether each iterator of a dataset shuffles anew. Unnecessary if tf.data told it."""
    return bool(getattr(dataset, "_reshuffle_each_iteration", False))


def is_unordered(dataset: tf.data.Dataset) -> bool:
    """Return whether a dataset was made with deterministic=False, other than by its options.

    Unnecessary if tf.data told it.
    """
    return getattr(dataset, "_deterministic", None) == "false"


def list_read(dataset: tf.data.Dataset) -> list[tf.Variable]:
    """Return the variables that the functions of a dataset use. Unnecessary if tf.data told it."""
    functions = dataset._functions()
    return [variable for one in functions for variable in one.function.graph.variables]


def get_graph(dataset: tf.data.Dataset) -> tf.compat.v1.GraphDef:
    """Return a dataset's graph. Unnecessary if tf.data told whether an interleave is ordered."""
    return tf.compat.v1.GraphDef.FromString(dataset._as_serialized_graph().numpy())
