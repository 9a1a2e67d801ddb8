"""tfds:NAME, and real data sets where they are available."""

import re

import numpy as np
import pytest

from tests.trainer.data.folders import all_records, records, refused, write
from trainer.data.record_options import RecordOptions
from trainer.data.sources import Example, open_source


def prepare(folder, features, examples, splits):
    """Write a data set "tiny" as TensorFlow Datasets prepares it."""
    import tensorflow_datasets as tfds

    tfds.dataset_builders.store_as_tfds_dataset(
        "tiny",
        version="1.0.0",
        features=tfds.features.FeaturesDict(features),
        split_datasets=dict.fromkeys(splits, examples),
        data_dir=folder,
        disable_shuffling=True,
    )


def prepare_images(folder, splits):
    """Prepare 60 images of three classes; return their pixels."""
    import tensorflow as tf
    import tensorflow_datasets as tfds

    images = np.random.default_rng(0).integers(0, 256, (60, 12, 10, 3), np.uint8)
    features = {
        "image": tfds.features.Image(shape=(12, 10, 3)),
        "label": tfds.features.ClassLabel(names=["ant", "bee", "cow"]),
    }
    data = {"image": images, "label": np.arange(60) % 3}
    prepare(folder, features, tf.data.Dataset.from_tensor_slices(data), splits)
    return images


def test_prepared_data_set_keeps_its_classes_and_pixels(tmp_path):
    images = prepare_images(tmp_path / "in", ["train"])
    options = {"data_dir": str(tmp_path / "in"), "image_size": 10, "resize_method": "nearest"}
    dataset = write("tfds:tiny", tmp_path / "out", **options)
    assert dataset.name == "tiny/1.0.0"
    assert dataset.classes == ["ant", "bee", "cow"]
    found = all_records(dataset)
    assert len(found) == 60
    assert all(split.examples for split in dataset.splits.values())
    label, image = found["tiny-train.tfrecord-00000-of-00001__7"]
    assert label == 1
    rows = (np.arange(10) + 0.5) * 12 // 10
    expected = images[7][rows.astype(int)]
    np.testing.assert_array_equal(np.frombuffer(image, np.uint8).reshape(10, 10, 3), expected)


def test_prepared_data_set_without_images_is_refused(tmp_path):
    import tensorflow as tf
    import tensorflow_datasets as tfds

    data = tf.data.Dataset.from_tensor_slices({"text": ["a", "b"], "score": [0.5, 0.1]})
    features = {"text": tfds.features.Text(), "score": tfds.features.Scalar(np.float32)}
    prepare(tmp_path / "in", features, data, ["train"])
    message = refused(write, "tfds:tiny", tmp_path / "out", data_dir=str(tmp_path / "in"))
    assert re.search("not a data set of images.*score: Scalar, text: Text", message)


def test_damaged_file_of_a_prepared_data_set_is_named(tmp_path):
    prepare_images(tmp_path / "in", ["train", "test"])
    (file,) = (tmp_path / "in").rglob("*test.tfrecord*")
    file.write_bytes(file.read_bytes()[:-100])
    message = refused(write, "tfds:tiny", tmp_path / "out", data_dir=str(tmp_path / "in"))
    assert f"{file.name} is damaged or cut off" in message


def test_real_mnist_is_listed_completely(real_data):
    options = RecordOptions(
        source="tfds:mnist", data_dir=str(real_data / "tfds"), image_size=28, channels=1
    )
    source = open_source(options)
    listed = list(source.examples())
    assert all(isinstance(one, Example) for one in listed)
    sizes = [sum(one.split == split for one in listed) for split in ("train", "test")]
    assert sizes == [60_000, 10_000]
    assert source.classes == list("0123456789")


@pytest.mark.slow
def test_real_mnist_becomes_records(real_data, tmp_path):
    options = {"data_dir": str(real_data / "tfds"), "image_size": 28, "channels": 1}
    dataset = write("tfds:mnist", tmp_path, **options)
    found = records(dataset)
    assert len(found["test"]) == 10_000
    assert len(found["train"]) + len(found["validation"]) + dataset.rejected["count"] == 60_000


def test_real_flowers_are_all_accepted(real_data, tmp_path):
    dataset = write(real_data / "flowers", tmp_path, image_size=64, encoding="jpeg")
    assert dataset.classes == ["daisy", "dandelion", "roses", "sunflowers", "tulips"]
    assert dataset.creation["given"] == dataset.creation["accepted"] == 300
    assert len(all_records(dataset)) == 300
    totals = np.sum([split.class_counts for split in dataset.splits.values()], axis=0)
    assert totals.tolist() == [60] * 5
