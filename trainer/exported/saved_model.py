"""Load a SavedModel by its URI, or fail with a one-line error."""

from collections.abc import Collection
from typing import Any

import tensorflow as tf

from trainer.exported import model_files
from vertex.errors import InputError, first_line


def load(uri: str, *signatures: str, answered: Collection[str] = (), digest: str = "") -> Any:
    """Load the SavedModel in the folder `uri`; each signature returns the answers `answered`.

    A signature is valid only while the returned model is referenced. Raise InputError if there is
    no SavedModel, a file of it is damaged, or it lacks one of `signatures` or their outputs.

    Args:
        digest: digest of the registered model, as `model_files.check` expects it.
    """
    model_files.check(uri, digest)
    try:
        model = tf.saved_model.load(uri)
    except (OSError, tf.errors.OpError) as error:
        raise InputError(f"no SavedModel at {uri} ({first_line(error)}); export one") from None
    # A model without digests may be damaged, and then any error is possible.
    except Exception as error:
        raise InputError(
            f"the SavedModel at {uri} is damaged ({type(error).__name__}: {first_line(error)}); "
            "restore its files, or train the model again"
        ) from None
    available = getattr(model, "signatures", {})
    for name in signatures:
        outputs = available[name].structured_outputs if name in available else {}
        if name not in available or not outputs.keys() >= {*answered}:
            raise InputError(
                f"the model at {uri} has no signature {name} with the outputs "
                f"{' and '.join(answered)} (it has: {', '.join(available) or 'none'}); export it "
                "as trainer/exported/export.py does"
            )
    return model
