"""A served file becomes the pixels that its record has."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tests.trainer.data.picture_folders import all_records, write, write_pictures
from trainer.data.images.preprocessing import decode_and_resize
from trainer.data.images.resizing import resize
from trainer.data.source_options import RESIZE_METHODS

SIZE = 24
"""Of the records, in pixels."""

SIZES = [(17, 11), (36, 36), (40, 33), (53, 41), (61, 47), (121, 120), (217, 223)]
SIZES += [(359, 31), (19, 171), (14, 72), (98, 256)]
"""Width and height of pictures; many are odd, so that halving leaves half a block."""

QUICK = [("bilinear", 3), ("area", 3)]
"""Methods and channels."""

RARE = [("bilinear", 1), *((method, 3) for method in RESIZE_METHODS if (method, 3) not in QUICK)]


def random_picture(size: tuple[int, int], cells: tuple[int, int] = (7, 7)) -> Image.Image:
    """Return a picture in color of random cells, by default as smooth as photos are."""
    coarse = np.random.default_rng(sum(size)).integers(0, 256, (*cells[::-1], 3), np.uint8)
    return Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)


def save_formats(picture: Image.Image, folder: Path) -> list[Path]:
    """Write a picture in every form of file that serving_bytes reads; return the files."""
    few = picture.convert("P", palette=Image.Palette.ADAPTIVE, colors=40)
    forms = {
        "png": {mode: picture.convert(mode) for mode in ("RGB", "L", "RGBA", "LA", "1")},
        "jpg": {mode: picture.convert(mode) for mode in ("RGB", "L")},
    }
    forms["png"]["noise"] = random_picture(picture.size, cells=picture.size)
    forms["png"]["few"] = few
    files = []
    for ending, images in forms.items():
        for name, image in images.items():
            files.append(folder / f"{name} {picture.width}.{ending}")
            image.save(files[-1])
    return files


@pytest.mark.parametrize(
    ("method", "channels"),
    [*QUICK, *(pytest.param(*case, marks=pytest.mark.slow) for case in RARE)],
)
def test_every_format_and_method_gives_the_pixels_of_the_record(tmp_path, method, channels):
    source = tmp_path / "in"
    write_pictures(source / "other", 20)
    (source / "this").mkdir()
    files = [file for size in SIZES for file in save_formats(random_picture(size), source / "this")]
    options = {"image_size": SIZE, "channels": channels, "resize_method": method}
    stored = all_records(write(source, tmp_path / "out", **options))

    @tf.function(input_signature=[tf.TensorSpec([], tf.string)])
    def served(content):
        return decode_and_resize(content, [SIZE, SIZE, channels], method)

    for file in files:
        pixels = np.frombuffer(stored[f"this/{file.name}"][1], np.uint8)
        answer = served(tf.constant(file.read_bytes())).numpy().astype(int)
        assert np.abs(answer.ravel() - pixels).max() <= 1, file.name


def resized(image: Image.Image) -> np.ndarray:
    """Return the pixels in the records' size, [SIZE, SIZE, channels]."""
    resized_image = np.asarray(resize(image, (SIZE, SIZE), "bilinear"), int)
    return resized_image.reshape(SIZE, SIZE, -1)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("factors", [(4, 4), (8, 1), (8, 2), (5, 16)])
def test_fine_stripes_become_grey(factors, axis):
    width, height = (SIZE * factor for factor in factors)
    stripes = np.zeros((height, width), np.uint8)
    stripes[:, ::2] = 255
    stripes_of = resized(Image.fromarray(stripes if axis else stripes.T))
    assert np.all(np.abs(stripes_of - 127.5) <= 1)


def test_gradient_keeps_its_place():
    gradient = Image.linear_gradient("L").resize((217, 223), Image.Resampling.BICUBIC)
    expected = np.asarray(gradient.resize((SIZE, SIZE), Image.Resampling.BOX), int)
    assert np.abs(resized(gradient)[..., 0] - expected).max() <= 255 / SIZE


def test_color_and_grey_are_resized_equally():
    grey = random_picture((61, 47)).convert("L")
    np.testing.assert_array_equal(resized(grey.convert("RGB"))[..., :1], resized(grey))
