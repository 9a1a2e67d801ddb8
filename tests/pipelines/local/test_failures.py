from rich.console import Console

from pipelines.local import failures, run_end
from pipelines.local.run_state import RunState
from pipelines.run_comparison import Value

TRACEBACK = """epoch 3 of 10
Traceback (most recent call last):
  File "/x/task.py", line 9, in main
    train()
{}
"""


def log_of(tmp_path, text):
    path = tmp_path / "x.log"
    path.write_text(text)
    return path


def test_progress_is_the_last_line_that_says_something(tmp_path):
    text = (
        "epoch 1 of 3\n\repoch 2\repoch 2 of 3\n"
        "I0000 00:00:1795260141.206613 7953 port.cc:153] oneDNN custom operations are on.\n"
        "2026-11-21 10:00:00.123456: W tensorflow/core/x.cc:1] noise\n"
        "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n"
        "[KFP Executor 2026-11-21 10:00:00,123 INFO]: Got executor_input:\n"
        '{\n    "inputs": {}\n}\n\n'
    )
    assert failures.progress(log_of(tmp_path, text)) == "epoch 2 of 3"
    assert failures.progress(tmp_path / "missing.log") == ""


def test_the_end_of_a_long_log_is_read_alone(tmp_path):
    path = log_of(tmp_path, "x" * 5_000_000 + "\nlast line\n")
    assert failures.progress(path) == "last line"


def test_a_mistake_of_the_user_is_found_in_either_form(tmp_path):
    message = "epochs=-1 is out of range: it must be at least 1"
    for text, returncode in (
        (f"starting\nerror: {message}\n", 2),
        (TRACEBACK.format(f"trainer.errors.InputError: {message}"), 1),
    ):
        assert failures.user_error(log_of(tmp_path, text), returncode) == message


def test_other_failures_are_no_mistake_of_the_user(tmp_path):
    text = TRACEBACK.format("ValueError: epochs must be positive")
    assert failures.user_error(log_of(tmp_path, text), 1) == ""
    gone = "error: a peer of worker 0 is gone\n"
    assert failures.user_error(log_of(tmp_path, gone), 1) == ""
    old = "error: a warning of long ago\n" + "going on\n" * 9
    assert failures.user_error(log_of(tmp_path, old), 2) == ""


def test_the_last_lines_are_shown_without_the_stack(tmp_path):
    text = "".join(f"step {n}\n" for n in range(30)) + TRACEBACK.format("ValueError: no")
    lines = failures.last_lines(log_of(tmp_path, text))
    assert len(lines) == 20
    assert lines[-3:] == ["step 29", "epoch 3 of 10", "ValueError: no"]


def test_what_rules_a_terminal_is_spelled_out(tmp_path):
    log = log_of(tmp_path, "Reading \x1b[2Ja\x07b\tof 3\n")
    assert failures.progress(log) == r"Reading \x1b[2Ja\x07b of 3"


def test_a_metric_below_1_is_not_shown_as_1(tmp_path, capsys):
    metrics = {"accuracy": 1.0, "roc_auc": 0.999997}
    summary = {"state": "SUCCEEDED", "metrics": metrics, "report": "", "artifacts": str(tmp_path)}
    run_end.show(Console(), summary, RunState({}, tmp_path / "logs"), None)
    assert "test set  accuracy 1.0000, roc auc 0.9999\n" in capsys.readouterr().out
    assert str(Value(0.99999, (0.98, 1.0))) == "0.9999 (0.98 to 1)"


def test_the_figures_are_broken_between_words_on_a_terminal_alone(tmp_path, capsys):
    names = ("accuracy", "f1", "roc_auc", "log_loss", "expected_calibration_error")
    summary = {"state": "SUCCEEDED", "metrics": dict.fromkeys(names, 0.87654), "report": ""}
    summary |= {
        "artifacts": str(tmp_path),
        "verdict": "accepted",
        "gate": {"reason": "better " * 9},
    }
    run_state = RunState({}, tmp_path / "logs")
    for terminal in (True, False):
        console = Console(force_terminal=terminal, width=80, no_color=True)
        run_end.show(console, summary, run_state, None)
    lines = capsys.readouterr().out.splitlines()
    split = lines.index("          expected calibration error 0.8765")
    assert lines[split - 1].startswith("test set  accuracy 0.8765, f1")
    assert lines[split + 2].startswith("          better")
    assert max(map(len, lines[:5])) <= 80 < min(map(len, lines[7:9]))


def test_a_log_is_shown_without_the_inputs_that_the_executor_prints(tmp_path):
    lines = [
        "[KFP Executor 2026-11-21 10:00:00,123 INFO]: Got executor_input:",
        *("{", '    "inputs": {}', "}", "Reading", TRACEBACK.splitlines()[1], "    at", "No: no"),
        "I0000 00:00:1795260141.206613 7953 port.cc:153] oneDNN custom operations are on.",
    ]
    assert list(failures.without_noise(lines)) == lines[4:8]
