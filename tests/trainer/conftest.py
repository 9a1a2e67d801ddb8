"""A fixture of the tests that run a task."""

import pytest


@pytest.fixture(scope="module")
def run_here():
    """Run a task in this process, which takes seconds less; return its exit code."""
    import tensorflow as tf

    from trainer import task

    with pytest.MonkeyPatch.context() as patch:
        # It would hold for all tests that follow.
        patch.setattr(tf.config.experimental, "enable_op_determinism", lambda: None)
        yield task.main
