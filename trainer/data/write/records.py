"""tf.train.Example and the TFRecord file format, without TensorFlow.

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
    """A TFRecord file ends too early, or a checksum in it is wrong."""


def serialize(values: Values) -> bytes:
    """Return a tf.train.Example's bytes; equal values give equal bytes."""
    example = _Example()
    for name, value in values.items():
        feature = example.features.feature[name]
        items = value if isinstance(value, list) else [value]
        if isinstance(items[0], bytes):
            feature.bytes_list.value.extend(items)
        elif isinstance(items[0], float):
            feature.float_list.value.extend(items)
        else:
            feature.int64_list.value.extend(items)
    return example.SerializeToString(deterministic=True)


def parse(serialized: bytes) -> dict[str, list[Any]]:
    """Return the features of a tf.train.Example, each as a list.

    Raises:
        google.protobuf.message.DecodeError: `serialized` is not an Example.
    """
    features = _Example.FromString(serialized).features.feature
    return {name: list(getattr(one, one.WhichOneof("kind")).value) for name, one in features.items()
            if one.WhichOneof("kind")}  # fmt: skip


def frame(record: bytes) -> bytes:
    """Return a record as it lies in a file: length, its checksum, the record, its checksum."""
    length = struct.pack("<Q", len(record))
    return b"".join((length, _checksum(length), record, _checksum(record)))


def read_record(file: BinaryIO) -> bytes | None:
    """Return the record at the file's position, or None at its end.

    Raises:
        DamagedFileError: the file ends within the record, or a checksum is wrong.
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
    """Yield every record from the file's position on: (its offset in bytes, the record)."""
    offset = file.tell()
    while (record := read_record(file)) is not None:
        yield offset, record
        offset += len(record) + 16


def mask(checksum: Any) -> Any:
    """Mask a CRC32C (int, or uint64 [n]) as the file format has it."""
    return ((checksum >> 15 | checksum << 17) + _MASK_DELTA) & 0xFFFFFFFF


def _checksum(data: bytes) -> bytes:
    return struct.pack("<I", mask(google_crc32c.value(data)))


def _example_class() -> Any:
    """Return the message class of tf.train.Example, from a description of its two .proto files."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="example.proto", package="tensorflow", syntax="proto3"
    )

    def message(parent: Any, name: str, *fields: tuple[str, int, str], repeated: bool) -> Any:
        added = parent.add(name=name)
        for number, (field_name, kind, type_name) in enumerate(fields, 1):
            added.field.add(
                name=field_name,
                number=number,
                type=kind,
                type_name=type_name or None,
                label=field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL,
            )
        return added

    types = file.message_type
    message(types, "BytesList", ("value", field.TYPE_BYTES, ""), repeated=True)
    message(types, "FloatList", ("value", field.TYPE_FLOAT, ""), repeated=True)
    message(types, "Int64List", ("value", field.TYPE_INT64, ""), repeated=True)
    feature = message(
        types,
        "Feature",
        ("bytes_list", field.TYPE_MESSAGE, ".tensorflow.BytesList"),
        ("float_list", field.TYPE_MESSAGE, ".tensorflow.FloatList"),
        ("int64_list", field.TYPE_MESSAGE, ".tensorflow.Int64List"),
        repeated=False,
    )
    feature.oneof_decl.add(name="kind")
    for one in feature.field:
        one.oneof_index = 0
    entry = ".tensorflow.Features.FeatureEntry"
    features = message(types, "Features", ("feature", field.TYPE_MESSAGE, entry), repeated=True)
    message(
        features.nested_type,
        "FeatureEntry",
        ("key", field.TYPE_STRING, ""),
        ("value", field.TYPE_MESSAGE, ".tensorflow.Feature"),
        repeated=False,
    ).options.map_entry = True
    message(
        types, "Example", ("features", field.TYPE_MESSAGE, ".tensorflow.Features"), repeated=False
    )
    # A pool of its own: TensorFlow, in the same process, registers the same names.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.Example"))


_Example = _example_class()
