"""Convert image files to pixels of one size, and pixels to the bytes of a record.

Unusual images:

| image | becomes |
|---|---|
| EXIF orientation | turned upright |
| alpha channel, transparent palette entry | composited over white |
| palette, gray, CMYK | RGB (or gray, if `channels` is 1) |
| 16 bits per channel | the high 8 bits |
| animated | the first frame |
| 32-bit numbers as pixels, whose range is unknown | rejected |
| over MAX_PIXELS or MAX_SIDE, truncated, damaged, other formats | rejected |

The content determines the format, not the file name. Resizing (resizing.py) ignores the aspect
ratio; all methods except `nearest` average when they shrink, `bilinear` only by powers of 2.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import re
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageFile

from trainer.data.images import resizing
from trainer.data.schema import Feature
from trainer.data.source_options import SourceOptions
from vertex import formats
from vertex.errors import InputError

if TYPE_CHECKING:
    from trainer.data.records import Values

FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF")

MAX_PIXELS = 89_478_485
"""Pillow's limit against decompression bombs: 256 MiB as RGB."""
MAX_SIDE = 65_535
"""JPEG's limit, in pixels. Even for a narrow image, Pillow needs 20 more bytes per row."""

_BAND = 1 << 20
"""Number of pixels to convert at a time."""
_MARKER = re.compile(rb"\xff[^\0\xd0-\xd7]")
"""A marker in a JPEG's pixels, except markers that restart decoding."""
_END = b"\xff\xd9"
_ORIENTATION_TAG = 0x0112
_TILE_WIDTH, _TILE_LENGTH = 0x0142, 0x0143
_TURN = Image.Transpose
_UPRIGHT = {
    2: _TURN.FLIP_LEFT_RIGHT,
    3: _TURN.ROTATE_180,
    4: _TURN.FLIP_TOP_BOTTOM,
    5: _TURN.TRANSPOSE,
    6: _TURN.ROTATE_270,
    7: _TURN.TRANSVERSE,
    8: _TURN.ROTATE_90,
}
"""The turn that corrects each value of EXIF 2.3, table "Orientation"."""


class RejectedError(Exception):
    """An example can't be used; the message says why."""


