"""Load a SavedModel by its URI, or fail with a one-line error."""

from typing import Any

import tensorflow as tf

from trainer.errors import InputError, first_line


def load(uri: str, *signatures: str) -> Any:
    """Load the SavedModel in the folder `uri`; each signature returns probabilities and a label.

    A signature is valid only while the returned model is referenced. Raise InputError if there is
    no SavedModel, or it lacks one of `signatures` or their outputs.
    """
    try:
        model = tf.saved_model.load(uri)
    except (OSError, tf.errors.OpError) as error:
        raise InputError(f"no SavedModel at {uri} ({first_line(error)}); export one") from None
    available = getattr(model, "signatures", {})
    for name in signatures:
        outputs = available[name].structured_outputs if name in available else {}
        if not {"probabilities", "label"} <= outputs.keys():
            raise InputError(
                f"the model at {uri} has no signature {name} with the outputs probabilities and "
                f"label (it has: {', '.join(available) or 'none'}); export it as "
                "trainer/training/export.py does"
            )
    return model
