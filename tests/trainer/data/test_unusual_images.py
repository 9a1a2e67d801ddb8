import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from tests.trainer.data.folders import SIZE, picture
from trainer.data.record_options import RecordOptions
from trainer.data.write.pixels import PixelFormat, RejectedError, symmetries

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


def pixels(data: bytes, size: int = SIZE, **options) -> np.ndarray:
    """Return the pixels of a file, uint8 [size, size, channels]."""
    spec = PixelFormat(RecordOptions(image_size=size, encoding="raw", **options))
    channels = options.get("channels", 3)
    return np.frombuffer(spec.encode(spec.decode(data)), np.uint8).reshape(size, size, channels)


def saved(image: Image.Image, kind: str, **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def quadrants() -> Image.Image:
    """Red, green / blue, white, from the upper left."""
    image = Image.new("RGB", (64, 64), WHITE)
    for color, place in ((RED, (0, 0)), (GREEN, (32, 0)), (BLUE, (0, 32))):
        image.paste(color, (*place, place[0] + 32, place[1] + 32))
    return image


def corners(found: np.ndarray) -> list[tuple[int, ...]]:
    """Colors in the middles of the quadrants, rounded to 0 or 255."""
    low, high = SIZE // 4, 3 * SIZE // 4
    places = ((low, low), (low, high), (high, low), (high, high))
    return [tuple(int(value > 127) * 255 for value in found[place]) for place in places]


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF"])
def test_lossless_formats_keep_every_pixel(kind):
    np.testing.assert_array_equal(pixels(saved(picture(3), kind)), picture(3))


@pytest.mark.parametrize(
    "data",
    [
        *(saved(quadrants(), kind) for kind in ("PNG", "BMP", "GIF", "JPEG", "WEBP", "TIFF")),
        *(saved(quadrants().convert("CMYK"), kind, quality=95) for kind in ("JPEG", "TIFF")),
        saved(quadrants().quantize(4), "PNG"),
        saved(quadrants(), "JPEG", progressive=True),
    ],
    ids=[*("PNG", "BMP", "GIF", "JPEG", "WEBP", "TIFF"), "CMYK", "CMYK-TIFF", "palette", "steps"],
)
def test_every_format_gives_the_picture_in_the_size_asked_for(data):
    assert corners(pixels(data)) == [RED, GREEN, BLUE, WHITE]


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_exif_orientation_is_turned_upright(kind, orientation):
    turn = {
        1: None,
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }[orientation]
    stored = quadrants().resize((96, 64))
    stored = stored if turn is None else stored.transpose(turn)
    exif = Image.Exif()
    exif[0x0112] = orientation
    assert corners(pixels(saved(stored, kind, exif=exif))) == [RED, GREEN, BLUE, WHITE]


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
@pytest.mark.parametrize("channels", [1, 3])
def test_sixteen_bit_grey_keeps_its_high_bits(channels, kind):
    ramp = np.linspace(0, 65535, SIZE * SIZE).astype(np.uint16).reshape(SIZE, SIZE)
    found = pixels(saved(Image.fromarray(ramp), kind), channels=channels)
    np.testing.assert_array_equal(found[..., 0], ramp >> 8)


def test_sixteen_bit_color_keeps_its_high_bits():
    color = np.arange(SIZE * SIZE * 3, dtype=np.uint16).reshape(SIZE, SIZE, 3) * 85
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in color)
    np.testing.assert_array_equal(pixels(png(SIZE, SIZE, 16, 2, rows)), color >> 8)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "BMP"])
def test_grey_images_get_three_equal_channels(kind):
    ramp = Image.linear_gradient("L").resize((SIZE, SIZE))
    found = pixels(saved(ramp, kind)).astype(int)
    assert np.all(found == found[..., :1])
    np.testing.assert_allclose(found[..., 0], np.asarray(ramp), atol=6)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_color_becomes_grey_by_luma(kind):
    image = quadrants().resize((SIZE, SIZE), Image.Resampling.NEAREST)
    found = pixels(saved(image, kind), channels=1)
    # ITU-R BT.601: 0.299 R + 0.587 G + 0.114 B.
    expected = {(4, 4): 76, (4, 12): 150, (12, 4): 29, (12, 12): 255}
    for place, value in expected.items():
        assert abs(int(found[place][0]) - value) <= 3


def test_one_bit_images_are_black_and_white():
    image = quadrants().convert("L").point(lambda value: 255 * (value > 100)).convert("1")
    assert set(pixels(saved(image, "PNG"), 64)[..., 0].ravel().tolist()) == {0, 255}


def test_alpha_is_laid_over_white():
    image = Image.new("RGBA", (SIZE, SIZE), (0, 0, 0, 0))
    image.paste((200, 0, 0, 128), (0, 0, 8, 16))
    found = pixels(saved(image, "PNG"))
    assert found[8, 12].tolist() == [255, 255, 255]
    np.testing.assert_allclose(found[8, 3], [227, 127, 127], atol=1)


