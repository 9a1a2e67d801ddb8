"""Image files that are small, but take long or much memory to read."""

import io
import random
import struct
import zlib

import numpy as np
from PIL import Image

from tests.odd_images import chunk, png, saved
from trainer.data.images.pixels import PixelFormat

SIDE = 5000
"""Height and width, in pixels, of the largest image that a server accepts."""


def _flat(mode: str = "RGB", side: int = SIDE) -> Image.Image:
    return Image.new(mode, (side, side))


def jpeg_of_scans(count: int, side: int = SIDE) -> bytes:
    """Return a gray progressive JPEG whose last scan is repeated."""
    content = saved(_flat("L", side), "JPEG", progressive=True)
    last = content[content.rindex(b"\xff\xda") : -2]
    return content[:-2] + last * count + b"\xff\xd9"


def png_of_texts(count: int) -> bytes:
    """Return a small PNG with compressed texts after its pixels, each of 10 MB."""
    text = chunk(b"zTXt", b"note\0\0" + zlib.compress(b"a" * 10_000_000))
    content = saved(Image.new("RGB", (8, 8)), "PNG")
    return content[:-12] + text * count + content[-12:]


def png_of_chunks(count: int) -> bytes:
    return png(8, 8, 8, 0, bytes(72), chunk(b"tIME", b"") * count)


def jpeg_of_junk(size: int) -> bytes:
    content = saved(Image.new("RGB", (8, 8)), "JPEG")
    return content[:2] + bytes(size) + content[2:]


def gif_of_comments(count: int) -> bytes:
    content = saved(Image.new("RGB", (8, 8)), "GIF")
    start = content.index(b"\x2c")
    return content[:start] + b"\x21\xfe\x01a\0" * count + content[start:]


def tiff_of_a_tile(side: int) -> bytes:
    """Return a small image whose only tile has `side` pixels in height and width."""
    tags = [(256, 16), (257, 16), (258, 8), (259, 8), (262, 1), (277, 1)]
    tags += [(322, side), (323, side), (324, 134), (325, 12)]
    head = b"II*\0" + struct.pack("<IH", 8, len(tags))
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    return head + entries + struct.pack("<I", 0) + zlib.compress(b"\0" * 1000)


def tiff_of_frames(count: int) -> bytes:
    """Return a TIFF of one image and many directories."""
    content = bytearray(saved(Image.new("L", (8, 8)), "TIFF"))
    (start,) = struct.unpack_from("<I", content, 4)
    (entries,) = struct.unpack_from("<H", content, start)
    directory = content[start : start + 2 + 12 * entries]
    del content[start + 2 + 12 * entries :]
    for _ in range(count):
        content += struct.pack("<I", len(content) + 4) + directory
    return bytes(content + b"\0\0\0\0")


def noise(kind: str, side: int, **options) -> bytes:
    pixels = np.random.default_rng(0).integers(0, 256, (side, side, 3), np.uint8)
    return saved(Image.fromarray(pixels), kind, **options)


def hurtful_images() -> dict[str, bytes]:
    """Return 30 files by name."""
    animation = io.BytesIO()
    frames = [Image.new("L", (2000, 2000), shade) for shade in range(0, 250, 5)]
    frames[0].save(animation, "GIF", save_all=True, append_images=frames[1:])
    large = {
        f"{kind} in mode {mode}": saved(_flat(mode), kind, **options)
        for kind, mode, options in [
            ("PNG", "RGB", {}),
            ("PNG", "RGBA", {}),
            ("PNG", "I;16", {}),
            ("PNG", "LA", {}),
            ("JPEG", "RGB", {}),
            ("JPEG", "CMYK", {"progressive": True}),
            ("JPEG", "L", {"progressive": True}),
            ("TIFF", "RGBA", {"compression": "tiff_adobe_deflate"}),
            ("TIFF", "RGB", {"compression": "tiff_lzw", "strip_size": 1 << 30}),
            ("GIF", "P", {}),
            ("WEBP", "RGB", {"method": 0}),
            ("WEBP", "RGBA", {"lossless": True, "method": 0}),
        ]
    }
    return {
        **large,
        **{f"JPEG of {count} scans": jpeg_of_scans(count) for count in (5000, 500, 60, 30)},
        "small JPEG of 100,000 scans": jpeg_of_scans(100_000, 64),
        "JPEG in several scans": saved(_flat(), "JPEG", progressive=True, subsampling=0),
        "noise in a progressive JPEG": noise("JPEG", 1500, progressive=True, quality=95),
        "PNG of texts": png_of_texts(200),
        "PNG of chunks": png_of_chunks(500_000),
        "JPEG of junk": jpeg_of_junk(5_000_000),
        "GIF of comments": gif_of_comments(500_000),
        "GIF of frames": animation.getvalue(),
        "TIFF of a tile": tiff_of_a_tile(40_000),
        "TIFF of a tile that is accepted": tiff_of_a_tile(5000),
        "TIFF of frames": tiff_of_frames(20_000),
        "bomb": png(12_000, 12_000, 1, 0, b"\0" * 10_000_000),
        "bomb of the accepted size": png(SIDE, SIDE, 1, 0, b"\0" * 100_000_000),
        "random bytes": b"\x89PNG\r\n\x1a\n" + random.Random(0).randbytes(1_000_000),
    }


class EndlessFormat(PixelFormat):
    """A decoder that never ends."""

    def decode(self, data, check=None):
        while True:
            pass
