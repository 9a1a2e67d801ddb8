"""Load a SavedModel by its URI, or fail with a one-line error."""

from typing import Any

import tensorflow as tf

from trainer.errors import InputError, first_line


def load(uri: str, *signatures: str) -> Any:
    """Load the SavedModel in the folder `uri`; raise InputError if it lacks one of `signatures`.

    A signature is valid only while the returned model is referenced.
    """
    try:
        model = tf.saved_model.load(uri)
    except (OSError, tf.errors.OpError) as error:
        raise InputError(
            f"no SavedModel at {uri} ({first_line(error)}); train and export a model first"
        ) from None
    available = getattr(model, "signatures", {})
    for name in signatures:
        if name not in available:
            raise InputError(
                f"the model at {uri} has no signature {name} (it has: "
                f"{', '.join(available) or 'none'}); export it as trainer/training/export.py does"
            )
    return model
