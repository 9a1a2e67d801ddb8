import io
import pathlib
import re
import types

import pytest
from rich.console import Console

from pipelines.local.board import Board
from pipelines.local.package import PackageTask
from pipelines.local.view import LiveView, PlainView, view_of


@pytest.fixture
def board(tmp_path):
    names = {"create-tfrecords": "Create TFRecords", "train": "Train", "register": "Register"}
    tasks = [PackageTask(key, name) for key, name in names.items()]
    board = Board(tasks, tmp_path)
    board.set_state("create-tfrecords", "RUNNING")
    board.set_state("create-tfrecords", "SUCCEEDED")
    board.set_state("train", "RUNNING")
    return board


def replica(folder, role, index, text="", **changes):
    log = folder / f"{role}-{index}.log"
    log.write_text(text)
    values = {
        "role": role, "index": index, "log": log, "state": "RUNNING", "restarts": 0,
        "started": 1.0, "ended": 0.0,
    }  # fmt: skip
    return types.SimpleNamespace(**{**values, **changes})


@pytest.fixture
def job(tmp_path):
    chief = replica(tmp_path, "chief", 0, "epoch 3 of 10, 812 images/s\n", restarts=1)
    return types.SimpleNamespace(launched_by="train", replicas=[chief], state="RUNNING")


def drawn(board, job, **size):
    """What a terminal shows of a view that is drawn once, with the escape codes removed."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, _environ={"TERM": "xterm"}, **size)
    view = view_of(board, [job], console)
    assert isinstance(view, LiveView)
    with view:
        view.update()
        text = file.getvalue()
    return re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", text)


def test_a_terminal_gets_a_table_that_is_drawn_in_its_place(board, job, tmp_path):
    text = drawn(board, job, width=100)
    assert "Create TFRecords" in text
    assert "chief 0" in text
    assert "restart 1 of 5" in text
    assert "epoch 3 of 10, 812 images/s" in text
    assert tmp_path.parent.name in text


def test_the_end_of_a_line_stays_free_for_what_a_key_echoes(board, job):
    assert max(len(line.strip("\r")) for line in drawn(board, job, width=40).splitlines()) <= 37


def test_replicas_that_do_not_fit_on_the_screen_are_counted(board, job, tmp_path):
    job.replicas += [replica(tmp_path, "worker", index) for index in range(40)]
    job.replicas[7].state, job.replicas[9].restarts = "FAILED", 2
    text = drawn(board, job, width=80, height=24)
    assert re.findall(r"worker \d+", text) == ["worker 6", "worker 8"]
    assert "38 running" in text
    assert "worker 39" in drawn(board, job, width=80, height=50)


def test_a_chief_that_has_not_said_anything_yet_is_starting(board, job):
    job.replicas[0].log.write_text("")
    job.replicas[0].restarts = 0
    assert "starting" in drawn(board, job, width=100)


def test_a_pipe_gets_a_line_a_change(board, job, tmp_path, monkeypatch):
    file = io.StringIO()
    with view_of(board, [job], Console(file=file, width=40)) as view:
        assert isinstance(view, PlainView)
        for _ in range(3):
            view.update()
        pathlib.Path(job.replicas[0].log).write_text("chief 0: epoch 4 of 10\n")
        view.update()
        job.replicas[0].state = "SUCCEEDED"
        board.set_state("train", "FAILED")
        board.set_state("register", "NOT_TRIGGERED")
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
