"""Reading records, as handed to the model, against Keras' own reader of image folders and
against the loader of the tutorials: the same JPEG records, in stored order.

All give uint8 or float32 batches of 224x224 pictures from one warm page cache; the folder
holds the pictures that the records were made of.
"""

import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from PIL import Image

from tests.benchmarks.photos import write_photos
from tests.records import write_records
from trainer.data.read.reader import InputShare, training_batches
from trainer.data.schema import Dataset, load
from trainer.data.write.process_pool import available_cores

SIZE = 224
PHOTOS = 1536
BATCH = 32
ROUNDS = 5


def rows() -> list[tuple[str, float, float, str]]:
    """(what, ratio, goal, figures) of raw and of JPEG records."""
    with tempfile.TemporaryDirectory() as folder:
        photos = Path(folder) / "photos"
        write_photos(photos, PHOTOS)
        raw = _records(photos, Path(folder) / "raw", "raw")
        jpeg = _records(photos, Path(folder) / "jpeg", "jpeg")
        loaders: dict[str, Callable[[], tf.data.Dataset]] = {
            "jpeg": lambda: _ours(jpeg),
            "tutorial": lambda: _tutorial(jpeg),
        }
        quiet = _rates(
            {
                "folder": lambda: _folder(photos),
                "raw": lambda: _ours(raw),
                **loaders,
            }
        )
        with _busy_cores():
            busy = _rates(loaders)
        first = {
            name: statistics.median(_first_batch_seconds(jpeg, name) for _ in range(ROUNDS))
            for name in loaders
        }
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
            0.2 / first["jpeg"],
            1.0,
            f"{first['jpeg']:.2f} s; {tutorial}: {first['tutorial']:.2f} s",
        ),
    ]


def _rates(ways: dict[str, Callable[[], tf.data.Dataset]]) -> dict[str, np.ndarray]:
    """Images a second, and a core second, of each way, taken in turns; [rounds, 2]."""
    rates: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            rates[name].append(_images_per_second(way()))
    return {name: np.array(found) for name, found in rates.items()}


def _compared(
    what: str, rates: dict[str, np.ndarray], names: tuple[str, str], goal: float
) -> tuple[str, float, float, str]:
    one, other = (np.median(rates[name], axis=0) for name in names)
    speed, work = one / other
    figures = f"{one[0]:,.0f} / {other[0]:,.0f} images/s; {work:.2f} by core seconds"
    return what, speed, goal, figures


@contextlib.contextmanager
def _busy_cores() -> Iterator[None]:
    """Keeps a process busy for each core."""
    loops = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(available_cores())
    ]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def _first_batch_seconds(dataset: Dataset, name: str) -> float:
    """Seconds to the first batch in a process that has imported TensorFlow."""
    code = f"from tests.benchmarks import reading; reading.first_batch({dataset.uri!r}, {name!r})"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return float(done.stdout.splitlines()[-1])


def first_batch(uri: str, name: str) -> None:
    """Prints the seconds to the first batch of a loader."""
    dataset = load(uri)
    tf.constant(0)  # TensorFlow sets itself up.
    started = time.perf_counter()
    next(iter(_ours(dataset) if name == "jpeg" else _tutorial(dataset)))
    print(time.perf_counter() - started)


def _ours(dataset: Dataset) -> tf.data.Dataset:
    return training_batches(dataset, InputShare(batch_size=BATCH), seed=0, epoch=0)


def _tutorial(dataset: Dataset) -> tf.data.Dataset:
    """As https://www.tensorflow.org/tutorials/load_data/tfrecord reads and images are resized."""
    features = {
        "image": tf.io.FixedLenFeature([], tf.string),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }

    def decoded(serialized):
        example = tf.io.parse_single_example(serialized, features)
        image = tf.io.decode_jpeg(example["image"], channels=3)
        return tf.image.resize(image, [SIZE, SIZE]), example["label"]

    files = [dataset.shard_uri(shard) for shard in dataset.splits["train"].shards]
    return (
        tf.data.TFRecordDataset(files)
        .map(decoded, num_parallel_calls=tf.data.AUTOTUNE)
        .batch(BATCH)
        .prefetch(tf.data.AUTOTUNE)
    )


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
    """Images a second, and a core second, of one pass, from the first batch's arrival on."""
    iterator = iter(batches)
    next(iterator)
    started, before = time.perf_counter(), time.process_time()
    count = sum(len(batch[1]) for batch in iterator)
    return count / (time.perf_counter() - started), count / (time.process_time() - before)
