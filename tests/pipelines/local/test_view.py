import io
import pathlib
import re
import time
import types

import pytest
from rich.console import Console

from pipelines.local.run_state import RunState, rows_of
from pipelines.run_view import LiveView, PlainView, view_of


@pytest.fixture
def run_state(tmp_path):
    names = {"create-tfrecords": "Create TFRecords", "train": "Train", "register": "Register"}
    run_state = RunState(names, tmp_path)
    run_state.set_state("create-tfrecords", "RUNNING")
    run_state.set_state("create-tfrecords", "SUCCEEDED")
    run_state.set_state("train", "RUNNING")
    return run_state


def replica(folder, role, index, text="", **changes):
    log = folder / f"{role}-{index}.log"
    log.write_text(text)
    values = {
        "role": role, "index": index, "log": log, "state": "RUNNING", "restarts": 0,
        "started": time.monotonic() - 1, "ended": 0.0,
    }  # fmt: skip
    return types.SimpleNamespace(**{**values, **changes})


@pytest.fixture
def job(tmp_path):
    chief = replica(tmp_path, "chief", 0, "epoch 3 of 10, 812 images/s\n", restarts=1)
    return types.SimpleNamespace(launched_by="train", replicas=[chief], state="RUNNING")


def drawn(run_state, job, **size):
    """Return what a terminal shows of a view drawn once, without escape codes."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, _environ={"TERM": "xterm"}, **size)
    view = view_of(lambda: rows_of(run_state, [job]), console, str(run_state.folder))
    assert isinstance(view, LiveView)
    with view:
        view.update()
        text = file.getvalue()
    return re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", text)


def test_a_terminal_gets_a_table_that_is_drawn_in_its_place(run_state, job, tmp_path):
    text = drawn(run_state, job, width=100)
    assert "Create TFRecords" in text
    assert "chief 0" in text
    assert "restart 1 of 5" in text
    assert "epoch 3 of 10, 812 images/s" in text
    assert tmp_path.parent.name in text


def test_the_end_of_a_line_stays_free_for_what_a_key_echoes(run_state, job):
    assert max(len(line.strip("\r")) for line in drawn(run_state, job, width=40).splitlines()) <= 37


EPOCH = (
    "epoch 13/20: loss 0.0057, accuracy 0.9981, validation loss 0.0390, validation accuracy "
    "0.9919 (best), 10,425 examples/s, 1:02:03 left"
)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40)])
@pytest.mark.parametrize("hours", [0, 11, 160])
def test_all_metrics_of_an_epoch_are_seen_on_a_usual_screen(
    run_state, job, tmp_path, width, height, hours
):
    started = time.monotonic() - hours * 3600
    job.replicas = [
        replica(tmp_path, "chief", 0, f"{EPOCH}\n", started=started),
        *(replica(tmp_path, "worker", n, f"worker {n} serves at 127.0.0.1:8\n") for n in range(4)),
        replica(tmp_path, "evaluator", 0, "step 188: validation loss 0.19, accuracy 0.90, 0.4 s"),
    ]
    text = drawn(run_state, job, width=width, height=height)
    assert EPOCH in " ".join(text.split())
    assert "…" not in text
    assert len(text.splitlines()) < height
    # What stands in the row's name is not said again.
    assert text.count("worker 3") == 1


def test_on_a_low_screen_each_row_has_one_line(run_state, job, tmp_path):
    workers = [replica(tmp_path, "worker", n, f"{EPOCH}\n") for n in range(5)]
    job.replicas = [replica(tmp_path, "chief", 0, f"{EPOCH}\n"), *workers]
    lines = drawn(run_state, job, width=80, height=14).splitlines()
    assert sum("epoch 13/20" in line and "…" in line for line in lines) == 6
    assert not any("examples/s" in line for line in lines)


def test_a_chief_that_has_not_said_anything_yet_tells_what_it_waits_for(run_state, job, tmp_path):
    job.replicas[0].log.write_text("")
    job.replicas[0].restarts = 0
    assert "starting: loads TensorFlow\n" in drawn(run_state, job, width=100)
    job.replicas.append(replica(tmp_path, "worker", 0))
    text = " ".join(drawn(run_state, job, width=100).split())
    assert "starting: loads TensorFlow, then waits for the other one" in text


def test_a_task_that_has_not_said_anything_yet_is_starting(run_state, job):
    lines = drawn(run_state, types.SimpleNamespace(launched_by="", replicas=[]), width=100)
    assert re.search(r"Train +[\d.:]+( s)? starting", lines)
    assert "starting" not in drawn(run_state, job, width=100)


def test_a_replica_that_was_stopped_has_not_succeeded(run_state, job, tmp_path):
    job.replicas = [
        replica(tmp_path, "chief", 0, "model exported\n", state="SUCCEEDED"),
        replica(tmp_path, "ps", 0, "ps 0 serves at 127.0.0.1:8\n", state="STOPPED"),
    ]
    lines = drawn(run_state, job, width=100).splitlines()
    (chief,) = (line for line in lines if "chief 0" in line)
    (server,) = (line for line in lines if "ps 0" in line)
    assert "✓" in chief
    assert "✓" not in server
    assert "shut down with the job" in server
    assert "serves at" not in server


def test_a_pipe_gets_a_line_a_change(run_state, job, tmp_path, monkeypatch):
    file = io.StringIO()
    with view_of(lambda: rows_of(run_state, [job]), Console(file=file, width=40), "") as view:
        assert isinstance(view, PlainView)
        for _ in range(3):
            view.update()
        pathlib.Path(job.replicas[0].log).write_text("chief 0: epoch 4 of 10\n")
        view.update()
        job.replicas[0].state = "SUCCEEDED"
        run_state.set_state("train", "FAILED")
        run_state.set_state("register", "NOT_TRIGGERED")
    lines = [line.partition("] ")[2] for line in file.getvalue().splitlines()]
    assert lines[0].startswith("Create TFRecords SUCCEEDED in")
    assert lines[1] == "Train RUNNING"
    assert lines[2] == "chief 0 RUNNING"
    # The first line of progress comes at once, the next only seconds later.
    assert lines[3].endswith("epoch 3 of 10, 812 images/s")
    assert lines[4].startswith("Train FAILED in")
    assert lines[5].startswith("chief 0 SUCCEEDED in")
    assert lines[5].endswith("restart 1 of 5  epoch 4 of 10")
    # What never ran would hide why.
    assert len(lines) == 6