@dataclasses.dataclass(frozen=True)
class PixelFormat:
    """The format of images in the records."""

    options: SourceOptions

    @property
    def feature(self) -> Feature:
        width, height = self._target
        return Feature(
            name="image",
            kind="image",
            dtype="uint8",
            shape=[height, width, self.options.channels],
            encoding=self.options.encoding,
        )

    def decode(
        self, data: bytes, check: Callable[[ImageFile.ImageFile], None] = lambda image: None
    ) -> np.ndarray:
        """Return an image file's resized pixels, uint8 [size, size] or [size, size, 3].

        Args:
            check: called with the image whose header was read, and may raise RejectedError.

        Raises:
            RejectedError: the file is not an image, is damaged, or is too large.
            MemoryError: this machine has too little memory left.
        """
        if not data:
            raise RejectedError("empty file")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # They are about unusual but readable images.
                image = Image.open(io.BytesIO(data), formats=FORMATS)
                _check_size(image)
                check(image)
                return self._rotate_upright(image, data)
        except RejectedError:
            raise
        except Image.UnidentifiedImageError:
            raise RejectedError(f"not a {formats.choices(FORMATS)} image") from None
        except Image.DecompressionBombError:
            raise RejectedError(f"more than {MAX_PIXELS:,} pixels") from None
        # Malicious bytes can make a decoder raise anything: OSError, SyntaxError, struct.error...
        except Exception as error:
            if isinstance(error, MemoryError) or _is_out_of_memory(error, data):
                raise MemoryError from None  # Of this machine: records must not depend on it.
            lines = str(error).splitlines() or [type(error).__name__]
            raise RejectedError(f"damaged image: {lines[0]}") from None

    def resize(self, image: Image.Image) -> np.ndarray:
        """Return the pixels of an image in mode L or RGB, as `decode` does."""
        mode = "L" if self.options.channels == 1 else "RGB"
        if mode == "L" and image.mode != mode:
            image = image.convert(mode)
        resized = resizing.resize(image, self._target, self.options.resize_method)
        return resized if image.mode == mode else np.dstack([resized] * 3)

    def encode(self, pixels: np.ndarray) -> bytes:
        """Return the record's bytes: a JPEG, or raw row-major uint8 [size, size, channels]."""
        if self.options.encoding == "raw":
            return pixels.tobytes()
        cv2 = resizing.import_opencv()
        if self.options.channels == 3:
            pixels = cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR)
        quality = [cv2.IMWRITE_JPEG_QUALITY, self.options.jpeg_quality]
        _, jpeg = cv2.imencode(".jpg", pixels, quality)
        return jpeg.tobytes()

    def encode_file(self, data: bytes, key: str, variants: int) -> list[Values]:
        """Return features of an image file, as `encode_variants` does.

        Raises:
            RejectedError: as `decode`.
            InputError: there is too little memory; the image itself may be intact.
        """
        try:
            return self.encode_variants(self.decode(data), key, variants)
        except MemoryError:
            raise InputError(
                f"{key}: this machine has too little memory left to decode it; use one with "
                "more memory, or remove the image"
            ) from None

    def encode_variants(self, pixels: np.ndarray, key: str, variants: int) -> list[Values]:
        """Return features of pixels from `decode` or `resize`, and of their copies."""
        copies = augment(pixels, key, variants, self.options.augmentation_operations)
        return [{self.feature.name: self.encode(copy)} for copy in [pixels, *copies]]

    @property
    def _target(self) -> tuple[int, int]:
        return self.options.image_size, self.options.image_size

    def _rotate_upright(self, image: ImageFile.ImageFile, data: bytes) -> np.ndarray:
        orientation = read_orientation(image)
        pixels = None
        if image.format in ("JPEG", "MPO") and self.options.resize_method != "nearest":
            # libjpeg scales by powers of 2 while it decodes, but never below the target size.
            image.draft("L" if self.options.channels == 1 else None, self._target)
            pixels = self._decode_sampled(image, data)
        if pixels is None:
            image.load()
            pixels = self.resize(self._convert(image))
        turn = _UPRIGHT.get(orientation)
        # The target is square, so turning it after resizing has the same result, and is cheaper.
        return pixels if turn is None else _turn(pixels, turn)

    def _convert(self, image: Image.Image) -> Image.Image:
        """Return a loaded image in mode L or RGB without alpha, perhaps halved as by `resize`.

        Converts and halves by bands of rows, because copies of the whole image take memory.
        """
        if image.mode in ("L", "RGB") and "transparency" not in image.info:
            return image
        if image.mode == "F" or (image.mode == "I" and image.format == "TIFF"):
            raise RejectedError("32-bit numbers as pixels, whose range is unknown")
        across, down = 1, 1
        if self.options.resize_method == "bilinear":
            across, down = resizing.halvings(image.size, self._target)
        converted = None
        rows = 2 * max(1, _BAND // image.width // 2)
        for top in range(0, image.height, rows):
            bottom = min(top + rows, image.height)
            band = _remove_alpha(image.crop((0, top, image.width, bottom)))
            if self.options.channels == 1:
                band = band.convert("L")
            band = band.reduce((across, down))
            if converted is None:
                converted = Image.new(band.mode, (band.width, -(-image.height // down)))
            converted.paste(band, (0, top // down))
        assert converted is not None
        return converted

    def _decode_sampled(self, image: ImageFile.ImageFile, data: bytes) -> np.ndarray | None:
        """Return the result of `resize` in two thirds of the time; None if that is not possible."""
        if (
            self.options.resize_method != "bilinear"
            or image.mode not in ("L", "RGB")
            or resizing.halvings(image.size, self._target) != (1, 1)
        ):
            return None
        # OpenCV returns only a part of an image that has a wrong marker in its pixels.
        marker = _MARKER.search(data, image.fp.tell()) if image.fp else None
        if not marker or marker[0] != _END:
            return None
        cv2 = resizing.import_opencv()
        flags = cv2.IMREAD_GRAYSCALE if self.options.channels == 1 else cv2.IMREAD_COLOR_RGB
        if (scale := image.decoderconfig[0]) > 1:
            flags |= 8 * scale  # IMREAD_REDUCED_GRAYSCALE_2, 4 or 8.
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), flags | cv2.IMREAD_IGNORE_ORIENTATION)
        # None: the image is damaged, or no memory is left; Pillow's error then says which.
        return None if pixels is None else resizing.interpolate(pixels, self._target)


def _check_size(image: Image.Image) -> None:
    if image.width * image.height > MAX_PIXELS:
        raise RejectedError(f"{image.width}x{image.height} is more than {MAX_PIXELS:,} pixels")
    tile = tile_size(image)
    if tile[0] * tile[1] > MAX_PIXELS:
        raise RejectedError(f"{tile[0]}x{tile[1]}: a tile of more than {MAX_PIXELS:,} pixels")
    if max(image.size) > MAX_SIDE:
        raise RejectedError(f"{image.width}x{image.height}: a side of over {MAX_SIDE:,} pixels")


def tile_size(image: Image.Image) -> tuple[int, int]:
    """Return the size of a TIFF's tiles: even for a small image, a whole tile is unpacked."""
    tags = getattr(image, "tag_v2", {})
    return tags.get(_TILE_WIDTH, 0), tags.get(_TILE_LENGTH, 0)


def _is_out_of_memory(error: Exception, data: bytes) -> bool:
    """Return whether Pillow ran out of memory, except for TIFF: there, the code is ambiguous."""
    return str(error).endswith("error -9") and not data.startswith((b"II", b"MM"))


def read_orientation(image: Image.Image) -> Any:
    """Return the EXIF orientation of an image whose header was read; 1 if it has none."""
    if "exif" not in image.info:
        return 1
    try:
        return image.getexif().get(_ORIENTATION_TAG, 1)
    except Exception:  # A damaged EXIF block says nothing about the pixels.
        return 1


def _remove_alpha(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # 16-bit gray; Pillow's conversion would clip.
        return image.convert("I").point(lambda value: value * (1 / 256)).convert("L")
    if image.has_transparency_data:
        colors = image.convert("RGBA")
        white = Image.new("RGB", image.size, "white")
        white.paste(colors, mask=colors.getchannel("A"))
        return white
    return image.convert("L" if image.mode == "1" else "RGB")


def augment(
    pixels: np.ndarray, key: str, variants: int, operations: Sequence[str]
) -> list[np.ndarray]:
    """Return turned and flipped copies of a square image, which depend only on its key.

    No copy equals the original. A key's copies differ from each other if `operations` provide
    enough: a flip along an axis provides one, quarter turns three, and both seven symmetries.
    """
    if not variants:
        return []
    digest = hashlib.sha256(f"augment {key}".encode()).digest()
    turns = sorted(symmetries(operations), key=lambda turn: digest[turn])
    return [_turn(pixels, turns[variant % len(turns)]) for variant in range(variants)]


def _turn(pixels: np.ndarray, turn: Image.Transpose) -> np.ndarray:
    return np.asarray(Image.fromarray(pixels).transpose(turn))


def symmetries(operations: Sequence[str]) -> list[Image.Transpose]:
    """Return all combinations of `operations` as symmetries of a square, without the identity."""
    horizontal, vertical = "horizontal_flip" in operations, "vertical_flip" in operations
    quarters = [_TURN.ROTATE_90, _TURN.ROTATE_180, _TURN.ROTATE_270]
    if "quarter_turn" in operations:
        return list(_TURN) if horizontal or vertical else quarters
    wanted = {
        _TURN.FLIP_LEFT_RIGHT: horizontal,
        _TURN.FLIP_TOP_BOTTOM: vertical,
        _TURN.ROTATE_180: horizontal and vertical,
    }
    return [turn for turn in wanted if wanted[turn]]
