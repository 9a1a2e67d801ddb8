"""Folders of small pictures, and their records."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from trainer.data.records import parse, read_records
from trainer.data.schema import Dataset
from trainer.data.write.record_options import RecordOptions
from trainer.data.write.writer import create_tfrecords

SIZE = 16


def picture(seed: int) -> Image.Image:
    """Return a picture that no other seed gives."""
    pixels = np.random.default_rng(seed).integers(0, 256, (SIZE, SIZE, 3), np.uint8)
    return Image.fromarray(pixels)


def write_pictures(folder: Path, count: int, *, seed: int = 0, suffix: str = "png") -> None:
    """Write `<folder>/000.png`, and so on."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        picture(seed * 1000 + number).save(folder / f"{number:03}.{suffix}")


def two_classes(root: Path, count: int = 40, *, seed: int = 1) -> Path:
    """Write `count` pictures of each of the classes cat and dog."""
    write_pictures(root / "cat", count, seed=seed)
    write_pictures(root / "dog", count, seed=seed + 1)
    return root


def write(source: Path | str, output: Path | str, **options) -> Dataset:
    """Run create_tfrecords on a folder of images, by default 16x16 raw, without output."""
    text = f"images:{source}" if isinstance(source, Path) else source
    values = {"image_size": SIZE, "encoding": "raw", **options}
    return create_tfrecords(
        RecordOptions(source=text, **values), str(output), progress=lambda line: None
    )


def read_examples(dataset: Dataset, split: str) -> Iterator[dict[str, Any]]:
    """Yield the features of each example, in stored order."""
    for shard in dataset.splits[split].shards:
        with Path(dataset.shard_uri(shard)).open("rb") as file:
            for _, record in read_records(file):
                yield parse(record)


def records(dataset: Dataset) -> dict[str, dict[str, tuple[int, bytes]]]:
    """Return by split: key -> (label, image bytes), in stored order."""
    by_split: dict[str, dict[str, tuple[int, bytes]]] = {}
    for split in dataset.splits:
        by_split[split] = {}
        for example in read_examples(dataset, split):
            key = example["key"][0].decode()
            assert key not in by_split[split]
            by_split[split][key] = (example["label"][0], example["image"][0])
    return by_split


def all_records(dataset: Dataset) -> dict[str, tuple[int, bytes]]:
    """Return the same for all splits together."""
    return {key: record for split in records(dataset).values() for key, record in split.items()}


def rejected(folder: Path | str) -> dict[str, str]:
    """Return the reason of each rejected example by its key."""
    lines = Path(folder, "rejected.jsonl").read_text().splitlines()
    return {line["key"]: line["reason"] for line in map(json.loads, lines)}


def content(folder: Path) -> dict[str, str]:
    """Return the digest of every file under a folder, hidden ones too, by path."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def flip(path: Path) -> None:
    """Change one bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
