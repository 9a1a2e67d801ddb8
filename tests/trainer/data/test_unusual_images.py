"""Images of all formats, modes and sizes become pixels, or are rejected with a reason."""

import io

import numpy as np
import pytest
from PIL import Image

from tests.hurtful_images import tiff_of_a_tile
from tests.odd_images import png, saved
from tests.trainer.data.picture_folders import SIZE, picture
from trainer.data.images.pixels import PixelFormat, RejectedError, symmetries
from trainer.data.write.record_options import RecordOptions

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


def pixels(data: bytes, size: int = SIZE, **options) -> np.ndarray:
    """Return the pixels of a file, uint8 [size, size, channels]."""
    spec = PixelFormat(RecordOptions(image_size=size, encoding="raw", **options))
    channels = options.get("channels", 3)
    return np.frombuffer(spec.encode(spec.decode(data)), np.uint8).reshape(size, size, channels)


def quadrants() -> Image.Image:
    """Return four squares: red, green, and below them blue, white."""
    image = Image.new("RGB", (64, 64), WHITE)
    for color, place in ((RED, (0, 0)), (GREEN, (32, 0)), (BLUE, (0, 32))):
        image.paste(color, (*place, place[0] + 32, place[1] + 32))
    return image


def corners(image: np.ndarray) -> list[tuple[int, ...]]:
    """Return the colors in the middles of the quadrants, rounded to 0 or 255."""
    low, high = SIZE // 4, 3 * SIZE // 4
    places = ((low, low), (low, high), (high, low), (high, high))
    return [tuple(int(value > 127) * 255 for value in image[place]) for place in places]


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF"])
def test_lossless_formats_keep_every_pixel(kind):
    np.testing.assert_array_equal(pixels(saved(picture(3), kind)), picture(3))


def turned(orientation: int, kind: str) -> bytes:
    """Return the quadrants as a camera stores them that was held in this orientation."""
    turns = ("", "FLIP_LEFT_RIGHT", "ROTATE_180", "FLIP_TOP_BOTTOM", "TRANSPOSE", "ROTATE_90")
    turn = (*turns, "TRANSVERSE", "ROTATE_270")[orientation - 1]
    stored = quadrants().resize((96, 64))
    exif = Image.Exif()
    exif[0x0112] = orientation
    return saved(stored.transpose(Image.Transpose[turn]) if turn else stored, kind, exif=exif)


FORMATS = {kind: saved(quadrants(), kind) for kind in ("PNG", "BMP", "GIF", "JPEG", "WEBP", "TIFF")}
FRAMES = [Image.new("RGB", (SIZE, SIZE), color) for color in (RED, GREEN, BLUE)]
ANIMATED = {"save_all": True, "append_images": FRAMES[1:]}
PALETTE = quadrants().quantize(4, dither=Image.Dither.NONE)
CLEAR = PALETTE.getpixel((0, 0))
COLORS = [RED, GREEN, BLUE, WHITE]
UNUSUAL = {
    **{kind: (data, COLORS) for kind, data in FORMATS.items()},
    "CMYK": (saved(quadrants().convert("CMYK"), "JPEG", quality=95), COLORS),
    "CMYK TIFF": (saved(quadrants().convert("CMYK"), "TIFF"), COLORS),
    "progressive": (saved(quadrants(), "JPEG", progressive=True), COLORS),
    "palette": (saved(PALETTE, "PNG"), COLORS),
    **{
        f"transparent entry of a {kind}'s palette": (
            saved(PALETTE, kind, transparency=CLEAR),
            [WHITE, GREEN, BLUE, WHITE],
        )
        for kind in ("PNG", "GIF")
    },
    **{
        f"first frame of a {kind}": (saved(FRAMES[0], kind, **ANIMATED), [RED] * 4)
        for kind in ("GIF", "PNG", "WEBP", "TIFF")
    },
    **{
        f"{kind} with EXIF orientation {orientation}": (turned(orientation, kind), COLORS)
        for kind in ("JPEG", "PNG", "WEBP", "TIFF")
        for orientation in range(1, 9)
    },
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_image_is_read_upright_in_its_colors(name):
    data, colors = UNUSUAL[name]
    assert corners(pixels(data)) == colors


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
@pytest.mark.parametrize("channels", [1, 3])
def test_sixteen_bit_grey_keeps_its_high_bits(channels, kind):
    ramp = np.linspace(0, 65535, SIZE * SIZE).astype(np.uint16).reshape(SIZE, SIZE)
    stored = pixels(saved(Image.fromarray(ramp), kind), channels=channels)
    np.testing.assert_array_equal(stored[..., 0], ramp >> 8)


def test_sixteen_bit_color_keeps_its_high_bits():
    color = np.arange(SIZE * SIZE * 3, dtype=np.uint16).reshape(SIZE, SIZE, 3) * 85
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in color)
    np.testing.assert_array_equal(pixels(png(SIZE, SIZE, 16, 2, rows)), color >> 8)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "BMP"])
def test_grey_images_get_three_equal_channels(kind):
    ramp = Image.linear_gradient("L").resize((SIZE, SIZE))
    stored = pixels(saved(ramp, kind)).astype(int)
    assert np.all(stored == stored[..., :1])
    np.testing.assert_allclose(stored[..., 0], np.asarray(ramp), atol=6)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_color_becomes_grey_by_luma(kind):
    image = quadrants().resize((SIZE, SIZE), Image.Resampling.NEAREST)
    stored = pixels(saved(image, kind), channels=1)
    # ITU-R BT.601: 0.299 R + 0.587 G + 0.114 B.
    grey = stored[[4, 4, 12, 12], [4, 12, 4, 12], 0].astype(int)
    np.testing.assert_allclose(grey, [76, 150, 29, 255], atol=3)


