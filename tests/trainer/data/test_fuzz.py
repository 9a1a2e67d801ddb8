"""Randomly damaged images are accepted or rejected; none crashes, hangs or is lost."""

import json
import random

from PIL import Image

from tests.trainer.data.folders import picture, write


def mutated(data: bytes, dice: random.Random) -> bytes:
    """Return `data` with some of its bytes changed, removed, repeated or swapped."""
    changed = bytearray(data)
    for _ in range(dice.randint(1, 8)):
        place = dice.randrange(max(1, len(changed)))
        match dice.randrange(5):
            case 0:
                changed[place : place + 1] = dice.randbytes(1)
            case 1:
                del changed[place : place + dice.randint(1, 200)]
            case 2:
                changed[place:place] = changed[place : place + dice.randint(1, 200)]
            case 3:
                # Sizes and lengths are in the head, and in words of 2 and 4 bytes.
                head = dice.randrange(min(64, len(changed) + 1))
                words = [b"\xff" * 4, b"\0" * 4, b"\x7f\xff\xff\xff"]
                changed[head : head + 4] = dice.choice(words)
            case 4:
                del changed[place:]
        if not changed:
            break
    return bytes(changed)


def test_mutated_images_are_accepted_or_rejected(tmp_path):
    dice = random.Random(20)
    originals = []
    for kind in ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF"):
        for seed in range(3):
            path = tmp_path / f"original.{kind}"
            picture(seed).resize((90, 70), Image.Resampling.BICUBIC).save(path, kind)
            originals.append((kind.lower(), path.read_bytes()))
    for label in range(2):
        (tmp_path / "in" / f"class{label}").mkdir(parents=True)
    for number in range(1000):
        kind, data = originals[number % len(originals)]
        path = tmp_path / "in" / f"class{number % 2}" / f"{number:04}.{kind}"
        path.write_bytes(mutated(data, dice))
    dataset = write(tmp_path / "in", tmp_path / "out", max_rejected_fraction=1.0)
    lines = (tmp_path / "out" / "rejected.jsonl").read_text().splitlines()
    rejected = {line["key"] for line in map(json.loads, lines)}
    accepted = sum(split.examples for split in dataset.splits.values())
    assert accepted + len(rejected) == dataset.creation["given"] == 1000
    assert len(rejected) == len(lines) == dataset.rejected["count"]
    # Both happen often: else the mutations would prove little.
    assert accepted > 100 and len(rejected) > 300
