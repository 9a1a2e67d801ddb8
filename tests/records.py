"""Small record sets for tests, written example by example."""

import hashlib
import itertools
from pathlib import Path

import numpy as np
import tensorflow as tf

from trainer.data.schema import FILE_NAME, Dataset, Feature, Shard, Split


def write_records(
    directory: Path,
    splits: dict[str, list[tuple[np.ndarray, np.ndarray]]],
    classes: list[str],
    encoding: str = "raw",
) -> Dataset:
    """Writes images (uint8 [n, h, w, c]) and labels [n], a pair a shard, as a data set."""
    directory.mkdir(parents=True, exist_ok=True)
    shape = next(iter(splits.values()))[0][0].shape[1:]
    described = {}
    for name, shards in splits.items():
        files = []
        for number, (images, labels) in enumerate(shards):
            path = directory / f"{name}-{number:05}-of-{len(shards):05}.tfrecord"
            with tf.io.TFRecordWriter(str(path)) as writer:
                for row, (image, label) in enumerate(zip(images, labels, strict=True)):
                    key = f"{name}/{number}/{row}"
                    writer.write(_example(image, int(label), key, encoding))
            content = path.read_bytes()
            files.append(
                Shard(
                    file=path.name,
                    examples=len(images),
                    bytes=len(content),
                    sha256=hashlib.sha256(content).hexdigest(),
                )
            )
        labels = np.concatenate([labels for _, labels in shards])
        described[name] = Split(
            shards=files,
            class_counts=np.bincount(labels, minlength=len(classes)).tolist(),
        )
    dataset = Dataset(
        uri=str(directory),
        name="test",
        features=[
            Feature(
                name="image", kind="image", dtype="uint8", shape=list(shape), encoding=encoding
            ),
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
    """scikit-learn's scans, 8x8x1 uint8: `train_shards` examples a shard, one shard held out."""
    from sklearn.datasets import load_digits

    scans = load_digits()
    images = np.round(scans.images * 255 / 16).astype(np.uint8)[..., None]
    cuts = np.cumsum([0, *train_shards, held_out, held_out])
    parts = [(images[a:b], scans.target[a:b]) for a, b in itertools.pairwise(cuts)]
    *train, validation, test = parts
    return write_records(
        directory,
        {"train": train, "validation": [validation], "test": [test]},
        [str(digit) for digit in range(10)],
    )


def _example(image: np.ndarray, label: int, key: str, encoding: str) -> bytes:
    stored = image.tobytes()
    if encoding == "jpeg":
        stored = tf.io.encode_jpeg(image, quality=85).numpy()
    features = {
        "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[stored])),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
        "key": tf.train.Feature(bytes_list=tf.train.BytesList(value=[key.encode()])),
    }
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()
