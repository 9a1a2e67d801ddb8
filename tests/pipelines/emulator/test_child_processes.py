"""The end of a child process is always noticed."""

import os

import pytest

from pipelines.emulator.processes import Guardian, Process
from tests.pipelines.local.conftest import is_alive


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_error_at_the_end_of_a_process_leaves_no_waiter(tmp_path):
    class Broken(Guardian):
        def release(self, group):
            raise RuntimeError("not expected")

    with Broken() as guardian:
        process = Process(
            ["sleep", "600"], environment=os.environ, log=tmp_path / "log", guardian=guardian
        )
        process.terminate()
        assert process.finished.wait(30)
        assert process.returncode == -15
        assert not is_alive(process.pid)
