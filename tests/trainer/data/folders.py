"""Folders of small pictures, and their records."""

import hashlib
import json
from pathlib import Path

import numpy as np
from PIL import Image

from trainer.data.record_options import RecordOptions
from trainer.data.schema import Dataset
from trainer.data.write.records import parse, read_records
from trainer.data.write.writer import create_tfrecords

SIZE = 16


def picture(seed: int) -> Image.Image:
    """A picture that no other seed gives."""
    pixels = np.random.default_rng(seed).integers(0, 256, (SIZE, SIZE, 3), np.uint8)
    return Image.fromarray(pixels)


def write_pictures(folder: Path, count: int, *, seed: int = 0, suffix: str = "png") -> None:
    """Writes `<folder>/000.png`, and so on."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        picture(seed * 1000 + number).save(folder / f"{number:03}.{suffix}")


def two_classes(root: Path, count: int = 40) -> Path:
    """Writes `count` pictures of each of the classes cat and dog."""
    write_pictures(root / "cat", count, seed=1)
    write_pictures(root / "dog", count, seed=2)
    return root


def write(source: Path | str, output: Path | str, **options) -> Dataset:
    """Run create_tfrecords on a folder of images, by default 16x16 raw, without output."""
    text = f"images:{source}" if isinstance(source, Path) else source
    values = {"image_size": SIZE, "encoding": "raw", **options}
    return create_tfrecords(
        RecordOptions(source=text, **values), str(output), progress=lambda line: None
    )


def records(dataset: Dataset) -> dict[str, dict[str, tuple[int, bytes]]]:
    """By split: key -> (label, image bytes), in stored order."""
    found: dict[str, dict[str, tuple[int, bytes]]] = {}
    for name, split in dataset.splits.items():
        found[name] = {}
        for shard in split.shards:
            with Path(dataset.shard_uri(shard)).open("rb") as file:
                for _, record in read_records(file):
                    example = parse(record)
                    key = example["key"][0].decode()
                    assert key not in found[name]
                    found[name][key] = (example["label"][0], example["image"][0])
    return found


def all_records(dataset: Dataset) -> dict[str, tuple[int, bytes]]:
    """The same for all splits together."""
    return {key: one for split in records(dataset).values() for key, one in split.items()}


def rejected(folder: Path | str) -> dict[str, str]:
    """Return the reason of each rejected example by its key."""
    lines = Path(folder, "rejected.jsonl").read_text().splitlines()
    return {line["key"]: line["reason"] for line in map(json.loads, lines)}


def content(folder: Path) -> dict[str, str]:
    """Every file under a folder, hidden ones too: path -> digest."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
