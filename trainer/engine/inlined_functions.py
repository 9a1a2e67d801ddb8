"""Functions of tf.function within a step, such as a decorated train_step or call."""

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import tensorflow as tf
from tensorflow.python.autograph.core import ag_ctx
from tensorflow.python.autograph.impl import api
from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function


@contextlib.contextmanager
def inlined_functions() -> Iterator[None]:
    """Let a step that is traced in this context contain the functions that it calls.

    TensorFlow would trace them once for all steps and replicas, with the values of the first.
    """
    call = Function.__call__

    def inline(self: Any, *arguments: Any, **options: Any) -> Any:
        if tf.executing_eagerly():
            return call(self, *arguments, **options)
        status = ag_ctx.Status.ENABLED if self._autograph else ag_ctx.Status.DISABLED
        context = ag_ctx.ControlStatusCtx(status)
        return api.tf_convert(self.python_function, context)(*arguments, **options)

    with mock.patch.object(Function, "__call__", inline):
        yield
