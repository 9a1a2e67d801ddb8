"""Compare writing records of 224x224 JPEGs from photos with the bare work, and the usual way.

`bare` runs decode, resize and encode on half of the photos in each of two processes and
writes nothing: what two cores can do. `usual` is what most code does: a tf.data map that
decodes, resizes and encodes, and one TFRecordWriter. A command is a process with all that it
imports; the others run in this process, which has imported TensorFlow.
"""

import inspect
import multiprocessing
import os
import tempfile
import time
from pathlib import Path
from unittest import mock

import numpy as np

from tests.benchmarks.measuring import Row, in_turns, median_ratio, peak_megabytes, run, timed
from tests.benchmarks.photos import write_photos
from trainer.data.images.pixels import PixelFormat
from trainer.data.write.record_options import RecordOptions
from trainer.data.write.writer import create_tfrecords
from trainer.process_pool import MEMORY

PHOTOS = 4000
ROUNDS = 5
SIZE = 224
MEMORY_PHOTOS = 400
"""A tenth of the photos for the memory of a small run."""


def rows() -> list[Row]:
    """Compare speed with both, and memory at 10x the photos."""
    with tempfile.TemporaryDirectory() as name:
        folder, photos, few = Path(name), Path(name, "photos"), Path(name, "few")
        write_photos(photos, PHOTOS)
        write_photos(few, MEMORY_PHOTOS)
        ways = {
            "command": lambda: timed(run, _OURS, photos, folder),
            "usual command": lambda: timed(run, _theirs(), photos, folder),
            "create_tfrecords": lambda: timed(_records, photos, folder),
            "bare": lambda: (_bare(photos), np.nan),
            "usual": lambda: timed(_usual, photos, folder),
        }
        found = in_turns(ways, ROUNDS)
        small, large = (peak_megabytes(_ALONE, source, folder) for source in (few, photos))
    medians = {way: np.median(each, axis=0) for way, each in found.items()}

    def ratios(way, ours="create_tfrecords"):
        return median_ratio(found[way], found[ours])

    def figures(way, ours="create_tfrecords"):
        return f"{PHOTOS / medians[ours][0]:,.0f} / {PHOTOS / medians[way][0]:,.0f} images/s"

    speed, work = ratios("usual command", "command")
    peaks = f"{large:,.0f} / {small:,.0f} MB at {PHOTOS:,} / {MEMORY_PHOTOS:,} photos"
    imported, imported_work = ratios("usual")
    return [
        ("writing records / two bare loops", ratios("bare")[0], 0.85, figures("bare")),
        (
            "writing records / tf.data map and one writer, whole commands",
            speed,
            2.0,
            f"{figures('usual command', 'command')}; once TensorFlow is imported {imported:.2f}",
        ),
        (
            "core seconds of tf.data map and one writer / of writing records, whole commands",
            work,
            2.0,
            f"{medians['usual command'][1]:.1f} / {medians['command'][1]:.1f} s for {PHOTOS:,} "
            f"photos; once TensorFlow is imported {imported_work:.2f}",
        ),
        ("peak memory of writing, 10x the photos", large / small, 1.1, peaks),
    ]


def _records(photos: Path, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as output:
        options = RecordOptions(source=f"images:{photos}", image_size=SIZE)
        create_tfrecords(options, output, progress=lambda line: None)


def _bare(photos: Path) -> float:
    """Return the seconds of the slower of two processes, each with half of the photos."""
    files = sorted(photos.rglob("*.jpg"))
    context = multiprocessing.get_context("spawn")
    start, taken = context.Barrier(2), context.SimpleQueue()
    halves = [(files[half::2], start, taken) for half in range(2)]
    processes = [context.Process(target=_bare_loop, args=half) for half in halves]
    with mock.patch.dict(os.environ, MEMORY):
        for process in processes:
            process.start()
    for process in processes:
        process.join()
    return max(taken.get(), taken.get())


def _bare_loop(files: list[Path], start, taken) -> None:
    spec = PixelFormat(RecordOptions(image_size=SIZE))
    start.wait()
    started = time.perf_counter()
    for file in files:
        spec.encode(spec.decode(file.read_bytes()))
    taken.put(time.perf_counter() - started)


def _usual(photos: Path, folder: Path) -> None:
    import tensorflow as tf

    def encoded(path):
        image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
        resized = tf.image.resize(image, [SIZE, SIZE])
        return tf.io.encode_jpeg(tf.cast(resized, tf.uint8))

    files = sorted(map(str, photos.rglob("*.jpg")))
    images = tf.data.Dataset.from_tensor_slices(files).map(encoded)
    with tf.io.TFRecordWriter(str(folder / "usual.tfrecord")) as writer:
        for path, image in zip(files, images, strict=True):
            label = int(path.split("/")[-2][-1])
            example = tf.train.Example()
            example.features.feature["image"].bytes_list.value.append(image.numpy())
            example.features.feature["label"].int64_list.value.append(label)
            writer.write(example.SerializeToString())


_HEAD = f"import sys\nfrom pathlib import Path\nSIZE = {SIZE}\n"


def _theirs() -> str:
    """Return a program that imports what `_usual` needs, and nothing of this project."""
    return f"{_HEAD}{inspect.getsource(_usual)}_usual(*map(Path, sys.argv[1:]))"


_OURS = f"""{_HEAD}import tempfile
from trainer.data.write.record_options import RecordOptions
from trainer.data.write.writer import create_tfrecords
{inspect.getsource(_records)}_records(*map(Path, sys.argv[1:]))"""

_ALONE = """
import sys
from pathlib import Path
from tests.benchmarks.records_writing import _records
from trainer.data.write import writer
writer.POOL_MIN_SECONDS = 0  # With processes for few photos, as for many.
_records(*map(Path, sys.argv[1:]))
"""
