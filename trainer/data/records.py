"""Read and write tf.train.Example and TFRecord files without TensorFlow.

Both are stable public formats: tensorflow/core/example/example.proto and feature.proto, and
https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details

Many rows are written column by column. Their bytes equal those of a deterministic serialization by
Protocol Buffers, which would take ten times as long, row by row.
"""

import itertools
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

Values = Mapping[str, bytes | int | float | list[int] | list[float]]

_MASK_DELTA = 0xA282EAD8
_BYTES, _FLOATS, _INTS = 1, 2, 3
"""Field numbers of tensorflow.Feature."""

_Sized = tuple[list[Any], Any]
"""Parts to join, bytes or binary [n], and their total size in bytes: an int, or int64 [n]."""


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


def encode_features(features: Mapping[str, Sequence[pa.Array] | np.ndarray]) -> pa.Array:
    """Return the serialized features of each row, binary [n], in the order of `features`.

    A feature is columns of bytes, floats [n, k] or whole numbers that are not negative [n, k].
    """
    parts: list[Any] = []
    for name, values in features.items():
        parts += _encode_feature(name, values)[0]
    return _join_parts(parts)


def pack_values(columns: Sequence[pa.Array]) -> pa.Array:
    """Return the values of each row, each preceded by its length: binary [n]."""
    return _join_parts(_encode_list(columns)[0])


def frame_records(entries: pa.Array, labels: np.ndarray) -> pa.Array:
    """Return TFRecord records, binary [n], from `encode_features` and labels [n] or [n, k]."""
    label, size = _encode_feature("label", labels.reshape(len(labels), -1))
    parts, _ = _encode_field(1, ([entries, *label], _lengths(entries) + size))
    examples = _join_parts(parts)
    offsets = np.frombuffer(examples.buffers()[1], np.int32, len(examples) + 1, examples.offset * 4)
    content = examples.buffers()[2].to_pybytes() if len(examples) else b""
    ends = offsets.tolist()
    crc = google_crc32c.value
    checksums = [crc(content[begin:end]) for begin, end in itertools.pairwise(ends)]
    lengths = np.diff(offsets).astype("<u8")
    distinct, indices = np.unique(lengths, return_inverse=True)
    heads = np.zeros(len(distinct), [("length", "<u8"), ("checksum", "<u4")])
    heads["length"] = distinct
    heads["checksum"] = _mask(np.array([crc(length.tobytes()) for length in distinct], np.uint64))
    tails = _mask(np.array(checksums, np.uint64)).astype("<u4")
    return _join_parts([_to_binary(heads[indices]), examples, _to_binary(tails)])


def _encode_feature(name: str, values: Sequence[pa.Array] | np.ndarray) -> _Sized:
    """Return an entry of tensorflow.Features: the name and the values of a feature."""
    if not isinstance(values, np.ndarray):
        kind, packed = _BYTES, _encode_list(values)
    elif values.dtype.kind == "f":
        floats = _to_binary(values.astype("<f4", copy=False))
        kind, packed = _FLOATS, _encode_field(1, ([floats], 4 * values.shape[1]))
    else:
        varints = _encode_varints(values.astype(np.uint64, copy=False))
        kind, packed = _INTS, _encode_field(1, ([varints], _lengths(varints)))
    feature, size = _encode_field(2, _encode_field(kind, packed))
    key = b"\x0a%c%s" % (len(name), name.encode())
    return _encode_field(1, ([key, *feature], size + len(key)))


def _encode_field(field: int, content: _Sized) -> _Sized:
    """Return a field of wire type 2 of a protocol buffer message: tag, length, content."""
    parts, size = content
    tag = bytes([field << 3 | 2])
    if isinstance(size, int):
        head = tag + _encode_varints(np.array([[size]], np.uint64))[0].as_py()
        return [head, *parts], len(head) + size
    length = _encode_varints(size.astype(np.uint64)[:, None])
    return [tag, length, *parts], 1 + _lengths(length) + size


def _encode_list(columns: Sequence[pa.Array]) -> _Sized:
    """Return a BytesList with the value of each column."""
    parts: list[Any] = []
    total = 0
    for column in columns:
        column = column.cast(pa.binary())
        wrapped, size = _encode_field(1, ([column], _lengths(column)))
        parts += wrapped
        total = total + size
    return parts, total


def _join_parts(parts: Iterable[Any]) -> pa.Array:
    """Return the concatenated parts of each row, binary [n]."""
    merged: list[Any] = []
    for part in parts:
        if isinstance(part, bytes) and merged and isinstance(merged[-1], bytes):
            merged[-1] += part
        else:
            merged.append(part)
    empty = pa.scalar(b"", pa.binary())
    columns = [pa.scalar(part, pa.binary()) if isinstance(part, bytes) else part for part in merged]
    return pc.binary_join_element_wise(*columns, empty)


def _lengths(column: pa.Array) -> np.ndarray:
    return pc.binary_length(column).to_numpy(zero_copy_only=False).astype(np.int64)


def _to_binary(rows: np.ndarray) -> pa.Array:
    """Return the bytes of each row of an array, binary [n]."""
    width = rows.nbytes // max(1, len(rows))
    offsets = np.arange(len(rows) + 1, dtype=np.int32) * np.int32(width)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(rows))]
    return pa.Array.from_buffers(pa.binary(), len(rows), buffers)


def _encode_varints(values: np.ndarray) -> pa.Array:
    """Return each row's numbers (uint64 [n, k]) as varints, concatenated, binary [n]."""
    flat = values.reshape(-1)
    maximum = int(flat.max(initial=0))
    sizes = np.ones(len(flat), np.int64)
    for bits in range(7, maximum.bit_length(), 7):
        sizes += flat >= np.uint64(1 << bits)
    ends = np.cumsum(sizes)
    starts = ends - sizes
    data = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    for position in range(int(sizes.max(initial=0))):
        long = sizes > position
        digits = ((flat[long] >> np.uint64(7 * position)) & np.uint64(0x7F)).astype(np.uint8)
        more = ((sizes[long] > position + 1) << 7).astype(np.uint8)
        data[starts[long] + position] = digits | more
    offsets = np.concatenate(([0], ends[values.shape[1] - 1 :: values.shape[1]])).astype(np.int32)
    return pa.Array.from_buffers(
        pa.binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def _mask(checksum: Any) -> Any:
    """Mask a CRC32C (int, or uint64 [n]) as the file format requires."""
    return ((checksum >> 15 | checksum << 17) + _MASK_DELTA) & 0xFFFFFFFF


def _checksum(data: bytes) -> bytes:
    return struct.pack("<I", _mask(google_crc32c.value(data)))


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
