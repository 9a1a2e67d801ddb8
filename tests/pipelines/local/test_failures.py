"""The lines of a log and of a summary that are shown of a run."""

import re

import pytest

from pipelines import local_runs
from pipelines.local import failures
from pipelines.local.run_state import RunState
from pipelines.run_comparison import Value

TRACEBACK = """epoch 3 of 10
Traceback (most recent call last):
  File "/x/task.py", line 9, in main
    train()
{}
"""
NOISE = [
    "I0000 00:00:1795260141.206613 7953 port.cc:153] oneDNN custom operations are on.",
    "2026-11-21 10:00:00.123456: W tensorflow/core/x.cc:1] noise",
    "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
    "[KFP Executor 2026-11-21 10:00:00,123 INFO]: Got executor_input:",
    *("{", '    "inputs": {}', "}", ""),
]
MISTAKE = "epochs=-1 is out of range: it must be at least 1"


def log_of(folder, text):
    path = folder / "x.log"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("\n".join(["epoch 1 of 3", "\repoch 2\repoch 2 of 3", *NOISE]), "epoch 2 of 3"),
        ("x" * 5_000_000 + "\nlast line\n", "last line"),
        ("Reading \x1b[2Ja\x07b\tof 3\n", r"Reading \x1b[2Ja\x07b of 3"),
    ],
    ids=["noise", "long log", "control characters"],
)
def test_progress_is_the_last_meaningful_line(tmp_path, text, line):
    assert failures.read_progress(log_of(tmp_path, text)) == line
    assert failures.read_progress(tmp_path / "missing.log") == ""


@pytest.mark.parametrize(
    ("text", "returncode", "message"),
    [
        (f"starting\nerror: {MISTAKE}\n", 2, MISTAKE),
        (TRACEBACK.format(f"trainer.errors.InputError: {MISTAKE}"), 1, MISTAKE),
        (TRACEBACK.format("ValueError: epochs must be positive"), 1, ""),
        ("error: a peer of worker 0 is gone\n", 1, ""),
        ("error: a warning of long ago\n" + "going on\n" * 9, 2, ""),
    ],
)
def test_user_error_is_found_at_the_end_of_a_log(tmp_path, text, returncode, message):
    assert failures.find_user_error(log_of(tmp_path, text), returncode) == message


def test_last_lines_are_shown_without_the_stack(tmp_path):
    text = "".join(f"step {n}\n" for n in range(30)) + TRACEBACK.format("ValueError: no")
    lines = failures.read_last_lines(log_of(tmp_path, text))
    assert len(lines) == 20
    assert lines[-3:] == ["step 29", "epoch 3 of 10", "ValueError: no"]


def test_runtime_noise_is_left_out():
    lines = ["Reading", TRACEBACK.splitlines()[1], "    at", "No: no"]
    assert list(failures.remove_noise([*NOISE, *lines, *NOISE])) == lines


@pytest.fixture
def show(tmp_path, capsys):
    """Show a summary at the end of a run; return the lines."""

    def show(**summary):
        summary = {"state": "SUCCEEDED", "report": "", "artifacts": str(tmp_path), **summary}
        local_runs.show_end(summary, RunState({}, tmp_path / "logs"), None)
        return capsys.readouterr().out.splitlines()

    return show


def test_metric_below_1_is_not_shown_as_1(show):
    lines = show(metrics={"accuracy": 1.0, "roc_auc": 0.999997})
    assert "test set  accuracy 1.0000, roc auc 0.9999" in lines
    assert str(Value(0.99999, (0.98, 1.0))) == "0.9999 (0.98 to 1)"


def test_only_a_terminal_breaks_lines_between_words(show, monkeypatch):
    names = ("accuracy", "f1", "roc_auc", "log_loss", "expected_calibration_error")
    results = {
        "metrics": dict.fromkeys(names, 0.87654),
        "verdict": "accepted",
        "gate": {"reason": "better " * 9},
    }
    for name, value in {"FORCE_COLOR": "1", "NO_COLOR": "1", "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)
    # Without codes for bold text, which colors don't include.
    broken = [re.sub("\x1b[^m]*m", "", line) for line in show(**results)]
    assert broken[1].startswith("test set  accuracy 0.8765, f1")
    assert broken[2] == "          expected calibration error 0.8765"
    assert broken[4].startswith("          better")
    assert max(map(len, broken[:-1])) <= 80  # The last line is the run's folder, a path.
    monkeypatch.delenv("FORCE_COLOR")
    whole = show(**results)
    assert min(map(len, whole[1:3])) > 80
