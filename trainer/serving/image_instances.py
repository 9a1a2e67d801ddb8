"""Parse instances for a model of images: pixels, image files or tf.Examples.

[[[0], [255], ...], ...]                  pixels, as uint8 [height, width, channels]
{"b64": "..."}                            an image file or a serialized tf.Example
{"image": [...] or {"b64": "..."}, "key": 7}
                                          the same with a key; the field may also be named
                                          `image_bytes`, `examples` or `b64`
"""

import base64
import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pydantic_core

from trainer.data.images.pixels import FORMATS, PixelFormat
from trainer.serving import image_files
from trainer.serving.image_files import Outcome
from trainer.serving.instances import (
    BYTES,
    DEFAULT,
    EXAMPLES,
    FILES,
    KEY,
    BadInstancesError,
    InstanceError,
    Request,
    SignatureInstances,
    decode_base64,
    format_value,
    group_instances,
    parse_features,
)
from vertex.formats import choices

_BODY_START = b'{"instances":'
_DIGITS_AS_0 = bytes.maketrans(b"123456789", b"0" * 9)
_EXAMPLE_START = b"\n"
"""First byte of a serialized tf.Example, and of no image file."""


class ImageInstances:
    """Parse the instances of a request to a model of images.

    Args:
        name: name of the argument of serving_default and of the image feature in records.
        shape: height, width and channels of the model's input.
        records: format of the records that the model was trained on.
    """

    def __init__(self, name: str, shape: tuple[int, ...], records: PixelFormat) -> None:
        self._records = records
        self._name = name
        self._shape = shape
        self._list_shapes = (shape, shape[:-1]) if shape[-1] == 1 else (shape,)
        self._brackets = [_brackets(list_shape) for list_shape in self._list_shapes]
        self._arguments = {DEFAULT: name, BYTES: "image_bytes", EXAMPLES: "examples"}
        self._names = {"b64", *self._arguments.values()}
        self._arguments[FILES] = FILES

    def parse_array(self, body: bytearray) -> np.ndarray | None:
        """Parse a body that contains only pixels to [n, height, width, channels], or return None.

        Checks that brackets are nested as in images, and then parses the numbers as one flat list,
        which is several times faster than parsing nested lists.
        """
        if not (body.startswith(_BODY_START) and body.endswith(b"}")):
            return None
        text = body[len(_BODY_START) : -1]
        structure = text.translate(_DIGITS_AS_0, b" \t\r\n")
        # A number never directly precedes [ or follows ].
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
        """Convert instances from JSON, or an array from `parse_array`; see `group_instances`."""
        if not isinstance(instances, np.ndarray):
            return group_instances(instances, self._parse_instance, self._build_inputs)
        part = SignatureInstances(DEFAULT, list(range(len(instances))), {self._name: instances})
        return Request([None] * len(instances), [part])

    def make_blank(self) -> Request:
        """Return pixels and a record, to warm up the model."""
        import tensorflow as tf

        pixels = np.zeros(self._shape, np.uint8)
        is_raw = self._records.feature.encoding == "raw"
        image = pixels.tobytes() if is_raw else tf.io.encode_jpeg(pixels).numpy()
        content = base64.b64encode(self._build_example(image)).decode()
        return self.parse([pixels.tolist(), {"b64": content}])

    def decode_files(self, request: Request) -> Request:
        """Decode the files of a request in this process; raise as `merge_files`."""
        return self.merge_files(request, image_files.decode_all(self._records, request.files))

    def merge_files(self, request: Request, outcomes: Sequence[Outcome]) -> Request:
        """Return a request with decoded images in place of its files.

        Raise BadInstancesError if some can't be used.
        """
        parts = {part.signature: part for part in request.parts}
        files = parts.pop(FILES, None)
        if files is None:
            return request
        indexed = dict(zip(files.indices, outcomes, strict=True))
        problems = {index: outcome.problem for index, outcome in indexed.items() if outcome.problem}
        if problems:
            raise BadInstancesError(problems, request.keys)
        values: list[Any] = [outcome.stored for outcome in outcomes]
        if self._records.feature.encoding == "raw":
            signature = DEFAULT
            values = [np.frombuffer(image, np.uint8).reshape(self._shape) for image in values]
        else:
            signature, values = EXAMPLES, [self._build_example(image) for image in values]
        inputs = self._build_inputs(signature, dict(enumerate(values)), {})
        return Request(
            request.keys, [*parts.values(), SignatureInstances(signature, files.indices, inputs)]
        )

    def _parse_instance(self, instance: Any) -> tuple[str, Any]:
        value = instance
        if isinstance(instance, dict):
            value = {name: content for name, content in instance.items() if name != KEY}
            if len(value) != 1 or not value.keys() <= self._names:
                raise InstanceError(
                    f"has the fields {format_value(', '.join(value))}; use one of "
                    f"{', '.join(sorted(self._names))}, and optionally {KEY}"
                )
            if "b64" not in value:
                (value,) = value.values()
        if isinstance(value, list):
            return DEFAULT, self._parse_pixels(value)
        if not isinstance(value, dict):
            raise InstanceError(
                f'is {format_value(value)}; an image is {{"b64": "..."}} or a nested list of pixels'
            )
        content = decode_base64(value)
        if not content.startswith(_EXAMPLE_START):
            return FILES, content
        self._check_example(content)
        return EXAMPLES, content

    def _build_inputs(
        self, signature: str, values: dict[int, Any], _: dict[int, str]
    ) -> dict[str, np.ndarray]:
        kind = np.uint8 if signature == DEFAULT else object
        return {self._arguments[signature]: np.array([*values.values()], kind)}

    def _parse_pixels(self, value: list[Any]) -> np.ndarray:
        try:
            # Without a dtype, a list of texts would become an array as wide as the longest text.
            pixels = np.array(value, np.float64)
        except (ValueError, TypeError, OverflowError):
            raise InstanceError("is not a nested list of numbers in rows of one length") from None
        if pixels.shape not in self._list_shapes:
            raise InstanceError(
                f"has pixels of shape {list(pixels.shape)}; the model needs {list(self._shape)}"
            )
        with np.errstate(invalid="ignore"):
            whole = pixels.astype(np.uint8)
        if not (whole == pixels).all():
            raise InstanceError("has pixels that are not integers from 0 to 255; don't scale them")
        return whole.reshape(self._shape)

    def _check_example(self, content: bytes) -> None:
        features = parse_features(content)
        if self._name not in features:
            raise InstanceError(
                f"is neither a {choices(FORMATS)} image nor a serialized tf.Example with the "
                f"feature {self._name!r}"
            )
        for image in features[self._name].bytes_list.value:
            image_files.check_stored(image, self._shape, self._records)

    def _build_example(self, image: bytes) -> bytes:
        # Imported here, as in instances.py.
        import tensorflow as tf

        example = tf.train.Example()
        example.features.feature[self._name].bytes_list.value.append(image)
        return example.SerializeToString()


def _brackets(shape: Sequence[int]) -> bytes:
    """Return the brackets and commas in the JSON of an array with this shape."""
    text = b""
    for size in reversed(shape):
        text = b"[" + b",".join([text] * size) + b"]"
    return text
