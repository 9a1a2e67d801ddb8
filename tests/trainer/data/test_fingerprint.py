"""A source's fingerprint changes when its files do, and only then."""

import importlib.metadata
import os
import shutil

import pytest

from tests.refusals import refused
from trainer.data.file_listing import File
from trainer.data.write import fingerprint as module
from trainer.data.write.fingerprint import fingerprint


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    for name in ("rose/a.jpg", "rose/b.jpg", "tulip/deep/c.jpg"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


def digest(source):
    return fingerprint(source, "").digest


def write_tables(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("x\n1\n")


def follows(source, path):
    """Return whether the digest of `source` changes with the file at `path`."""
    before = digest(source)
    path.write_text(f"{path.read_text()}2\n")
    return digest(source) != before


def test_digest_follows_each_change_of_the_files(photos, tmp_path):
    rose, tulip, elsewhere = photos / "rose", photos / "tulip", tmp_path / "elsewhere"
    shutil.copytree(rose, elsewhere)
    changes = [
        lambda: (rose / "new.jpg").write_bytes(b"new"),
        lambda: (rose / "b.jpg").unlink(),
        lambda: (tulip / "deep" / "c.jpg").rename(tulip / "deep" / "d.jpg"),
        lambda: (rose / "new.jpg").rename(tulip / "new.jpg"),
        lambda: (rose / "a.jpg").write_bytes(b"rose/A.jpg"),
        lambda: os.utime(tulip / "new.jpg", (1, 1)),
        lambda: (rose / "link.jpg").symlink_to(photos / "nowhere"),
        lambda: (photos / "linked").symlink_to(elsewhere),
        lambda: (elsewhere / "a.jpg").write_bytes(b"changed"),
    ]
    before = fingerprint(f"images:{photos}", "")
    assert (before.files, before.bytes) == (3, len("rose/a.jpgrose/b.jpgtulip/deep/c.jpg"))
    digests = [before.digest]
    for change in changes:
        change()
        digests.append(digest(f"images:{photos}"))
        assert digests[-1] == digest(f"images:{photos}")
    assert len(set(digests)) == 1 + len(changes)


@pytest.mark.parametrize("name", ["moved", "[new] photos?"])
def test_digest_of_a_folder_depends_on_its_content_only(photos, tmp_path, name):
    moved = shutil.copytree(photos, tmp_path / name)
    assert digest(f"images:{moved}") == digest(f"images:{photos}")


def test_digest_of_tables_follows_only_those_that_are_read(tmp_path):
    write_tables(tmp_path, "2024/a.csv", "b.csv.gz", "notes.txt", "trips-1.csv", "trips-2.csv")
    folder, pattern, single = (f"csv:{tmp_path}{end}" for end in ("", "/trips-*.csv", "/b.csv.gz"))
    assert [fingerprint(source, "").files for source in (folder, pattern, single)] == [4, 2, 1]
    assert follows(folder, tmp_path / "2024" / "a.csv")
    assert not follows(folder, tmp_path / "notes.txt")
    assert follows(pattern, tmp_path / "trips-2.csv")
    assert not follows(pattern, tmp_path / "b.csv.gz")
    assert follows(single, tmp_path / "b.csv.gz")
    assert not follows(single, tmp_path / "trips-2.csv")


def test_digest_of_a_source_without_files_follows_its_version(monkeypatch):
    # BigQuery reports none.
    assert digest("bigquery:my-project.taxi.trips") != digest("bigquery:my-project.taxi.trips")
    before = digest("digits")
    monkeypatch.setattr(importlib.metadata, "version", lambda name: f"{name} of tomorrow")
    assert digest("digits") != before


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("images:/no/such", "source='images:/no/such' can't be listed: /no/such: No such file"),
        ("csv:/no/such/*.csv", "source='csv:/no/such/*.csv': there is no file at /no/such/*.csv"),
        ("images:ram://nowhere", "source='images:ram://nowhere' can't be listed"),
    ],
)
def test_source_that_can_not_be_listed_is_refused(source, words):
    assert refused(fingerprint, source, "").startswith(words)


def test_folder_that_only_tensorflow_reads_is_listed():
    import tensorflow as tf

    tf.io.gfile.makedirs("ram://photos/rose")
    fingerprints = []
    for name in ("a", "b", "c"):
        with tf.io.gfile.GFile(f"ram://photos/rose/{name}.jpg", "wb") as file:
            file.write(b"photo")
        fingerprints.append(fingerprint("images:ram://photos", ""))
        assert fingerprint("images:ram://photos", "") == fingerprints[-1]
    assert fingerprints[1][1:] == (2, 10)
    assert len({fingerprint.digest for fingerprint in fingerprints}) == 3


def test_digest_tells_names_sizes_and_versions_apart(monkeypatch):
    def of(*files):
        monkeypatch.setattr(module, "list_files", lambda _, matching: files)
        return digest("images:anywhere")

    assert of(File("a", 1, "1"), File("b", 1, "1")) != of(File("a", 1, "1\nb"), File("", 1, "1"))
    assert of(File("a1", 1, "1")) != of(File("a", 11, "1"))
