"""Compare reading records, as handed to the model, with Keras' own reader of image folders and
with the loader of the tutorials: the same JPEG records, in stored order.

All give uint8 or float32 batches of 224x224 pictures from one warm page cache; the folder
holds the pictures that the records were made of.
"""

import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from PIL import Image

from tests.benchmarks.measuring import Row, in_turns, run
from tests.benchmarks.photos import write_photos
from tests.small_records import write_records
from trainer.data.read.reader import InputShare, read_training_batches
from trainer.data.schema import Dataset, load_dataset
from trainer.process_pool import available_cores

SIZE = 224
PHOTOS = 1536
BATCH = 32
ROUNDS = 5


def rows() -> list[Row]:
    """Compare raw and JPEG records with both, and time the first batch."""
    with tempfile.TemporaryDirectory() as folder:
        photos = Path(folder) / "photos"
        write_photos(photos, PHOTOS)
        raw = _records(photos, Path(folder) / "raw", "raw")
        jpeg = _records(photos, Path(folder) / "jpeg", "jpeg")
        loaders = {
            "jpeg": lambda: _images_per_second(_ours(jpeg)),
            "tutorial": lambda: _images_per_second(_tutorial(jpeg)),
        }
        others = {
            "folder": lambda: _images_per_second(_folder(photos)),
            "raw": lambda: _images_per_second(_ours(raw)),
        }
        quiet = in_turns(others | loaders, ROUNDS)
        with _busy_cores():
            busy = in_turns(loaders, ROUNDS)
        first, tutorial_first = (
            statistics.median(_first_batch_seconds(jpeg, name) for _ in range(ROUNDS))
            for name in loaders
        )
    folder_reader, tutorial = "image_dataset_from_directory", "the tutorials' loader, unshuffled"
    return [
        _compared(f"reading raw records / {folder_reader}", quiet, ("raw", "folder"), 8.0),
        _compared(f"reading jpeg records / {folder_reader}", quiet, ("jpeg", "folder"), 3.5),
        _compared(f"reading jpeg records / {tutorial}", quiet, ("jpeg", "tutorial"), 2.0),
        _compared(
            f"the same beside a busy loop a core / {tutorial}", busy, ("jpeg", "tutorial"), 1.0
        ),
        (
            "first batch of jpeg records in a process: 0.2 s / seconds",
            0.2 / first,
            1.0,
            f"{first:.2f} s; {tutorial}: {tutorial_first:.2f} s",
        ),
    ]


def _compared(what: str, rates: dict[str, np.ndarray], names: tuple[str, str], goal: float) -> Row:
    one, other = (np.median(rates[name], axis=0) for name in names)
    speed, work = one / other
    return (
        what,
        speed,
        goal,
        f"{one[0]:,.0f} / {other[0]:,.0f} images/s; {work:.2f} by core seconds",
    )


@contextlib.contextmanager
def _busy_cores() -> Iterator[None]:
    """Keep a process busy for each core."""
    command = [sys.executable, "-c", "while True: pass"]
    loops = [subprocess.Popen(command) for _ in range(available_cores())]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def _first_batch_seconds(dataset: Dataset, name: str) -> float:
    """Return the seconds to the first batch in a process that has imported TensorFlow."""
    code = "import sys; from tests.benchmarks import reading; reading.first_batch(*sys.argv[1:])"
    return float(run(code, dataset.uri, name))


def first_batch(uri: str, name: str) -> None:
    """Print the seconds to the first batch of a loader."""
    dataset = load_dataset(uri)
    tf.constant(0)  # TensorFlow sets itself up.
    started = time.perf_counter()
    next(iter(_ours(dataset) if name == "jpeg" else _tutorial(dataset)))
    print(time.perf_counter() - started)


def _ours(dataset: Dataset) -> tf.data.Dataset:
    return read_training_batches(dataset, InputShare(batch_size=BATCH), seed=0, epoch=0)


def _tutorial(dataset: Dataset) -> tf.data.Dataset:
    """Read as https://www.tensorflow.org/tutorials/load_data/tfrecord does, and resize."""
    features = {
        "image": tf.io.FixedLenFeature([], tf.string),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }

    def decoded(serialized):
        example = tf.io.parse_single_example(serialized, features)
        image = tf.io.decode_jpeg(example["image"], channels=3)
        return tf.image.resize(image, [SIZE, SIZE]), example["label"]

    files = [dataset.shard_uri(shard) for shard in dataset.splits["train"].shards]
    examples = tf.data.TFRecordDataset(files).map(decoded, num_parallel_calls=tf.data.AUTOTUNE)
    return examples.batch(BATCH).prefetch(tf.data.AUTOTUNE)


def _folder(photos: Path) -> tf.data.Dataset:
    return keras.utils.image_dataset_from_directory(
        photos, image_size=(SIZE, SIZE), batch_size=BATCH, verbose=False
    ).prefetch(tf.data.AUTOTUNE)


def _records(photos: Path, folder: Path, encoding: str) -> Dataset:
    shards = []
    files = sorted(photos.glob("*/*.jpg"))
    classes = sorted({file.parent.name for file in files})
    for part in np.array_split(np.array(files), 8):
        images = [np.asarray(Image.open(file).resize((SIZE, SIZE))) for file in part]
        labels = np.array([classes.index(file.parent.name) for file in part])
        shards.append((np.stack(images), labels))
    return write_records(folder, {"train": shards}, classes, encoding)


def _images_per_second(batches: tf.data.Dataset) -> tuple[float, float]:
    """Return images a second, and a core second, of one pass, after the first batch."""
    iterator = iter(batches)
    next(iterator)
    started, before = time.perf_counter(), time.process_time()
    count = sum(len(batch[1]) for batch in iterator)
    return count / (time.perf_counter() - started), count / (time.process_time() - before)
