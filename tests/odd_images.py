"""Image files of all kinds that phones, scanners, browsers and programs write, and damaged ones."""

import io
import itertools
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import cv2
import numpy as np
from PIL import Image, PngImagePlugin

SIZES = [(23, 17), (64, 48), (97, 131), (400, 301), (1, 40), (50, 1), (1, 1), (16, 16), (641, 33)]
ORIENTATION = 0x0112
Form = Callable[[Image.Image], bytes]
"""Saves a picture, in mode RGB, as a file."""


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def exif(orientation: int | None, *, endian: str = ">") -> bytes:
    """Return EXIF data with an orientation, or only with another tag."""
    tag, value = (0x0128, 2) if orientation is None else (ORIENTATION, orientation)
    head = {">": b"MM\0*", "<": b"II*\0"}[endian] + struct.pack(f"{endian}IH", 8, 1)
    return b"Exif\0\0" + head + struct.pack(f"{endian}HHIHHI", tag, 3, 1, value, 0, 0)


def chunk(kind: bytes, body: bytes) -> bytes:
    """Return a PNG's chunk."""
    checksum = struct.pack(">I", zlib.crc32(kind + body))
    return struct.pack(">I", len(body)) + kind + body + checksum


def png(
    width: int, height: int, bits: int, color_type: int, rows: bytes, more: bytes = b""
) -> bytes:
    """Return a PNG of rows with filter bytes; `more` chunks are before the pixels."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, color_type, 0, 0, 0))
    data = chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + head + more + data


def gray_png(image: Image.Image, bits: int, more: bytes = b"") -> bytes:
    """Return a gray PNG of 1, 2 or 4 bits per pixel."""
    levels = np.asarray(image.convert("L")) >> (8 - bits)
    planes = np.unpackbits(levels[..., None], axis=-1)[..., -bits:].reshape(image.height, -1)
    rows = b"".join(b"\0" + np.packbits(row).tobytes() for row in planes)
    return png(*image.size, bits, 0, rows, more)


def bmp_of_4_bits(image: Image.Image) -> bytes:
    few = image.quantize(16)
    colors = np.zeros((16, 4), np.uint8)
    palette = np.array(few.getpalette()[:48], np.uint8).reshape(-1, 3)
    colors[: len(palette), :3] = palette[:, ::-1]
    indices = np.asarray(few)[::-1]
    indices = np.pad(indices, [(0, 0), (0, -image.width % 8)])
    rows = (indices[:, ::2] << 4 | indices[:, 1::2]).astype(np.uint8).tobytes()
    head = struct.pack("<IiiHHIIiiII", 40, *image.size, 1, 4, 0, len(rows), 0, 0, 16, 0)
    return b"BM" + struct.pack("<IHHI", 118 + len(rows), 0, 0, 118) + head + colors.tobytes() + rows


def deep(image: Image.Image, channels: int) -> bytes:
    """Return a PNG of 16 bits per channel."""
    pixels = np.asarray(image.convert({1: "L", 3: "RGB", 4: "RGBA"}[channels])).astype(np.uint16)
    noise = np.random.default_rng(pixels.size).integers(0, 256, pixels.shape)
    return cv2.imencode(".png", (pixels << 8 | noise).astype(np.uint16))[1].tobytes()


def with_alpha(image: Image.Image, mode: str = "RGBA") -> Image.Image:
    alpha = Image.linear_gradient("L").resize(image.size)
    image = image.convert(mode.rstrip("Aa") or "RGB")
    image.putalpha(alpha)
    return image


def animated(image: Image.Image, kind: str) -> bytes:
    others = [image.rotate(180), Image.new("RGB", image.size, (9, 99, 199))]
    return saved(image, kind, save_all=True, append_images=others)


def ycck(image: Image.Image) -> bytes:
    """Return a JPEG in CMYK whose Adobe marker says YCCK."""
    content = bytearray(saved(image.convert("CMYK"), "JPEG"))
    content[content.index(b"Adobe") + 11] = 2
    return bytes(content)


def with_text(image: Image.Image) -> bytes:
    text = PngImagePlugin.PngInfo()
    for number in range(20):
        text.add_text(f"note {number}", "IDAT tRNS eXIf " * 50, zip=number % 2 == 0)
    return saved(image, "PNG", pnginfo=text)


def in_palette(image: Image.Image, colors: int = 40) -> Image.Image:
    return image.quantize(colors)


XMP = b'<rdf:Description tiff:Orientation="%d" xmlns:tiff="http://ns.adobe.com/tiff/1.0/"/>'


def _turned() -> Iterator[tuple[str, Form]]:
    for kind, orientation in itertools.product(("JPEG", "PNG", "WEBP", "TIFF"), range(1, 9)):
        endian = "<>"[orientation % 2]
        data, options = exif(orientation, endian=endian), {"lossless": True}

        def save(image, kind=kind, data=data, options=options if kind == "WEBP" else {}):
            if kind == "TIFF":
                tags = Image.Exif()
                tags.load(data)
                return saved(image, kind, exif=tags)
            return saved(image, kind, exif=data, **options)

        yield f"{kind} with orientation {orientation}", save


FORMS: dict[str, Form] = {
    **dict(_turned()),
    "JPEG": lambda image: saved(image, "JPEG"),
    "JPEG of full color": lambda image: saved(image, "JPEG", quality=98, subsampling=0),
    "progressive JPEG": lambda image: saved(image, "JPEG", progressive=True),
    "gray JPEG": lambda image: saved(image.convert("L"), "JPEG"),
    "progressive gray JPEG": lambda image: saved(image.convert("L"), "JPEG", progressive=True),
    "JPEG in RGB": lambda image: saved(image, "JPEG", keep_rgb=True),
    "JPEG in CMYK": lambda image: saved(image.convert("CMYK"), "JPEG"),
    "JPEG in YCCK": ycck,
    "JPEG that restarts": lambda image: cv2.imencode(
        ".jpg", np.asarray(image), [cv2.IMWRITE_JPEG_RST_INTERVAL, 3]
    )[1].tobytes(),
    "JPEG with EXIF but no orientation": lambda image: saved(image, "JPEG", exif=exif(None)),
    "JPEG with orientation 0": lambda image: saved(image, "JPEG", exif=exif(0)),
    "JPEG turned by XMP": lambda image: saved(image, "JPEG", exif=exif(None), xmp=XMP % 6),
    "JPEG upright by XMP": lambda image: saved(image, "JPEG", exif=exif(None), xmp=XMP % 1),
    "JPEG with XMP alone": lambda image: saved(image, "JPEG", xmp=XMP % 6),
    "JPEG with broken EXIF": lambda image: saved(image, "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff"),
    "JPEG with profile and comment": lambda image: saved(
        image, "JPEG", icc_profile=b"\xff\xda" * 40_000, comment="Exif"
    ),
    "several pictures in a JPEG": lambda image: animated(image, "MPO"),
    "PNG": lambda image: saved(image, "PNG"),
    **{
        f"PNG in mode {mode}": lambda image, mode=mode: saved(image.convert(mode), "PNG")
        for mode in ("L", "1")
    },
    **{
        f"{kind} in mode {mode}": lambda image, kind=kind, mode=mode: saved(
            with_alpha(image, mode), kind
        )
        for kind, mode in (("PNG", "LA"), ("PNG", "RGBA"), ("TIFF", "LA"), ("TIFF", "RGBA"))
    },
    "PNG with color key": lambda image: saved(
        image, "PNG", transparency=image.getpixel((image.width // 2, image.height // 2))
    ),
    "PNG with gray key": lambda image: saved(image.convert("L"), "PNG", transparency=100),
    "PNG of gray 2 bits with key": lambda image: gray_png(image, 2, chunk(b"tRNS", b"\0\1")),
    **{
        f"PNG of gray {bits} bits": lambda image, bits=bits: gray_png(image, bits)
        for bits in (1, 2, 4)
    },
    **{
        f"PNG with palette of {bits} bits": lambda image, bits=bits: saved(
            in_palette(image, 1 << bits), "PNG", bits=bits
        )
        for bits in (1, 2, 4, 8)
    },
    **{
        f"{kind} with transparent entry": lambda image, kind=kind: saved(
            in_palette(image), kind, transparency=in_palette(image).getpixel((0, 0))
        )
        for kind in ("PNG", "GIF")
    },
    "PNG with palette of alphas": lambda image: saved(
        in_palette(image), "PNG", transparency=bytes(range(0, 240, 6))
    ),
    **{
        f"PNG of 16 bits and {channels} channels": lambda image, channels=channels: deep(
            with_alpha(image) if channels == 4 else image, channels
        )
        for channels in (1, 3, 4)
    },
    "PNG with texts": with_text,
    **{
        f"animated {kind}": lambda image, kind=kind: animated(image, kind)
        for kind in ("GIF", "PNG", "WEBP", "TIFF")
    },
    "WebP": lambda image: saved(image, "WEBP", quality=60),
    "WebP with alpha": lambda image: saved(with_alpha(image), "WEBP", quality=60),
    "lossless WebP with alpha": lambda image: saved(with_alpha(image), "WEBP", lossless=True),
    "GIF": lambda image: saved(image, "GIF"),
    "gray GIF": lambda image: saved(image.convert("L"), "GIF"),
    **{
        f"BMP in mode {mode}": lambda image, mode=mode: saved(
            with_alpha(image) if mode == "RGBA" else image.convert(mode), "BMP"
        )
        for mode in ("1", "L", "P", "RGB", "RGBA")
    },
    "BMP of 4 bits": bmp_of_4_bits,
    **{
        f"TIFF in mode {mode}": lambda image, mode=mode: saved(image.convert(mode), "TIFF")
        for mode in ("1", "L", "P", "CMYK", "F", "I")
    },
    "TIFF of 16 bits": lambda image: saved(
        Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 250), "TIFF"
    ),
    **{
        f"TIFF by {name}": lambda image, name=name: saved(image, "TIFF", compression=name)
        for name in ("tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg")
    },
    "JPEG 2000": lambda image: saved(image, "JPEG2000"),
    "text": lambda image: b"a picture of %dx%d" % image.size,
    "damaged JPEG": lambda image: saved(image, "JPEG")[:-40],
    "damaged PNG": lambda image: saved(image, "PNG")[:-30],
    "damaged WebP": lambda image: saved(image, "WEBP")[:-9],
}


def picture(size: tuple[int, int], seed: int) -> Image.Image:
    """Return a picture in color, as smooth as photos are."""
    cells = np.random.default_rng(seed).integers(0, 256, (5, 6, 3), np.uint8)
    return Image.fromarray(cells).resize(size, Image.Resampling.BICUBIC)


def odd_images(count: int) -> dict[str, bytes]:
    """Return files by name: each form in the first size, then in the next, and so on."""
    names = itertools.product(range(count), FORMS)
    files = {}
    for number, (turn, form) in enumerate(itertools.islice(names, count)):
        content = FORMS[form](picture(SIZES[turn % len(SIZES)], number))
        files[f"{number:04} {form}.jpg"] = content
    return files