def test_one_bit_images_are_black_and_white():
    image = quadrants().convert("L").point(lambda value: 255 * (value > 100)).convert("1")
    assert set(pixels(saved(image, "PNG"), 64)[..., 0].ravel().tolist()) == {0, 255}


def test_alpha_is_laid_over_white():
    image = Image.new("RGBA", (SIZE, SIZE), (0, 0, 0, 0))
    image.paste((200, 0, 0, 128), (0, 0, 8, 16))
    stored = pixels(saved(image, "PNG"))
    assert stored[8, 12].tolist() == [255, 255, 255]
    np.testing.assert_allclose(stored[8, 3], [227, 127, 127], atol=1)
    image = Image.new("LA", (SIZE, SIZE), (0, 0))
    image.paste((100, 255), (0, 0, 8, 16))
    stored = pixels(saved(image, "PNG"), channels=1)
    assert (stored[8, 3, 0], stored[8, 12, 0]) == (100, 255)


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_jpeg_has_the_pixels_that_pillow_decodes(mode):
    data = saved(picture(2).resize((75, 75)).convert(mode), "JPEG", comment="left out")
    expected = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    np.testing.assert_array_equal(pixels(data, 75), expected)
    spec = PixelFormat(RecordOptions(image_size=75, resize_method="bicubic"))
    assert b"left out" not in spec.encode(spec.decode(data))


@pytest.mark.parametrize("method", ["bicubic", "area", "lanczos3"])
def test_resizing_agrees_with_tensorflow_with_antialias(method):
    import tensorflow as tf

    # Pillow's box takes whole pixels: with whole factors the two are the same.
    side = (96, 64) if method == "area" else (90, 60)
    smooth = picture(1).resize(side, Image.Resampling.BICUBIC)
    stored = pixels(saved(smooth, "PNG"), 32, resize_method=method)
    expected = tf.image.resize(np.asarray(smooth), [32, 32], method=method, antialias=True)
    assert np.abs(stored - np.clip(np.round(expected), 0, 255)).max() <= 2


def test_large_jpeg_scaled_while_decoded_looks_the_same():
    large = quadrants().resize((1000, 700), Image.Resampling.BICUBIC)
    data = saved(large, "JPEG", quality=95)
    expected = pixels(saved(large, "PNG")).astype(int)
    np.testing.assert_allclose(pixels(data).astype(int), expected, atol=12)


def test_stored_jpegs_are_close_to_the_picture():
    spec = PixelFormat(RecordOptions(image_size=64))
    stored = spec.encode(spec.decode(FORMATS["PNG"]))
    decoded = np.asarray(Image.open(io.BytesIO(stored)), int)
    assert stored.startswith(b"\xff\xd8") and decoded.shape == (64, 64, 3)
    assert np.abs(decoded - np.asarray(quadrants(), int)).mean() < 4


REJECTED = {
    "empty": (b"", "empty file"),
    "text": (b"hello, world", "not a JPEG, PNG, BMP, GIF, WEBP or TIFF image"),
    "cut": (saved(picture(1).resize((64, 64)), "JPEG")[:-200], "damaged image: .*truncated"),
    "two": (saved(picture(1), "JPEG")[:-20] + saved(picture(1), "JPEG"), "damaged image: broken"),
    "cut PNG": (FORMATS["PNG"][:-60], "damaged image"),
    "cut GIF": (FORMATS["GIF"][:-40], "damaged image"),
    "cut BMP": (FORMATS["BMP"][:-3000], "damaged image"),
    "head of JPEG": (FORMATS["JPEG"][:100], "not a JPEG|damaged image"),
    "head of WEBP": (FORMATS["WEBP"][:60], "damaged image|not a JPEG"),
    "head of TIFF": (FORMATS["TIFF"][:200], "damaged image"),
    "floats": (saved(quadrants().convert("F"), "TIFF"), "32-bit numbers as pixels"),
    "integers": (saved(quadrants().convert("I"), "TIFF"), "32-bit numbers as pixels"),
    "JPEG 2000": (saved(quadrants(), "JPEG2000"), "not a JPEG,"),
    # Before they are unpacked:
    "bomb": (png(12_000, 12_000, 1, 0, b"\0" * 10_000_000), "pixels"),
    "large bomb": (png(60_000, 60_000, 1, 0, b"\0" * 10_000_000), "pixels"),
    "high": (png(1, 89_478_485, 1, 0, b"\0" * 1000), "a side of over 65,535 pixels"),
    "wide": (png(70_000, 2, 1, 0, b"\0" * 1000), "a side of over 65,535 pixels"),
    "giant tile": (tiff_of_a_tile(40_000), "40000x40000: a tile of more than"),
}


@pytest.mark.parametrize("name", REJECTED)
def test_unusable_image_is_rejected_with_its_reason(name):
    data, reason = REJECTED[name]
    with pytest.raises(RejectedError, match=reason):
        pixels(data)


def test_symmetries_are_all_that_operations_can_make():
    assert len(symmetries(["horizontal_flip"])) == 1
    assert len(symmetries(["horizontal_flip", "vertical_flip"])) == 3
    assert len(symmetries(["quarter_turn"])) == 3
    assert len(symmetries(["quarter_turn", "vertical_flip"])) == 7
