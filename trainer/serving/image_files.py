"""Convert the image files of requests to the images of records, with bounded memory and time.

Because the records' decoder (trainer/data/images/pixels.py) reads the files, and the model reads
the same bytes as in its evaluation, a file gets the answer that it would get as a record.

This module imports no TensorFlow: processes that decode import it (decoding_processes.py).
"""

import contextlib
import ctypes
import functools
import math
import resource
import signal
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from PIL import ImageFile

from trainer.data.images import pixels
from trainer.data.images.pixels import PixelFormat, RejectedError
from trainer.data.schema import Dataset
from trainer.data.source_options import SourceOptions
from trainer.serving.instances import InstanceError, RequestError

MAX_PIXELS = 25_000_000
"""Limit for an image file: a megabyte can unpack to gigabytes. Phones' photos have 12 million."""
MAX_REQUEST_PIXELS = 10 * MAX_PIXELS
"""Limit for all image files of a request."""
MAX_SCANNED = 40 * MAX_PIXELS
"""Limit for the pixels of a JPEG times its scans, each of which may touch all pixels again; they
take 0.8 s. Progressive JPEGs have about ten scans."""
LARGE = 4_000_000
"""Pixels of an image that takes so long that small ones must not wait for it: 0.15 s. A JPEG with a
single scan, as cameras write, takes less at any size, and with others at twenty times as many."""
SECONDS, LARGE_SECONDS = 1.0, 5.0
"""Time that an image may take, at first and if it is large, in a process for it."""
MEMORY = 208 << 20
"""Bytes that decoding an image may take, in a process for it."""
_LARGE_BYTES = 1 << 20
"""Size of files that take much memory even if their images are small."""


_JPEGS = ("JPEG", "MPO")
_JPEG_START, _SCAN = b"\xff\xd8\xff", b"\xff\xda"
_FRAMES = frozenset(range(0xFFC0, 0xFFD0)) - {0xFFC4, 0xFFC8, 0xFFCC}
"""Markers of a JPEG that are followed by its size."""
_MAX_SEGMENTS = 64


Task = tuple[Sequence[bytes], bool]
"""Files, and whether to decode large ones."""


class Outcome(NamedTuple):
    """The outcome of decoding an image file."""

    stored: bytes = b""  # its image as in a record
    problem: str = ""  # why it can't be used
    pixels: int = 0  # its width times its height, or 0 if unknown
    is_large: bool = False  # True: not decoded, because it is too large for this call


class RequestPixels:
    """The pixels of a request's image files."""

    def __init__(self) -> None:
        self._count = 0

    def add(self, outcome: Outcome) -> None:
        self._count += outcome.pixels

    def check(self) -> None:
        """Raise RequestError if there are too many."""
        if self._count > MAX_REQUEST_PIXELS:
            raise RequestError(
                f"the request's images have more than {MAX_REQUEST_PIXELS:,} pixels together; send "
                "fewer at once"
            )


class _LargeError(RejectedError):
    """An image that is too large for this call."""


def find_format(dataset: Dataset) -> PixelFormat:
    """Return the format of images in a model's records."""
    image, options = dataset.feature("image"), dataset.creation.get("options", {})
    known = {name: options[name] for name in ("resize_method", "jpeg_quality") if name in options}
    size, _, channels = image.shape
    return PixelFormat(
        SourceOptions(image_size=size, channels=channels, encoding=image.encoding, **known)
    )


def decode(records: PixelFormat, content: bytes, *, large: bool = True) -> Outcome:
    """Convert an image file to the image of a record, or say why it can't be used.

    Args:
        records: format of the records that the model was trained on.
        large: whether to decode also an image that takes much time and memory.
    """
    size = 0

    def check(image: ImageFile.ImageFile) -> None:
        nonlocal size
        size = image.width * image.height
        _check_limits(image, content, large)

    try:
        return Outcome(records.encode(records.decode(content, check)), pixels=size)
    except _LargeError:
        return Outcome(pixels=size, is_large=True)
    except RejectedError as error:
        return Outcome(problem=f"can't be read: {error}", pixels=size)
    except MemoryError:
        problem = "takes too much memory to decode; send an image with fewer pixels"
        return Outcome(problem=problem, pixels=size)


