"""TensorFlow's import without the notes on CPU and GPU that it prints at every log level."""

import os
import sys
from pathlib import Path


def import_tensorflow() -> None:
    """Import TensorFlow while what it writes to standard error goes nowhere."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        import tensorflow  # noqa: F401
    finally:
        os.dup2(kept, 2)
        os.close(kept)
