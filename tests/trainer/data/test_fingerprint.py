"""A source's fingerprint changes when its files do, and only then."""

import importlib.metadata
import os
import shutil

import pytest

from trainer.data.file_listing import File
from trainer.data.write import fingerprint as module
from trainer.data.write.fingerprint import fingerprint
from trainer.errors import InputError


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    for name in ("rose/a.jpg", "rose/b.jpg", "tulip/deep/c.jpg"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    return folder


def digest(source, data_dir=""):
    return fingerprint(f"{source}", data_dir).digest


def refused(source, data_dir=""):
    with pytest.raises(InputError) as raised:
        fingerprint(source, data_dir)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_the_digest_follows_each_change_of_the_files(photos):
    def rewritten():
        (photos / "rose" / "a.jpg").write_bytes(b"rose/A.jpg")

    changes = [
        lambda: (photos / "rose" / "new.jpg").write_bytes(b"new"),
        lambda: (photos / "rose" / "b.jpg").unlink(),
        lambda: (photos / "tulip" / "deep" / "c.jpg").rename(photos / "tulip" / "deep" / "d.jpg"),
        lambda: (photos / "rose" / "new.jpg").rename(photos / "tulip" / "new.jpg"),
        rewritten,
        lambda: os.utime(photos / "tulip" / "new.jpg", (1, 1)),
        lambda: (photos / "rose" / "link.jpg").symlink_to(photos / "nowhere"),
    ]
    digests = [digest(f"images:{photos}")]
    for change in changes:
        change()
        digests.append(digest(f"images:{photos}"))
        assert digests[-1] == digest(f"images:{photos}")
    assert len(set(digests)) == 1 + len(changes)


def test_what_was_listed_is_counted(photos):
    found = fingerprint(f"images:{photos}", "")
    assert (found.files, found.bytes) == (3, len("rose/a.jpgrose/b.jpgtulip/deep/c.jpg"))


def test_a_folder_counts_by_its_content_wherever_it_lies(photos, tmp_path):
    shutil.copytree(photos, tmp_path / "moved")
    assert digest(f"images:{tmp_path / 'moved'}") == digest(f"images:{photos}")


def test_brackets_in_the_name_of_a_folder_of_images_are_no_pattern(photos, tmp_path):
    named = shutil.copytree(photos, tmp_path / "[new] photos?")
    assert digest(f"images:{named}") == digest(f"images:{photos}")


def test_files_behind_a_link_are_listed_as_they_are_read(photos, tmp_path):
    shutil.move(photos / "rose", tmp_path / "elsewhere")
    (photos / "rose").symlink_to(tmp_path / "elsewhere")
    before = digest(f"images:{photos}")
    (tmp_path / "elsewhere" / "a.jpg").write_bytes(b"changed")
    assert digest(f"images:{photos}") != before


def test_of_a_folder_of_tables_only_tables_count(tmp_path):
    for name in ("2024/a.csv", "b.csv.gz", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x\n1\n")
    before = digest(f"csv:{tmp_path}")
    assert fingerprint(f"csv:{tmp_path}", "").files == 2
    (tmp_path / "notes.txt").write_text("more")
    assert digest(f"csv:{tmp_path}") == before
    (tmp_path / "2024" / "a.csv").write_text("x\n2\n")
    assert digest(f"csv:{tmp_path}") != before


def test_of_a_pattern_or_a_single_table_no_other_file_counts(tmp_path):
    for name in ("trips-1.csv", "trips-2.csv", "other.csv"):
        (tmp_path / name).write_text("x\n1\n")
    pattern, single = f"csv:{tmp_path}/trips-*.csv", f"csv:{tmp_path}/trips-1.csv"
    assert fingerprint(pattern, "").files == 2
    before = digest(pattern), digest(single)
    (tmp_path / "other.csv").write_text("x\n2\n")
    assert (digest(pattern), digest(single)) == before
    (tmp_path / "trips-2.csv").write_text("x\n3\n")
    assert digest(pattern) != before[0]
    assert digest(single) == before[1]


def test_a_table_of_bigquery_counts_as_changed_each_time():
    source = "bigquery:my-project.taxi.trips"
    assert fingerprint(source, "").digest != fingerprint(source, "").digest


def test_digits_change_with_the_library_that_brings_them(monkeypatch):
    before = digest("digits")
    monkeypatch.setattr(importlib.metadata, "version", lambda name: f"{name} of tomorrow")
    assert digest("digits") != before


def test_a_prepared_data_set_changes_with_its_version_and_its_files(tmp_path):
    import tensorflow as tf
    import tensorflow_datasets as tfds

    def prepare(version):
        images = {"image": tf.zeros([2, 4, 4, 3], tf.uint8), "label": [0, 1]}
        tfds.dataset_builders.store_as_tfds_dataset(
            "tiny",
            version=version,
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(4, 4, 3)),
                    "label": tfds.features.ClassLabel(names=["ant", "bee"]),
                }
            ),
            split_datasets={"train": tf.data.Dataset.from_tensor_slices(images)},
            data_dir=tmp_path,
        )
        return digest("tfds:tiny", str(tmp_path))

    first = prepare("1.0.0")
    assert digest("tfds:tiny", str(tmp_path)) == first
    (shard,) = (tmp_path / "tiny" / "1.0.0").glob("*.tfrecord-*")
    shard.write_bytes(shard.read_bytes() * 2)
    second = digest("tfds:tiny", str(tmp_path))
    assert len({first, second, prepare("1.0.1")}) == 3
    assert digest("tfds:tiny:1.0.0", str(tmp_path)) == second
    assert "no data set 'other' is prepared" in refused("tfds:other", str(tmp_path))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("digit", "source='digit' is not a source; did you mean 'digits'?"),
        ("images:/no/such", "source='images:/no/such' can't be listed: /no/such: No such file"),
        ("csv:/no/such/*.csv", "source='csv:/no/such/*.csv': there is no file at /no/such/*.csv"),
    ],
)
def test_what_can_not_be_listed_is_one_line(source, words):
    assert refused(source).startswith(words)


def test_a_place_that_only_tensorflow_reaches_is_listed_too():
    import tensorflow as tf

    tf.io.gfile.makedirs("ram://photos/rose")
    for name in ("a", "b"):
        with tf.io.gfile.GFile(f"ram://photos/rose/{name}.jpg", "wb") as file:
            file.write(b"photo")
    assert fingerprint("images:ram://photos", "")[1:] == (2, 10)
    before = digest("images:ram://photos")
    assert digest("images:ram://photos") == before
    with tf.io.gfile.GFile("ram://photos/rose/c.jpg", "wb") as file:
        file.write(b"photo")
    assert digest("images:ram://photos") != before
    assert "can't be listed" in refused("images:ram://nowhere")


def test_order_and_names_can_not_be_mistaken_for_each_other(monkeypatch):
    def of(*files):
        monkeypatch.setattr(module, "list_files", lambda _, matching: files)
        return digest("images:anywhere")

    assert of(File("a", 1, "1"), File("b", 1, "1")) != of(File("a", 1, "1\nb"), File("", 1, "1"))
    assert of(File("a1", 1, "1")) != of(File("a", 11, "1"))
