"""Reading records, as handed to the model, against Keras' own reader of image folders.

Both give uint8 or float32 batches of 224x224 pictures from one warm page cache; the folder
holds the pictures that the records were made of.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from PIL import Image

from tests.benchmarks.photos import write_photos
from tests.records import write_records
from trainer.data.read.reader import InputShare, training_batches
from trainer.data.schema import Dataset

SIZE = 224
PHOTOS = 1536
BATCH = 32
ROUNDS = 5


def rows() -> list[tuple[str, float, float, str]]:
    """(what, ratio, goal, figures) of raw and of JPEG records."""
    with tempfile.TemporaryDirectory() as folder:
        photos = Path(folder) / "photos"
        write_photos(photos, PHOTOS)
        ways: dict[str, Callable[[], tf.data.Dataset]] = {"folder": lambda: _folder(photos)}
        for encoding in ("raw", "jpeg"):
            dataset = _records(photos, Path(folder) / encoding, encoding)
            ways[encoding] = lambda dataset=dataset: training_batches(
                dataset, InputShare(batch_size=BATCH), seed=0, epoch=0
            )
        rates: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, way in ways.items():
                rates[name].append(_images_per_second(way()))
    medians = {name: statistics.median(values) for name, values in rates.items()}
    return [
        (
            f"reading {name} records / image_dataset_from_directory",
            medians[name] / medians["folder"],
            goal,
            f"{medians[name]:,.0f} / {medians['folder']:,.0f} images/s",
        )
        for name, goal in (("raw", 8.0), ("jpeg", 3.5))
    ]


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


def _images_per_second(batches: tf.data.Dataset) -> float:
    """Images/s of one pass, from the first batch's arrival on."""
    iterator = iter(batches)
    next(iterator)
    started = time.perf_counter()
    count = sum(len(batch[1]) for batch in iterator)
    return count / (time.perf_counter() - started)
