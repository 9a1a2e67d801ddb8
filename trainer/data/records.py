"""Read and write tf.train.Example and TFRecord files without TensorFlow.

Both are stable public formats: tensorflow/core/example/example.proto and feature.proto, and
https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details
"""

import struct
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import google_crc32c
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

Values = Mapping[str, bytes | int | float | list[int] | list[float]]

_MASK_DELTA = 0xA282EAD8


class DamagedFileError(Exception):
    """A TFRecord file is truncated, or a checksum in it is wrong."""


def serialize(values: Values) -> bytes:
    """Return the bytes of a tf.train.Example, which are equal for equal values."""
    example = _Example()
    for name, value in sorted(values.items()):
        feature = example.features.feature.add(key=name).value
        items = value if isinstance(value, list) else [value]
        if isinstance(items[0], bytes):
            feature.bytes_list.value.extend(items)
        elif isinstance(items[0], float):
            feature.float_list.value.extend(items)
        else:
            feature.int64_list.value.extend(items)
    return example.SerializeToString()


def parse(serialized: bytes) -> dict[str, list[Any]]:
    """Return the features of a tf.train.Example, each as a list; raise protobuf's DecodeError."""
    kinds = {e.key: e.value.ListFields() for e in _Example.FromString(serialized).features.feature}
    return {name: list(fields[0][1].value) for name, fields in kinds.items() if fields}


def frame(record: bytes) -> bytes:
    """Return a record in the file format: length, its checksum, the record, its checksum."""
    length = struct.pack("<Q", len(record))
    return b"".join((length, _checksum(length), record, _checksum(record)))


def read_record(file: BinaryIO) -> bytes | None:
    """Return the record at the file's position, or None at its end.

    Raise DamagedFileError if the file ends within the record, or a checksum is wrong.
    """
    head = file.read(12)
    if not head:
        return None
    if len(head) < 12 or _checksum(head[:8]) != head[8:]:
        raise DamagedFileError
    (length,) = struct.unpack("<Q", head[:8])
    body = file.read(length + 4)
    if len(body) < length + 4 or _checksum(body[:length]) != body[length:]:
        raise DamagedFileError
    return body[:length]


def read_records(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield (offset in bytes, record) of every record from the file's position on.

    Raise DamagedFileError as `read_record` does.
    """
    offset = file.tell()
    while (record := read_record(file)) is not None:
        yield offset, record
        offset += len(record) + 16


def mask(checksum: Any) -> Any:
    """Mask a CRC32C (int, or uint64 [n]) as the file format requires."""
    return ((checksum >> 15 | checksum << 17) + _MASK_DELTA) & 0xFFFFFFFF


def _checksum(data: bytes) -> bytes:
    return struct.pack("<I", mask(google_crc32c.value(data)))


_MESSAGES: dict[str, dict[str, str]] = {
    "BytesList": {"value": "repeated bytes"},
    "FloatList": {"value": "repeated float"},
    "Int64List": {"value": "repeated int64"},
    "Feature": {"bytes_list": "BytesList", "float_list": "FloatList", "int64_list": "Int64List"},
    "FeatureEntry": {"key": "string", "value": "Feature"},
    "Features": {"feature": "repeated FeatureEntry"},
    "Example": {"features": "Features"},
}
"""The fields of each message, numbered from 1. A map is serialized as a list of entries."""


def _example_class() -> Any:
    field_type = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="example.proto", package="tensorflow", syntax="proto3"
    )
    for name, described in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(described.items(), 1):
            *repeated, kind = kind.split()
            added = message.field.add(name=field, number=number)
            added.label = field_type.LABEL_REPEATED if repeated else field_type.LABEL_OPTIONAL
            if kind in _MESSAGES:
                added.type, added.type_name = field_type.TYPE_MESSAGE, f".tensorflow.{kind}"
            else:
                added.type = field_type.Type.Value(f"TYPE_{kind.upper()}")
    # Use a separate pool: TensorFlow registers the same names in the default one.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.Example"))


_Example = _example_class()
