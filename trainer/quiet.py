"""Start TensorFlow to load SavedModels, without Keras and without its startup messages."""

import os
import sys
from pathlib import Path

_OTHER_KERAS = "TF_USE_LEGACY_KERAS"


def import_tensorflow() -> None:
    """Import TensorFlow and let it find devices; discard what it writes to standard error.

    TensorFlow imports Keras, which takes 1.5 seconds and which SavedModels do not need, unless
    the environment selects legacy Keras, which is not installed.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    given = os.environ.get(_OTHER_KERAS)
    os.environ[_OTHER_KERAS] = "1"
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        import tensorflow as tf

        tf.config.list_logical_devices()
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        if given is None:
            del os.environ[_OTHER_KERAS]
        else:
            os.environ[_OTHER_KERAS] = given
