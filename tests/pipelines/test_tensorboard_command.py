"""TensorBoard shows each run of this machine once."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import tensorflow as tf

from tests.pipelines.local.conftest import wait_for
from tests.pipelines.test_runs_command import leave

ROOT = Path(__file__).resolve().parents[2]


def leave_logs(name, minute):
    leave(name, minute)
    logs = Path("runs", name, "artifacts", "plan-training", "training", "logs", "train")
    with tf.summary.create_file_writer(str(logs)).as_default():
        tf.summary.scalar("loss", 0.5, step=1)
    # As a run has it.
    Path("runs", name, "tensorboard").symlink_to(logs.parent.relative_to(Path("runs", name)))


def shown(folder, *names):
    """The runs that TensorBoard's server lists; it is ended by Ctrl-C."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pipelines", "tensorboard", *names],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        lines = (re.search(r"(http://\S+)", line) for line in process.stdout)
        url = next(match[1] for match in lines if match)
        assert url.startswith("http://127.0.0.1:")

        def runs():
            with urllib.request.urlopen(f"{url}data/runs") as answer:
                return json.load(answer)

        # One loads after the other.
        found = wait_for(lambda: len(runs()) >= 3 and runs())
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=240)
        assert process.returncode == 0
        return sorted(found)
    finally:
        process.kill()
        process.communicate()


def test_tensorboard_lists_each_run_once(elsewhere, tmp_path):
    for minute, name in enumerate(["cats-1", "digits-1", "digits-2", "mnist-1"]):
        leave_logs(name, minute)
    leave("flowers-1", 9)
    Path("runs", "latest").symlink_to("mnist-1")
    found = shown(tmp_path, "latest", "digits", "digits-2")
    assert found == ["digits-1/train", "digits-2/train", "mnist-1/train"]


def test_runs_that_tensorboard_cannot_show_are_one_line(elsewhere, refused):
    leave("flowers-1", 9)
    wrong = {
        "no run in the folder runs has TensorBoard logs yet": [],
        "'digits' is neither a run nor a recipe with runs in the folder runs": ["digits"],
    }
    for message, names in wrong.items():
        assert message in refused("tensorboard", *names)
