"""Build a compiled model, and all optimizers that its train_step uses, from the shapes of a batch.

On several devices a step can't create variables, and a checkpoint restores those that exist.
"""

import contextlib
import functools
from typing import Any

import keras
import tensorflow as tf

from trainer.engine.applied_optimizers import list_optimizers
from trainer.engine.batch_rows import unwrap
from trainer.engine.compile_checks import find_reason
from trainer.engine.internals import build_symbolically, replaced
from vertex.errors import InputError


def build_without_data(model: keras.Model) -> bool:
    """Build the optimizer, if that can be done without a batch; return whether all is built."""
    if model.built and type(model).train_step is keras.Model.train_step:
        if not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        return True
    return model.built and all(optimizer.built for optimizer in list_optimizers(model))


def build(model: keras.Model, specification: Any) -> None:
    """Build a model, its metrics and its optimizers for batches of a tf.data specification."""
    # Not from a batch itself, because a dataset may shuffle otherwise after an iterator was made.
    data = keras.tree.map_structure(
        lambda spec: spec if isinstance(spec, tf.TensorSpec) else None, specification
    )
    with model.distribute_strategy.scope():
        try:
            build_symbolically(model, data)
        except RuntimeError:
            # A train_step of the user's own need not call the model.
            if type(model).train_step is keras.Model.train_step:
                raise
        except ValueError as error:
            raise InputError(
                f"several replicas can't build the model {model.name!r} with training=False: "
                f"{find_reason(error)}; let its layers return the same shape as in "
                "training, and crop images, as RandomCrop does in training only, in the data's map"
            ) from error
        build_without_data(model)
    _build_optimizers(model, specification)


def _build_optimizers(model: keras.Model, specification: Any) -> None:
    """Build the optimizers that a train_step of the user's own would build in its first call."""
    strategy = model.distribute_strategy
    used: dict[keras.optimizers.Optimizer, dict[int, keras.Variable]] = {}
    with contextlib.ExitStack() as stack:
        for optimizer in list_optimizers(model):
            if not optimizer.built:
                used[optimizer] = {}
                record = functools.partial(_record, used[optimizer])
                stack.enter_context(replaced(optimizer, apply=record))
        if used:
            step = tf.function(
                lambda batch: strategy.run(model.train_step, args=(unwrap(batch),)),
                autograph=False,
            )
            step.get_concrete_function(specification)
    with strategy.scope():
        for optimizer, variables in used.items():
            optimizer.build([*variables.values()])


def _record(used: dict[int, keras.Variable], gradients: Any, variables: Any) -> None:
    """Add the variables that an optimizer's `apply` is given to `used`."""
    used.update({id(variable): variable for variable in variables})
