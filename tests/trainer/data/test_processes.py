import resource
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.trainer.data.folders import content, two_classes, write
from trainer.data.write import process_pool, writer
from trainer.errors import InputError


def write_photos(folder: Path, count: int) -> Path:
    """Two classes of JPEGs of half a megabyte of pixels each."""
    generator = np.random.default_rng(count)
    for number in range(count):
        target = folder / f"class{number % 2}" / f"{number}.jpg"
        target.parent.mkdir(parents=True, exist_ok=True)
        coarse = Image.fromarray(generator.integers(0, 256, (6, 8, 3), np.uint8))
        coarse.resize((500, 375), Image.Resampling.BILINEAR).save(target)
    return folder


def page_faults_of_processes(source: Path, output: Path) -> int:
    """Return how often the system gave the writing processes a page of memory."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt
    write(source, output, image_size=224, encoding="jpeg")
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt - before


@pytest.mark.skipif(sys.platform != "linux", reason="the memory of glibc")
def test_a_process_that_writes_asks_for_no_new_memory_with_every_image(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "POOL_MIN_SECONDS", 0.0)
    monkeypatch.setattr(writer, "available_cores", lambda: 2)
    few, many = (write_photos(tmp_path / str(count), count) for count in (40, 240))
    faults = [
        page_faults_of_processes(source, tmp_path / f"out{source.name}") for source in (few, many)
    ]
    # Pillow and OpenCV hold a photo in 270 pages: 500 x 375 pixels, four bytes each, and more.
    assert (faults[1] - faults[0]) / 200 < 50


@pytest.fixture
def early(monkeypatch) -> list:
    """Processes that were started while their source was listed still."""
    monkeypatch.setattr(writer, "POOL_MIN_SECONDS", 0.0)
    monkeypatch.setattr(process_pool, "START_SECONDS", 0.0)
    monkeypatch.setattr(process_pool, "available_cores", lambda: 2)
    # List nothing here while they start.
    monkeypatch.setattr(process_pool.Processes, "ready", property(lambda one: one.count > 0))
    start, started = process_pool._start, []

    def watched(modules=()):
        connection, process = start(modules)
        assert modules, "started when the source had been listed"
        started.append(process)
        return connection, process

    monkeypatch.setattr(process_pool, "_start", watched)
    return started


def test_processes_start_in_the_middle_of_a_listing_share_its_rest_and_write_the_same_bytes(
    tmp_path, early, monkeypatch
):
    source = two_classes(tmp_path / "in", 300)
    (source / "dog" / "137.png").write_bytes((source / "cat" / "002.png").read_bytes())
    (source / "dog" / "200.png").write_bytes(b"")
    (source / "dog" / "notes.txt").write_text("what the dogs are called")
    write(source, tmp_path / "early")
    assert [process.poll() is not None for process in early] == [True, True]
    monkeypatch.setattr(process_pool, "available_cores", lambda: 1)
    monkeypatch.setattr(writer, "POOL_MIN_SECONDS", 1000.0)
    write(source, tmp_path / "alone")
    assert len(early) == 2
    assert content(tmp_path / "early") == content(tmp_path / "alone")


def test_processes_that_were_started_in_vain_end(tmp_path, early):
    source = two_classes(tmp_path / "in", 260)
    for file in (source / "dog").iterdir():
        file.write_text("not an image")
    with pytest.raises(InputError, match="260 of 520"):
        write(source, tmp_path / "out")
    assert [process.poll() is not None for process in early] == [True, True]
