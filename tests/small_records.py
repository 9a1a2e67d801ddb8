"""Small record sets for tests, written example by example."""

import hashlib
import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from trainer.data.schema import FILE_NAME, Dataset, Feature, Shard, Split


def write_records(
    directory: Path,
    splits: dict[str, list[tuple[np.ndarray, np.ndarray]]],
    classes: list[str],
    encoding: str = "raw",
    keys: Sequence[str] = (),
) -> Dataset:
    """Write images (uint8 [n, h, w, c]) and labels [n], a pair a shard, as a dataset."""
    directory.mkdir(parents=True, exist_ok=True)
    shape = next(iter(splits.values()))[0][0].shape[1:]
    image = {"kind": "image", "dtype": "uint8", "shape": list(shape), "encoding": encoding}
    described, left = {}, iter(keys)
    for name, shards in splits.items():
        parts = [
            [
                (_stored(image, encoding), int(label), next(left, f"{name}/{number}/{row}"))
                for row, (image, label) in enumerate(zip(images, labels, strict=True))
            ]
            for number, (images, labels) in enumerate(shards)
        ]
        labels = np.concatenate([labels for _, labels in shards])
        described[name] = Split(
            shards=_write_shards(directory, name, parts),
            class_counts=np.bincount(labels, minlength=len(classes)).tolist(),
        )
    dataset = Dataset(
        uri=str(directory),
        name="test",
        features=[
            Feature(name="image", **image),
            Feature(name="label", kind="label", dtype="int64"),
            Feature(name="key", kind="key", dtype="string"),
        ],
        classes=classes,
        splits=described,
        rejected={"count": 0, "reasons": {}, "file": "rejected.jsonl"},
        creation={"source": "test", "options": {}},
    )
    (directory / FILE_NAME).write_text(dataset.to_json())
    return dataset


def digits(
    directory: Path, train_shards: tuple[int, ...] = (200, 57), held_out: int = 60
) -> Dataset:
    """Write scikit-learn's scans of digits, 8x8x1: shards of training, one a split held out."""
    from sklearn.datasets import load_digits

    scans = load_digits()
    images = np.round(scans.images * 255 / 16).astype(np.uint8)[..., None]
    cuts = np.cumsum([0, *train_shards, held_out, held_out])
    parts = [(images[a:b], scans.target[a:b]) for a, b in itertools.pairwise(cuts)]
    splits = {"train": parts[:-2], "validation": parts[-2:-1], "test": parts[-1:]}
    return write_records(directory, splits, list("0123456789"))


def _write_shards(
    folder: Path, split: str, shards: list[list[tuple[bytes, int, str]]]
) -> list[Shard]:
    """Write a split: a file for each shard, of (image, label, key)."""
    written = []
    for number, examples in enumerate(shards):
        path = folder / f"{split}-{number:05}-of-{len(shards):05}.tfrecord"
        with tf.io.TFRecordWriter(str(path)) as writer:
            for example in examples:
                writer.write(_example(*example))
        content = path.read_bytes()
        digest, size = hashlib.sha256(content).hexdigest(), len(content)
        written.append(Shard(file=path.name, examples=len(examples), bytes=size, sha256=digest))
    return written


def _stored(image: np.ndarray, encoding: str) -> bytes:
    if encoding == "jpeg":
        return tf.io.encode_jpeg(image, quality=85).numpy()
    return image.tobytes()


def _example(image: bytes, label: int, key: str) -> bytes:
    feature, of_bytes = tf.train.Feature, tf.train.BytesList
    content = {
        "image": feature(bytes_list=of_bytes(value=[image])),
        "label": feature(int64_list=tf.train.Int64List(value=[label])),
        "key": feature(bytes_list=of_bytes(value=[key.encode()])),
    }
    return tf.train.Example(features=tf.train.Features(feature=content)).SerializeToString()