def decode_all(records: PixelFormat, files: Sequence[bytes]) -> list[Outcome]:
    """Decode the files of a request in this process; raise RequestError for too many pixels."""
    outcomes, total = [], RequestPixels()
    for content in files:
        outcomes.append(decode(records, content))
        total.add(outcomes[-1])
        total.check()
    return outcomes


def _check_limits(image: ImageFile.ImageFile, content: bytes, large: bool) -> None:
    largest = 0
    for width, height in (image.size, pixels.tile_size(image)):
        largest = max(largest, width * height)
        if largest > MAX_PIXELS:
            raise RejectedError(
                f"{width}x{height} is too large; send at most {MAX_PIXELS:,} pixels"
            )
    is_large = largest > LARGE
    if image.format in _JPEGS and image.fp:
        scans = _count_scans(image, content)
        if largest * scans > MAX_SCANNED:
            raise RejectedError(f"{scans:,} scans of all pixels take too long; save it with fewer")
        is_large = scans > 1 and largest * scans > 20 * LARGE
    if is_large and not large:
        raise _LargeError


def _count_scans(image: Any, content: bytes) -> int:
    """Return the number of scans of a JPEG whose header was read, or a larger one."""
    pixels_start, channels = image.fp.tell(), image.layers
    # The header of the first scan ends with two bytes per channel and three more.
    in_first = content[pixels_start - 4 - 2 * channels]
    if in_first == channels and "progressive" not in image.info:
        return 1
    # In pixels, ff is followed by 00 or a marker; metadata may contain the same bytes.
    return 1 + content.count(_SCAN, pixels_start)


def check_stored(image: bytes, shape: Sequence[int], records: PixelFormat) -> None:
    """Raise InstanceError for an image in a tf.Example that is not as in a record, such as a file.

    Otherwise the model would decode it, without limits.
    """
    if records.feature.encoding == "raw":
        is_sound = len(image) == math.prod(shape)
    else:
        is_sound = image.startswith(_JPEG_START) and _read_jpeg_size(image) == tuple(shape[:2])
        is_sound &= image.count(_SCAN) * math.prod(shape[:2]) <= MAX_SCANNED
    if not is_sound:
        raise InstanceError(
            f"is a tf.Example whose image is not one of a record of {shape[0]}x{shape[1]} pixels; "
            "send the bytes of a file without a tf.Example"
        )


def _read_jpeg_size(content: bytes) -> tuple[int, ...]:
    """Return the height and width in a JPEG's header; () if it has none of the usual form."""
    at = len(_JPEG_START) - 1
    with contextlib.suppress(struct.error):
        for _ in range(_MAX_SEGMENTS):
            marker, length = struct.unpack_from(">HH", content, at)
            if marker in _FRAMES:
                return struct.unpack_from(">HH", content, at + 5)
            at += 2 + length
    return ()


def decode_in_process(records: PixelFormat, task: Task, _: Any = None) -> list[Outcome]:
    """Call `decode` for files in a process for it, which ends if that takes too long.

    The time is the processor's, because on a busy machine any image takes long.
    """
    trim = _limit_memory()
    files, large = task
    signal.setitimer(signal.ITIMER_PROF, LARGE_SECONDS if large else SECONDS)
    try:
        return [decode(records, content, large=large) for content in files]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        # Otherwise most of the memory would stay with this process.
        if trim and (large or sum(map(len, files)) > _LARGE_BYTES):
            trim(0)


@functools.cache
def _limit_memory() -> Any:
    """Let this process allocate `MEMORY` more, where the system reports what it has.

    Return glibc's malloc_trim, which returns free memory to the system; None without glibc.
    """
    with contextlib.suppress(OSError):
        data_pages = int(Path("/proc/self/statm").read_text().split()[5])
        limit = data_pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
