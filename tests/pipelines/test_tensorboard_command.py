"""The command tensorboard shows each run of this machine once."""

import json
import re
import signal
import subprocess
import urllib.request
from pathlib import Path

import tensorflow as tf

from tests.pipelines.conftest import started
from tests.pipelines.local.conftest import wait_for
from tests.pipelines.test_runs_command import leave


def leave_logs(name, minute):
    leave(name, minute)
    logs = Path("runs", name, "artifacts", "plan-training", "training", "logs", "train")
    with tf.summary.create_file_writer(str(logs)).as_default():
        tf.summary.scalar("loss", 0.5, step=1)
    # Each run has this link.
    Path("runs", name, "tensorboard").symlink_to(logs.parent.relative_to(Path("runs", name)))


def shown(*names):
    """Return the runs that TensorBoard's server lists; end it by Ctrl-C."""
    with started("tensorboard", *names, stderr=subprocess.STDOUT) as process:
        lines = (re.search(r"(http://\S+)", line) for line in process.stdout)
        url = next(match[1] for match in lines if match)
        assert url.startswith("http://127.0.0.1:")

        def runs():
            with urllib.request.urlopen(f"{url}data/runs") as answer:
                return json.load(answer)

        # TensorBoard loads one after the other.
        run_names = wait_for(lambda: len(runs()) >= 3 and runs())
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 0
        return sorted(run_names)


def test_tensorboard_lists_each_run_once(elsewhere):
    for minute, name in enumerate(["cats-1", "digits-1", "digits-2", "mnist-1"]):
        leave_logs(name, minute)
    leave("flowers-1", 9)
    Path("runs", "latest").symlink_to("mnist-1")
    names = shown("latest", "digits", "digits-2")
    assert names == ["digits-1/train", "digits-2/train", "mnist-1/train"]


def test_unknown_run_is_refused(elsewhere, refused):
    leave("flowers-1", 9)
    assert "no run in the folder runs has TensorBoard logs yet" in refused("tensorboard")
    error = refused("tensorboard", "digits")
    assert "'digits' is neither a run nor a recipe with runs in the folder runs" in error
