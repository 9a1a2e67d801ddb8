"""The progress of a run, live or in lines, and the lines of logs and summaries that are shown."""

import datetime
import io
import re
import time
from types import SimpleNamespace

import pytest
from rich.console import Console

from pipelines.local.run_rows import make_rows
from pipelines.runs import failures
from pipelines.runs.live_view import LiveView, PlainView, choose_view
from pipelines.runs.run import Run
from pipelines.runs.run_comparison import Value
from pipelines.runs.screens import show_results
from vertex.emulator.engine.pipeline_run import Task

EPOCH = (
    "epoch 13/20: loss 0.0057, accuracy 0.9981, validation loss 0.0390, validation accuracy "
    "0.9919 (best), 10,425 examples/s, 1:02:03 left"
)


@pytest.fixture
def tasks(tmp_path):
    names = {"create-tfrecords": "Create TFRecords", "train": "Train", "register": "Register"}
    tasks = {
        key: Task(n, None, key, key, name, {}, {}, tmp_path / f"{key}.log")
        for n, (key, name) in enumerate(names.items())
    }
    tasks["create-tfrecords"].set_state("RUNNING")
    tasks["create-tfrecords"].set_state("SUCCEEDED")
    tasks["train"].set_state("RUNNING")
    return tasks


@pytest.fixture
def replica(tmp_path):
    """Make a replica with a log."""

    def make(role, index, text="", **changes):
        log = tmp_path / f"{role}-{index}.log"
        log.write_text(text)
        started = time.time() - 1
        values = {"state": "RUNNING", "restarts": 0, "started": started, "ended": 0.0, **changes}
        return SimpleNamespace(role=role, index=index, log=log, **values)

    return make


@pytest.fixture
def job(replica):
    chief = replica("chief", 0, "epoch 3 of 10, 812 images/s\n", restarts=1)
    return SimpleNamespace(task="train", replicas=[chief], trials=[], state="RUNNING")


@pytest.fixture
def run(tasks, job, tmp_path):
    """A run whose task "train" has launched the job."""
    processes = SimpleNamespace(jobs_of=lambda task: [job] if task == job.task else [])
    steps = list(tasks.values())
    folder = tmp_path.parent
    return SimpleNamespace(steps=steps, processes=processes, folder=folder, started=time.time())


@pytest.fixture
def drawn(run):
    """Return what a terminal shows of a view drawn once, without escape codes."""

    def draw(**size):
        file = io.StringIO()
        console = Console(file=file, force_terminal=True, _environ={"TERM": "xterm"}, **size)
        with choose_view(lambda: make_rows(run), console, str(run.folder)) as view:
            assert isinstance(view, LiveView)
            view.update()
            text = file.getvalue()
        return re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", text)

    return draw


def test_terminal_shows_a_table(drawn, tmp_path):
    text = drawn(width=100)
    for word in ("Create TFRecords", "chief 0", "restart 1 of 5", "epoch 3 of 10, 812 images/s"):
        assert word in text
    assert tmp_path.parent.name in text
    # A key echoes at the end of a line.
    assert max(len(line.strip("\r")) for line in drawn(width=40).splitlines()) <= 37


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40)])
@pytest.mark.parametrize("hours", [0, 11, 160])
def test_all_metrics_of_an_epoch_fit_on_the_screen(drawn, job, replica, width, height, hours):
    job.replicas = [
        replica("chief", 0, f"{EPOCH}\n", started=time.time() - hours * 3600),
        *(replica("worker", n, f"worker {n} serves at 127.0.0.1:8\n") for n in range(4)),
        replica("evaluator", 0, "step 188: validation loss 0.19, accuracy 0.90, 0.4 s"),
    ]
    text = drawn(width=width, height=height)
    assert EPOCH in " ".join(text.split())
    assert "…" not in text
    assert len(text.splitlines()) < height
    # The line does not repeat the row's name.
    assert text.count("worker 3") == 1


def test_low_screen_shows_one_line_a_row(drawn, job, replica):
    workers = [replica("worker", n, f"{EPOCH}\n") for n in range(5)]
    job.replicas = [replica("chief", 0, f"{EPOCH}\n"), *workers]
    lines = drawn(width=80, height=14).splitlines()
    assert sum("epoch 13/20" in line and "…" in line for line in lines) == 6
    assert not any("examples/s" in line for line in lines)


def test_silent_chief_and_task_are_starting(drawn, job, replica):
    assert "starting" not in drawn(width=100)
    job.replicas = [replica("chief", 0)]
    assert "starting: loading TensorFlow\n" in drawn(width=100)
    job.replicas.append(replica("worker", 0))
    text = " ".join(drawn(width=100).split())
    assert "starting: loading TensorFlow, then waiting for the other replica" in text
    job.replicas = []
    assert re.search(r"Train +[\d.:]+( s)? starting", drawn(width=100))


def test_stopped_replica_has_no_check_mark(drawn, job, replica):
    job.replicas = [
        replica("chief", 0, "model exported\n", state="SUCCEEDED"),
        replica("ps", 0, "ps 0 serves at 127.0.0.1:8\n", state="STOPPED"),
    ]
    lines = drawn(width=100).splitlines()
    (chief,) = (line for line in lines if "chief 0" in line)
    (server,) = (line for line in lines if "ps 0" in line)
    assert "✓" in chief
    assert "✓" not in server
    assert "shut down with the job" in server
    assert "serves at" not in server


def test_pipe_gets_a_line_for_each_change(run, tasks, job):
    file = io.StringIO()
    with choose_view(lambda: make_rows(run), Console(file=file, width=40), "") as view:
        assert isinstance(view, PlainView)
        for _ in range(3):
            view.update()
        job.replicas[0].log.write_text("chief 0: epoch 4 of 10\n")
        view.update()
        job.replicas[0].state = "SUCCEEDED"
        tasks["train"].set_state("FAILED")
        tasks["register"].set_state("NOT_TRIGGERED")
    # Progress is repeated only after seconds; tasks that never ran share a line.
    assert re.sub(r"\[.*?\] | in [\d.]+ s", "", file.getvalue()).splitlines() == [
        "Create TFRecords SUCCEEDED",
        "Train RUNNING",
        "chief 0 RUNNING",
        "chief 0: restart 1 of 5  epoch 3 of 10, 812 images/s",
        "Train FAILED",
        "chief 0 SUCCEEDED: restart 1 of 5  epoch 4 of 10",
        "not run: Register",
    ]


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
        (TRACEBACK.format(f"vertex.errors.InputError: {MISTAKE}"), 1, MISTAKE),
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
def show(capsys):
    """Show the results of a run; return the lines."""

    def show(**fields):
        started = datetime.datetime.now(datetime.UTC)
        named = {"name": "digits-1", "backend": "this machine", "recipe": "digits"}
        show_results(Run(**named, state="SUCCEEDED", started=started, **fields))
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
        "reason": "better " * 9,
    }
    for name, value in {"FORCE_COLOR": "1", "NO_COLOR": "1", "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)
    # Without codes for bold text, which colors don't include.
    broken = [re.sub("\x1b[^m]*m", "", line) for line in show(**results)]
    assert broken[0].startswith("test set  accuracy 0.8765, f1")
    assert broken[1] == "          expected calibration error 0.8765"
    assert broken[3].startswith("          better")
    assert max(map(len, broken)) <= 80
    monkeypatch.delenv("FORCE_COLOR")
    whole = show(**results)
    assert min(map(len, whole[:2])) > 80
