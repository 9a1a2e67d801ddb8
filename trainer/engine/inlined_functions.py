"""Functions of tf.function within a step, such as a decorated train_step or call."""

import contextlib
from typing import Any

import tensorflow as tf

from trainer.engine.internals import TracedFunction, find, inline, replaced


def inlined_functions() -> contextlib.AbstractContextManager[None]:
    """Let a step that is traced in this context contain the functions that it calls.

    TensorFlow would trace them once for all steps and replicas, with the values of the first.
    """
    call = find(TracedFunction, "__call__")

    def call_inlined(self: Any, *arguments: Any, **options: Any) -> Any:
        if tf.executing_eagerly():
            return call(self, *arguments, **options)
        return inline(self)(*arguments, **options)

    return replaced(TracedFunction, __call__=call_inlined)
