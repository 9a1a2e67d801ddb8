"""Writing records of 224x224 JPEGs from photos: against the bare work, and the usual way.

`bare` runs decode, resize and encode on half of the photos in each of two processes and
writes nothing: what two cores can do. `usual` is what most code does: a tf.data map that
decodes, resizes and encodes, and one TFRecordWriter. TensorFlow 2.21 runs a plain map in
parallel by itself, older ones don't: `usual, sequential` is theirs. A command is a process
with all that it imports; the others run in this process, which has imported TensorFlow.
"""

import contextlib
import inspect
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.benchmarks.photos import write_photos
from trainer.data.record_options import RecordOptions
from trainer.data.write.pixels import PixelFormat
from trainer.data.write.process_pool import MEMORY
from trainer.data.write.writer import create_tfrecords

PHOTOS = 4000
ROUNDS = 5
SIZE = 224
MEMORY_PHOTOS = 400
"""A tenth of the photos for the memory of a small run."""


def rows() -> list[tuple[str, float, float, str]]:
    """(what, ratio, goal, figures) of speed against both, and of memory at 10x the data."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_photos(folder / "photos", PHOTOS)
        write_photos(folder / "few", MEMORY_PHOTOS)
        ways: dict[str, Callable[[], float]] = {
            "command": lambda: _timed(_command, _OURS, folder / "photos", folder),
            "usual command": lambda: _timed(_command, _theirs(), folder / "photos", folder),
            "create_tfrecords": lambda: _timed(_records, folder / "photos", folder),
            "bare": lambda: _bare(folder / "photos"),
            "usual": lambda: _timed(_usual, folder / "photos", folder),
            "usual, sequential": lambda: _timed(_usual, folder / "photos", folder, parallel=False),
            "usual, antialias": lambda: _timed(_usual, folder / "photos", folder, antialias=True),
        }
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        cores: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(ROUNDS):
            for way, run in ways.items():
                before = _core_seconds()
                seconds[way].append(run())
                cores[way].append(_core_seconds() - before)
        peaks = [peak_megabytes(_ALONE, folder / source, folder) for source in ("few", "photos")]
    speeds = {way: PHOTOS / statistics.median(taken) for way, taken in seconds.items()}

    def ratio(
        way: str, ours: str = "create_tfrecords", of: dict[str, list[float]] = seconds
    ) -> float:
        # Of neighbors in time: another load of the machine then falls on both.
        return statistics.median(a / b for a, b in zip(of[way], of[ours], strict=True))

    def figures(way: str, ours: str = "create_tfrecords") -> str:
        return f"{speeds[ours]:,.0f} / {speeds[way]:,.0f} images/s"

    return [
        ("writing records / two bare loops", ratio("bare"), 0.85, figures("bare")),
        (
            "writing records / tf.data map and one writer, whole commands",
            ratio("usual command", "command"),
            2.0,
            f"{figures('usual command', 'command')}; once TensorFlow is imported "
            f"{ratio('usual'):.2f}, {ratio('usual, antialias'):.2f} where the map filters as it "
            "shrinks (antialias)",
        ),
        (
            "core seconds of tf.data map and one writer / of writing records, whole commands",
            ratio("usual command", "command", cores),
            2.0,
            f"{statistics.median(cores['usual command']):.1f} / "
            f"{statistics.median(cores['command']):.1f} s for {PHOTOS:,} photos; once TensorFlow "
            f"is imported {ratio('usual', of=cores):.2f}",
        ),
        (
            "writing records / tf.data map, an image at a time",
            ratio("usual, sequential"),
            2.5,
            figures("usual, sequential"),
        ),
        (
            "peak memory of writing, 10x the photos",
            peaks[1] / peaks[0],
            1.1,
            f"{peaks[1]:,.0f} / {peaks[0]:,.0f} MB at {PHOTOS:,} / {MEMORY_PHOTOS:,} photos",
        ),
    ]


def _timed(function: Callable, *arguments, **options) -> float:
    started = time.perf_counter()
    function(*arguments, **options)
    return time.perf_counter() - started


def _command(code: str, *arguments: Path) -> None:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)


def _core_seconds() -> float:
    """Seconds that this process and its children that have ended kept a core busy."""
    return sum(os.times()[:4])


def _records(photos: Path, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as output:
        options = RecordOptions(source=f"images:{photos}", image_size=SIZE)
        create_tfrecords(options, output, progress=lambda line: None)


def _bare(photos: Path) -> float:
    """Seconds of the slower of two processes, each with half of the photos; starting not timed."""
    files = sorted(photos.rglob("*.jpg"))
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(2)
    with context.Manager() as manager:
        taken = manager.list()
        processes = [
            context.Process(target=_bare_loop, args=(files[half::2], start, taken))
            for half in range(2)
        ]
        with _environment(MEMORY):
            for process in processes:
                process.start()
        for process in processes:
            process.join()
        return max(taken)


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """These variables for processes that are started inside."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _bare_loop(files: list[Path], start, taken) -> None:
    spec = PixelFormat(RecordOptions(image_size=SIZE))
    start.wait()
    started = time.perf_counter()
    for file in files:
        spec.encode(spec.decode(file.read_bytes()))
    taken.append(time.perf_counter() - started)


