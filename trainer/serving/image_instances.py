"""Instances of a model of images: pixels, image files, or records' tf.Examples.

[[[0], [255], ...], ...]                  pixels, as uint8 [height, width, channels]
{"b64": "..."}                            an image file, or a serialized tf.Example
{"image": [...] or {"b64": "..."}, "key": 7}
                                          the same with a key; `image_bytes`, `examples` and
                                          `b64` are names for it, too
"""

import base64
import contextlib
import io
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pydantic_core
from PIL import Image

from trainer.serving.instances import (
    BYTES,
    DEFAULT,
    EXAMPLES,
    KEY,
    BadInstancesError,
    InstanceError,
    Part,
    Request,
    decoded,
    features_of,
    key_of,
    shown,
)

FORMATS = ("JPEG", "PNG", "BMP", "GIF")
"""What serving_bytes decodes."""
MAX_PIXELS = 25_000_000
"""Of an image file: a megabyte can unpack to gigabytes. Phones take photos of 12 million."""

_BODY_START = b'{"instances":'
_DIGITS_AS_0 = bytes.maketrans(b"123456789", b"0" * 9)
_FILE_STARTS = (b"\xff\xd8", b"\x89PNG", b"BM", b"GIF8")
"""First bytes of FORMATS; a serialized tf.Example begins with b"\\n"."""


