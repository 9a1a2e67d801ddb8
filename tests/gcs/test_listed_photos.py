"""Photos in a bucket: listed without reading, and written in the bytes of a local folder."""

import json
import shutil
from pathlib import Path

import pytest

from tests.trainer.data.folders import SIZE, content, records, two_classes, write_pictures
from trainer.data.record_options import RecordOptions
from trainer.data.write.split_plan import SAMPLE
from trainer.data.write.writer import create_tfrecords


@pytest.fixture(params=["classes", "splits"])
def photos(request, tmp_path, server, proxy):
    """A folder with all kinds of files, here and in the bucket; its name, and those to be read."""
    folder = tmp_path / f"photos-{request.param}"
    root = folder
    if request.param == "splits":
        root = folder / "train"
        write_pictures(folder / "test" / "cat", 4, seed=1)
        write_pictures(folder / "test" / "dog", 4, seed=9)
    two_classes(root, 20)
    write_pictures(root / "dog" / "a" / "b", 2, seed=7)
    write_pictures(root / "dog" / "a.b", 2, seed=8)
    shutil.copy(root / "cat" / "007.png", root / "dog" / "same.png")
    shutil.copy(root / "cat" / "008.png", root / "cat" / "no ending")
    shutil.copy(root / "cat" / "009.png", root / "cat" / "composed ümlaut.png")
    files = {"cat/text.jpg": b"text", "cat/empty.png": b"", ".hidden/a.png": b"x", "a.png": b"x",
             "dog/notes": b"text", "dog/.DS_Store": b"x", "cat/photo.heic": b"heic"}  # fmt: skip
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    for path in folder.rglob("*"):
        if path.is_file():
            server.put(str(path.relative_to(tmp_path)), path.read_bytes())
    inner = root.relative_to(tmp_path)
    proxy.composed.add(f"bucket/{inner}/cat/composed ümlaut.png")
    yield (
        folder,
        {f"{inner}/cat/no ending", f"{inner}/dog/notes", f"{inner}/cat/composed ümlaut.png"},
    )
    proxy.composed.clear()


def write(source, output):
    options = RecordOptions(
        source=f"images:{source}", image_size=SIZE, encoding="raw", max_rejected_fraction=0.2
    )
    return create_tfrecords(options, str(output), progress=lambda _: None)


def test_a_bucket_gives_a_folders_bytes_with_one_read_a_photo(photos, tmp_path, proxy, monkeypatch):
    # One process: others would import TensorFlow, too.
    monkeypatch.setattr("trainer.data.write.writer.available_cores", lambda: 1)
    folder, to_be_read = photos
    proxy.downloads.clear()
    made = write(f"gs://bucket/{folder.name}", tmp_path / "remote")
    prefix = f"bucket/{folder.name}/"
    read = {name: n for name, n in proxy.downloads.items() if name.startswith(prefix)}
    here = write(folder, tmp_path / "local")

    found, expected = content(tmp_path / "remote"), content(tmp_path / "local")
    del found["dataset.json"], expected["dataset.json"]
    assert found == expected
    remote, local = (json.loads(Path(one.uri, "dataset.json").read_text()) for one in (made, here))
    for one in (remote, local):
        made_of = one["creation"]
        del one["sha256"], made_of["source"], made_of["fingerprint"], made_of["options"]["source"]
    assert remote == local
    assert made.creation["given"] == here.creation["given"] > 40
    assert made.creation["contradictions"]["count"] == 1

    written = {f"{folder.name}/{key}" for split in records(made).values() for key in split}
    lines = Path(made.uri, "rejected.jsonl").read_text().splitlines()
    rejected = {line["key"]: line["reason"] for line in map(json.loads, lines)}
    broken = {f"{folder.name}/{key}" for key in rejected if "not a JPEG" in rejected[key]}
    assert len(broken) == 2
    expected = written | broken | to_be_read
    assert read.keys() == {f"bucket/{name}" for name in expected}
    # Each when it is written; what a listing can't tell; and a sample for the size of a record.
    assert sum(read.values()) == len(written | broken) + len(to_be_read) + SAMPLE
