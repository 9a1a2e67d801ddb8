"""Image files of all kinds are answered as they are evaluated: as their records."""

import dataclasses
import shutil

import numpy as np
import pytest
import tensorflow as tf

from tests.odd_images import FORMS, odd_images, picture, saved
from tests.trainer.data.picture_folders import read_examples
from tests.trainer.serving.served_pixels import (
    export_revealing,
    rejections,
    revealed,
    stored_pixels,
    write_records,
)
from tests.trainer.serving.serving_processes import b64, predicted
from trainer.data.images.pixels import PixelFormat
from trainer.data.records import serialize
from trainer.data.schema import EXTRA_ASSETS, find_training_data
from trainer.serving import image_files
from trainer.serving.instances import BadInstancesError
from trainer.serving.predictor import Predictor
from vertex.errors import InputError, first_line

OPTIONS = [
    {"encoding": "raw", "resize_method": "lanczos3"},
    {"encoding": "jpeg", "channels": 1, "jpeg_quality": 70, "resize_method": "area"},
]


@pytest.fixture(scope="module")
def files():
    """A file of each kind."""
    return odd_images(len(FORMS))


@pytest.fixture(scope="module", params=OPTIONS, ids=str)
def served(request, files, tmp_path_factory):
    """Records, the URI of a model, the pixels by file, and the reasons of rejected files."""
    folder = tmp_path_factory.mktemp("odd")
    dataset = write_records(files, folder, **request.param)
    pixels, reasons = stored_pixels(dataset), rejections(dataset)
    assert pixels.keys() | reasons.keys() == files.keys()
    assert len(pixels) > 90 and len(reasons) > 5
    return dataset, export_revealing(dataset, str(folder / "model")), pixels, reasons


def test_files_have_the_pixels_of_their_records(served, files):
    _, uri, pixels, reasons = served
    answers = revealed(predicted(uri, [b64(files[name]) for name in pixels]))
    for name, answer in zip(pixels, answers, strict=True):
        np.testing.assert_array_equal(answer, pixels[name], name)
    with pytest.raises(BadInstancesError) as refused:
        predicted(uri, [b64(files[name]) for name in reasons])
    problems = refused.value.body["instances"]
    assert [problem["error"] for problem in problems] == [
        f"can't be read: {reason}" for reason in reasons.values()
    ]


def test_signature_reads_files_within_a_level_or_refuses_them_by_name(served, files):
    _, uri, pixels, _ = served
    model = tf.saved_model.load(uri)
    signature, refusals = model.signatures["serving_bytes"], {}
    options = image_files.find_format(find_training_data(uri)).options
    raw = PixelFormat(dataclasses.replace(options, encoding="raw"))
    for name, content in files.items():
        try:
            answer = signature(image_bytes=tf.constant([content]))["probabilities"].numpy()
        except tf.errors.OpError as error:
            refusals[name[5:-4]] = first_line(error)
        else:
            expected = np.frombuffer(raw.encode(raw.decode(content)), np.uint8)
            assert np.abs(revealed(answer)[0] - expected).max() <= 1, name
    assert len(files) - len(refusals) > 25
    accepted = {name[5:-4] for name in pixels} & refusals.keys()
    assert {refusals[form][:29] for form in accepted} == {"assertion failed: [the image "}
    for form, words in {
        "JPEG with orientation 6": "has EXIF orientation 6; convert it to an upright JPEG or PNG",
        "PNG with orientation 3": "has EXIF orientation 3",
        "JPEG turned by XMP": "is turned, by its XMP data",
        "JPEG in CMYK": "is in CMYK",
        "PNG with palette of alphas": "has a transparent color",
        "WebP": "is neither a JPEG nor a PNG",
    }.items():
        assert words in refusals[form]


def test_model_without_a_description_is_refused(tmp_path, image_model):
    shutil.copytree(image_model, tmp_path / "model")
    shutil.rmtree(tmp_path / "model" / EXTRA_ASSETS)
    with pytest.raises(InputError, match=r"has no assets\.extra/dataset\.json, which describes"):
        Predictor().load(str(tmp_path / "model"))


def test_file_in_an_example_is_refused(served):
    dataset, uri, *_ = served
    (stored, *_) = (example["image"][0] for example in read_examples(dataset, "train"))
    assert len(predicted(uri, [b64(serialize({"image": stored}))])) == 1
    large = saved(picture((1000, 800), 0), "JPEG")
    for image in (saved(picture((8, 8), 0), "PNG"), large, b""):
        with pytest.raises(BadInstancesError, match="whose image is not one of a record of 8x8"):
            predicted(uri, [b64(serialize({"image": image}))])