class ImageInstances:
    """Parses the instances of a request to a model of images.

    Args:
        name: of the argument of serving_default, and of the image in records.
        shape: height, width and channels that the model takes.
    """

    def __init__(self, name: str, shape: tuple[int, ...]) -> None:
        self._name = name
        self._shape = shape
        self._list_shapes = (shape, shape[:-1]) if shape[-1] == 1 else (shape,)
        self._brackets = [_brackets(one) for one in self._list_shapes]
        self._arguments = {DEFAULT: name, BYTES: "image_bytes", EXAMPLES: "examples"}
        self._names = {"b64", *self._arguments.values()}

    def pixels(self, body: bytearray) -> np.ndarray | None:
        """Return the instances of a body that holds pixels alone, [n, height, width, channels].

        A few times as fast as parsing nested lists: the JSON parser gets the numbers as one list,
        after a check that the brackets are those of images. Any other body, valid or not, is None.
        """
        if not (body.startswith(_BODY_START) and body.endswith(b"}")):
            return None
        text = body[len(_BODY_START) : -1]
        structure = text.translate(_DIGITS_AS_0, b" \t\r\n")
        # A number is at the place of a number, which is neither before [ nor after ].
        if b"0[" in structure or b"]0" in structure:
            return None
        structure = structure.translate(None, b"0")
        for brackets in self._brackets:
            count = (len(structure) - 1) // (len(brackets) + 1)
            if count and structure == b"[" + b",".join([brackets] * count) + b"]":
                with contextlib.suppress(ValueError):
                    numbers = pydantic_core.from_json(b"[" + text.translate(None, b"[]") + b"]")
                    return np.frombuffer(bytes(numbers), np.uint8).reshape(count, *self._shape)
        return None

    def parse(self, instances: list[Any] | np.ndarray) -> Request:
        """Sort instances by the signature that answers them.

        Args:
            instances: of a request's JSON, or what `pixels` returned.

        Raises:
            BadInstancesError: some can't be used.
        """
        keys: list[Any] = [None] * len(instances)
        if isinstance(instances, np.ndarray):
            return Request(keys, [Part(DEFAULT, list(range(len(keys))), {self._name: instances})])
        found: dict[str, dict[int, Any]] = {name: {} for name in self._arguments}
        problems: dict[int, str] = {}
        for place, instance in enumerate(instances):
            try:
                if isinstance(instance, dict):
                    keys[place] = key_of(instance)
                signature, value = self._value(instance)
                found[signature][place] = value
            except InstanceError as error:
                problems[place] = str(error)
        if problems:
            raise BadInstancesError(problems, keys)
        parts = []
        for signature, values in found.items():
            if values:
                array = np.array([*values.values()], np.uint8 if signature == DEFAULT else object)
                parts.append(Part(signature, [*values], {self._arguments[signature]: array}))
        return Request(keys, parts)

    def blank(self) -> list[Any]:
        """Return an instance for each signature that takes images, to warm a model up with."""
        buffer = io.BytesIO()
        pixels = np.zeros(self._shape, np.uint8)
        Image.fromarray(pixels.squeeze(-1) if self._shape[-1] == 1 else pixels).save(buffer, "PNG")
        return [pixels.tolist(), {"b64": base64.b64encode(buffer.getvalue()).decode()}]

    def _value(self, instance: Any) -> tuple[str, Any]:
        """Return the signature that takes an instance, and its value for it."""
        value = instance
        if isinstance(instance, dict):
            value = {name: content for name, content in instance.items() if name != KEY}
            if len(value) != 1 or not value.keys() <= self._names:
                raise InstanceError(
                    f"has the fields {shown(', '.join(value))}; give one of "
                    f"{', '.join(sorted(self._names))}, and {KEY} if you like"
                )
            if "b64" not in value:
                (value,) = value.values()
        if isinstance(value, list):
            return DEFAULT, self._pixels(value)
        if not isinstance(value, dict):
            raise InstanceError(
                f'is {shown(value)}; an image is {{"b64": "..."}}, or a nested list of its pixels'
            )
        content = decoded(value)
        if content.startswith(_FILE_STARTS):
            check_file(content)
            return BYTES, content
        self._check_example(content)
        return EXAMPLES, content

    def _pixels(self, value: list[Any]) -> np.ndarray:
        try:
            # Of one type at once: a list of texts would become an array of the longest.
            pixels = np.array(value, np.float64)
        except (ValueError, TypeError, OverflowError):
            raise InstanceError(
                "is not a nested list of numbers, with rows of one length"
            ) from None
        if pixels.shape not in self._list_shapes:
            raise InstanceError(
                f"has pixels of shape {list(pixels.shape)}; the model takes {list(self._shape)}"
            )
        with np.errstate(invalid="ignore"):
            whole = pixels.astype(np.uint8)
        if not (whole == pixels).all():
            raise InstanceError("has pixels that are not whole numbers from 0 to 255; don't scale")
        return whole.reshape(self._shape)

    def _check_example(self, content: bytes) -> None:
        features = features_of(content)
        if self._name not in features:
            raise InstanceError(
                f"is neither a {', '.join(FORMATS[:-1])} or {FORMATS[-1]} image nor a serialized "
                f"tf.Example with the feature {self._name!r}"
            )
        for image in features[self._name].bytes_list.value:
            if image.startswith(_FILE_STARTS):
                check_file(image)


def _brackets(shape: Sequence[int]) -> bytes:
    """Return the JSON of an array of this shape without its numbers."""
    text = b""
    for size in reversed(shape):
        text = b"[" + b",".join([text] * size) + b"]"
    return text


def check_file(content: bytes) -> None:
    """Refuse an image file, by its header, that takes too much memory to decode.

    Raises:
        InstanceError: it is too large, animated, or its header is damaged.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(io.BytesIO(content), formats=FORMATS)
        width, height = image.size
        animated = image.format == "GIF" and image.is_animated  # type: ignore[attr-defined]
    # Whatever hostile bytes make a parser raise (OSError, SyntaxError, struct.error, ...).
    except Exception:
        raise InstanceError(f"is a damaged image, or more than {MAX_PIXELS:,} pixels") from None
    if width * height > MAX_PIXELS:
        raise InstanceError(f"is an image of {width}x{height}; send {MAX_PIXELS:,} pixels at most")
    if animated:
        raise InstanceError("is an animated GIF; send one frame")
