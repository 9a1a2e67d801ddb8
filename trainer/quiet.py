"""Import TensorFlow without its startup messages, and Keras without packages that go unused."""

import os
import sys
from pathlib import Path

_LEGACY_KERAS = "TF_USE_LEGACY_KERAS"
_OPTIONAL = ("cv2", "matplotlib", "sklearn")


def import_keras() -> None:
    """Import Keras without its optional packages, as if they were not installed.

    They take a third of the time of the import, and only keras.visualization and keras.wrappers
    use them.
    """
    hidden = [name for name in _OPTIONAL if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        import keras  # noqa: F401
    finally:
        for name in hidden:
            del sys.modules[name]


def import_tensorflow() -> None:
    """Import TensorFlow and let it find devices; discard what it writes to standard error.

    TensorFlow imports Keras, which takes 1.5 seconds and which SavedModels do not need, unless
    the environment selects legacy Keras, which is not installed.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    previous = os.environ.get(_LEGACY_KERAS)
    os.environ[_LEGACY_KERAS] = "1"
    sys.stderr.flush()
    stderr = os.dup(2)
    try:
        with Path(os.devnull).open("wb") as null:
            os.dup2(null.fileno(), 2)
        import tensorflow as tf

        tf.config.list_logical_devices()
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        if previous is None:
            del os.environ[_LEGACY_KERAS]
        else:
            os.environ[_LEGACY_KERAS] = previous