def _usual(photos: Path, folder: Path, *, antialias: bool = False, parallel: bool = True) -> None:
    import tensorflow as tf

    def encoded(path):
        image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
        resized = tf.image.resize(image, [SIZE, SIZE], antialias=antialias)
        return tf.io.encode_jpeg(tf.cast(resized, tf.uint8))

    files = sorted(map(str, photos.rglob("*.jpg")))
    images = tf.data.Dataset.from_tensor_slices(files).map(encoded)
    if not parallel:
        options = tf.data.Options()
        options.experimental_optimization.map_parallelization = False
        images = images.with_options(options)
    with tf.io.TFRecordWriter(str(folder / "usual.tfrecord")) as writer:
        for path, image in zip(files, images, strict=True):
            label = int(path.split("/")[-2][-1])
            example = tf.train.Example()
            example.features.feature["image"].bytes_list.value.append(image.numpy())
            example.features.feature["label"].int64_list.value.append(label)
            writer.write(example.SerializeToString())


_OURS = f"""
import sys, tempfile
from trainer.data.record_options import RecordOptions
from trainer.data.write.writer import create_tfrecords
options = RecordOptions(source=f"images:{{sys.argv[1]}}", image_size={SIZE})
with tempfile.TemporaryDirectory(dir=sys.argv[2]) as output:
    create_tfrecords(options, output, progress=lambda line: None)
"""


def _theirs() -> str:
    """Return a program that imports what `_usual` needs, and nothing of this project."""
    head = f"import sys\nfrom pathlib import Path\nSIZE = {SIZE}\n"
    return f"{head}{inspect.getsource(_usual)}_usual(*map(Path, sys.argv[1:]))"


_ALONE = """
import sys
from pathlib import Path
from tests.benchmarks.records_writing import _records
from trainer.data.write import writer
writer.POOL_MIN_SECONDS = 0  # With processes for few photos, as for many.
_records(Path(sys.argv[1]), Path(sys.argv[2]))
"""


def peak_megabytes(code: str, *arguments: Path) -> float:
    """Peak of the proportional set size of a Python program with all its processes."""
    import psutil

    process = subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)])
    peak = 0
    watched = psutil.Process(process.pid)
    while process.poll() is None:
        total = 0
        try:
            for one in [watched, *watched.children(recursive=True)]:
                total += one.memory_full_info().pss
        except psutil.Error:
            continue
        peak = max(peak, total)
        time.sleep(0.01)
    assert process.returncode == 0
    return peak / 1e6
