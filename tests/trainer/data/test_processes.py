"""The pool of processes that list, digest and write."""

import resource
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
from PIL import Image

from tests.refusals import refused
from tests.trainer.data.picture_folders import content, two_classes, write
from trainer import process_pool
from trainer.data.write import writer


@pytest.fixture
def started(monkeypatch, two_processes) -> list:
    """Processes that start while their source is still being listed."""
    monkeypatch.setattr(process_pool, "START_SECONDS", 0.0)
    # List nothing here while they start.
    monkeypatch.setattr(process_pool.Processes, "ready", property(lambda pool: pool.count > 0))
    start, started = process_pool.start_process, []

    def watched(modules=()):
        connection, process = start(modules)
        assert modules, "started when the source had been listed"
        started.append(process)
        return connection, process

    monkeypatch.setattr(process_pool, "start_process", watched)
    return started


def test_processes_started_while_listing_write_the_same_bytes(tmp_path, started, monkeypatch):
    source = two_classes(tmp_path / "in", 300)
    (source / "dog" / "137.png").write_bytes((source / "cat" / "002.png").read_bytes())
    (source / "dog" / "200.png").write_bytes(b"")
    (source / "dog" / "notes.txt").write_text("what the dogs are called")
    write(source, tmp_path / "early")
    assert [process.poll() is not None for process in started] == [True, True]
    monkeypatch.setattr(process_pool, "available_cores", lambda: 1)
    monkeypatch.setattr(writer, "POOL_MIN_SECONDS", 1000.0)
    write(source, tmp_path / "alone")
    assert len(started) == 2
    assert content(tmp_path / "early") == content(tmp_path / "alone")


def test_processes_end_when_the_source_is_refused(tmp_path, started):
    source = two_classes(tmp_path / "in", 260)
    for file in (source / "dog").iterdir():
        file.write_text("not an image")
    assert "260 of 520" in refused(write, source, tmp_path / "out")
    assert not content(tmp_path / "out")
    assert [process.poll() is not None for process in started] == [True, True]


def test_killed_process_is_named_and_the_others_end(photos, tmp_path, monkeypatch, two_processes):
    start = process_pool.start_process

    def start_and_kill(*modules):
        connection, process = start(*modules)
        process.kill()
        return connection, process

    monkeypatch.setattr(process_pool, "start_process", start_and_kill)
    with pytest.raises(RuntimeError, match=r"killed by SIGKILL.*run again"):
        write(photos, tmp_path / "out")
    children = [" ".join(process.cmdline()) for process in psutil.Process().children()]
    assert not [command for command in children if "process_pool" in command]


def write_photos(folder: Path, count: int) -> Path:
    """Write two classes of JPEGs of 500 x 375 pixels."""
    generator = np.random.default_rng(count)
    for number in range(count):
        target = folder / f"class{number % 2}" / f"{number}.jpg"
        target.parent.mkdir(parents=True, exist_ok=True)
        coarse = Image.fromarray(generator.integers(0, 256, (6, 8, 3), np.uint8))
        coarse.resize((500, 375), Image.Resampling.BILINEAR).save(target)
    return folder


@pytest.mark.skipif(sys.platform != "linux", reason="the memory of glibc")
def test_process_reuses_memory_from_image_to_image(tmp_path, two_processes):
    faults = []
    for count in (40, 140):
        source = write_photos(tmp_path / str(count), count)
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt
        write(source, tmp_path / f"out{count}", image_size=224, encoding="jpeg")
        faults.append(resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt - before)
    # Pillow and OpenCV hold a photo in 270 pages: 500 x 375 pixels, four bytes each, and more.
    assert (faults[1] - faults[0]) / 100 < 50