def test_grey_with_alpha_is_laid_over_white():
    image = Image.new("LA", (SIZE, SIZE), (0, 0))
    image.paste((100, 255), (0, 0, 8, 16))
    found = pixels(saved(image, "PNG"), channels=1)
    assert (found[8, 3, 0], found[8, 12, 0]) == (100, 255)


@pytest.mark.parametrize("kind", ["PNG", "GIF"])
def test_a_transparent_palette_entry_is_white(kind):
    image = quadrants().quantize(4, dither=Image.Dither.NONE)
    index = image.getpixel((0, 0))
    found = corners(pixels(saved(image, kind, transparency=index)))
    assert found == [WHITE, GREEN, BLUE, WHITE]


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "TIFF"])
def test_of_an_animated_image_the_first_frame_is_taken(kind):
    frames = [Image.new("RGB", (SIZE, SIZE), color) for color in (RED, GREEN, BLUE)]
    data = saved(frames[0], kind, save_all=True, append_images=frames[1:])
    assert corners(pixels(data)) == [RED] * 4


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_a_jpeg_has_the_pixels_that_pillow_decodes(mode):
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
    found = pixels(saved(smooth, "PNG"), 32, resize_method=method)
    expected = tf.image.resize(np.asarray(smooth), [32, 32], method=method, antialias=True)
    difference = np.abs(found - np.clip(np.round(expected), 0, 255))
    assert difference.max() <= 2


def test_a_large_jpeg_scaled_while_decoded_looks_like_one_scaled_afterwards():
    large = quadrants().resize((1000, 700), Image.Resampling.BICUBIC)
    data = saved(large, "JPEG", quality=95)
    expected = pixels(saved(large, "PNG")).astype(int)
    np.testing.assert_allclose(pixels(data).astype(int), expected, atol=12)


def test_stored_jpegs_are_close_to_the_picture():
    spec = PixelFormat(RecordOptions(image_size=64))
    stored = spec.encode(spec.decode(saved(quadrants(), "PNG")))
    found = np.asarray(Image.open(io.BytesIO(stored)), int)
    assert stored.startswith(b"\xff\xd8") and found.shape == (64, 64, 3)
    assert np.abs(found - np.asarray(quadrants(), int)).mean() < 4


def png(width: int, height: int, bits: int, color_type: int, rows: bytes) -> bytes:
    def chunk(name: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        )

    head = struct.pack(">IIBBBBB", width, height, bits, color_type, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("side", [12_000, 60_000])
def test_a_decompression_bomb_is_rejected_before_it_is_unpacked(side):
    bomb = png(side, side, 1, 0, b"\0" * 10_000_000)
    with pytest.raises(RejectedError, match=r"pixels"):
        pixels(bomb)


@pytest.mark.parametrize("size", [(1, 89_478_485), (70_000, 2)])
def test_a_side_that_is_too_long_is_rejected_before_it_is_unpacked(size):
    with pytest.raises(RejectedError, match=r"a side of more than 65,535 pixels"):
        pixels(png(*size, 1, 0, b"\0" * 1000))


def test_a_tiff_of_a_giant_tile_is_rejected_before_it_is_unpacked():
    # A file of one small image, whose only tile would take 1.6 GB.
    tags = [(256, 16), (257, 16), (258, 8), (259, 8), (262, 1), (277, 1)]
    tags += [(322, 40_000), (323, 40_000), (324, 134), (325, 12)]
    head = b"II*\0" + struct.pack("<IH", 8, len(tags))
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    data = head + entries + struct.pack("<I", 0) + zlib.compress(b"\0" * 1000)
    with pytest.raises(RejectedError, match="40000x40000: a tile of more than"):
        pixels(data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty file"),
        (b"hello, world", "not a JPEG, PNG, BMP, GIF, WEBP or TIFF image"),
        (saved(picture(1).resize((64, 64)), "JPEG")[:-200], "damaged image: .*truncated"),
        (saved(picture(1), "JPEG")[:-20] + saved(picture(1), "JPEG"), "damaged image: broken"),
        (saved(quadrants(), "PNG")[:-60], "damaged image"),
        (saved(quadrants(), "GIF")[:-40], "damaged image"),
        (saved(quadrants(), "BMP")[:-3000], "damaged image"),
        (saved(quadrants(), "JPEG")[:100], "not a JPEG|damaged image"),
        (saved(quadrants(), "WEBP")[:60], "damaged image|not a JPEG"),
        (saved(quadrants(), "TIFF")[:200], "damaged image"),
        (saved(quadrants().convert("F"), "TIFF"), "32 bits a pixel"),
        (saved(quadrants().convert("I"), "TIFF"), "32 bits a pixel"),
        (saved(quadrants(), "JPEG2000"), "not a JPEG,"),
    ],
)
def test_what_is_no_whole_image_is_rejected_with_its_reason(data, reason):
    with pytest.raises(RejectedError, match=reason):
        pixels(data)


def test_symmetries_are_all_that_operations_can_make():
    assert len(symmetries(["horizontal_flip"])) == 1
    assert len(symmetries(["horizontal_flip", "vertical_flip"])) == 3
    assert len(symmetries(["quarter_turn"])) == 3
    assert len(symmetries(["quarter_turn", "vertical_flip"])) == 7
