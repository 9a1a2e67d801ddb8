"""Pytest's plugin of `make check`: no test of without_tensorflow.txt can import TensorFlow."""

import sys

sys.modules.update(dict.fromkeys(("tensorflow", "keras")))  # type: ignore[arg-type]
