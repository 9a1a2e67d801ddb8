import io
import pathlib
import types

import pytest
from rich.console import Console

from pipelines.local.board import Board
from pipelines.local.package import PackageTask
from pipelines.local.view import LiveView, PlainView, view_of


@pytest.fixture
def board(tmp_path):
    tasks = [PackageTask("create-tfrecords", "Create TFRecords"), PackageTask("train", "Train")]
    board = Board(tasks, tmp_path)
    board.set_state("create-tfrecords", "RUNNING")
    board.set_state("create-tfrecords", "SUCCEEDED")
    board.set_state("train", "RUNNING")
    return board


@pytest.fixture
def job(tmp_path):
    (tmp_path / "chief-0.log").write_text("epoch 3 of 10, 812 images/s\n")
    replica = types.SimpleNamespace(
        role="chief", index=0, log=tmp_path / "chief-0.log", state="RUNNING",
        restarts=1, started=1.0, ended=0.0,
    )  # fmt: skip
    return types.SimpleNamespace(launched_by="train", replicas=[replica], state="RUNNING")


def test_a_terminal_gets_a_table_that_is_drawn_in_its_place(board, job):
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=100, _environ={"TERM": "xterm"})
    with view_of(board, [job], console) as view:
        assert isinstance(view, LiveView)
        view.update()
    text = file.getvalue()
    assert "Create TFRecords" in text
    assert "chief 0" in text
    assert "restart 1 of 5" in text
    assert "epoch 3 of 10, 812 images/s" in text


def test_a_pipe_gets_a_line_a_change(board, job, tmp_path, monkeypatch):
    file = io.StringIO()
    with view_of(board, [job], Console(file=file, width=40)) as view:
        assert isinstance(view, PlainView)
        for _ in range(3):
            view.update()
        pathlib.Path(job.replicas[0].log).write_text("epoch 4 of 10\n")
        view.update()
        job.replicas[0].state = "SUCCEEDED"
        board.set_state("train", "FAILED")
    lines = [line.partition("] ")[2] for line in file.getvalue().splitlines()]
    assert lines[0].startswith("Create TFRecords SUCCEEDED in")
    assert lines[1] == "Train RUNNING"
    assert lines[2] == "chief 0 RUNNING"
    # The first line of progress comes at once, the next only seconds later.
    assert lines[3].endswith("epoch 3 of 10, 812 images/s")
    assert lines[4].startswith("Train FAILED in")
    assert lines[5].startswith("chief 0 SUCCEEDED in")
    assert len(lines) == 6
