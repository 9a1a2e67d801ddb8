"""A child process ends, and is known to have ended."""

import os
import sys

import pytest

from pipelines.emulator.processes import Guardian, Process
from tests.pipelines.local.conftest import is_alive


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_error_while_a_process_ends_lets_nobody_wait_for_ever(tmp_path):
    class Broken(Guardian):
        def release(self, group):
            raise RuntimeError("not expected")

    with Broken() as guardian:
        process = Process(
            [sys.executable, "-c", "import time; time.sleep(600)"],
            environment=os.environ, log=tmp_path / "log", guardian=guardian,
        )  # fmt: skip
        process.terminate()
        assert process.finished.wait(30)
        assert process.returncode == -15
        assert not is_alive(process.pid)
