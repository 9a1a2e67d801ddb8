import subprocess
import sys

from tests.child_processes import ROOT
from vertex.errors import RETRY_EXIT_CODE

PROGRAM = """
import threading
from trainer.engine.liveness import StepWatch

with StepWatch("worker 1", seconds=1) as watch:
    for _ in range(3):
        threading.Event().wait(0.4)
        watch.beat()
with StepWatch("worker 2", seconds=1):
    threading.Event().wait(60)
"""


def test_step_that_never_ends_is_retried():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == RETRY_EXIT_CODE
    assert done.stderr.startswith("error: a step of worker 2 has not ended in 1 s; retry the job")
