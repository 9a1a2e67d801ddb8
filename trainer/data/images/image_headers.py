"""Refuse images that a SavedModel's graph can't read as the records' decoder does.

TensorFlow ignores EXIF data, so operations of the graph look for it in the file: by sequences of
bytes that occur elsewhere in a megabyte by a chance of 1 in 10^10.
"""

import tensorflow as tf

_PNG_START = b"\x89PNG\r\n\x1a\n"
_TRANSPARENT = r"\C*\x00\x00[\x00\x01]\CtRNS\C*"
"""A PNG's chunk with the color, or the entries of a palette, that are transparent."""
_EXIF_STARTS = {"little": b"II*\0", "big": b"MM\0*"}
_ORIENTATION, _SHORT = 0x0112, 3
_REMEDY = "; convert it to an upright JPEG or PNG, or send it to this project's server"


def check(encoded: tf.Tensor) -> tf.Tensor:
    """Return an encoded image (string); fail, with the reason, unless the graph can read it."""
    is_png = tf.strings.substr(encoded, 0, 8) == _PNG_START
    problem = tf.case(
        [
            (tf.io.is_jpeg(encoded), lambda: _find_jpeg_problem(encoded)),
            (is_png, lambda: _find_png_problem(encoded)),
        ],
        default=lambda: tf.constant("is neither a JPEG nor a PNG"),
    )
    message = tf.strings.join(["the image ", problem, _REMEDY])
    with tf.control_dependencies([tf.debugging.Assert(tf.equal(problem, ""), [message])]):
        return tf.identity(encoded)


def _find_jpeg_problem(encoded: tf.Tensor) -> tf.Tensor:
    is_cmyk = tf.io.extract_jpeg_shape(encoded)[2] == 4
    return tf.where(is_cmyk, "is in CMYK", _find_turn(encoded, b"Exif\0\0"))


def _find_png_problem(encoded: tf.Tensor) -> tf.Tensor:
    is_transparent = tf.strings.regex_full_match(encoded, _TRANSPARENT)
    return tf.where(is_transparent, "has a transparent color", _find_turn(encoded, b"eXIf"))


def _find_turn(encoded: tf.Tensor, start: bytes) -> tf.Tensor:
    """Return how an image is turned, by the EXIF data that follow the bytes `start`, or ""."""
    turn = tf.constant("")
    for order, magic in _EXIF_STARTS.items():
        exif = _rest(encoded, start + magic)

        def read(order: str = order, exif: tf.Tensor = exif) -> tf.Tensor:
            return _read_turn(encoded, exif, is_little=order == "little")

        turn = tf.cond(exif == "", lambda turn=turn: turn, read)
    return turn


def _read_turn(encoded: tf.Tensor, exif: tf.Tensor, *, is_little: bool) -> tf.Tensor:
    """Return how an image is turned, or "".

    EXIF data (EXIF 2.3, 4.6.2) begin as a TIFF file does; `exif` is what follows the magic number.
    """

    def read(at: tf.Tensor | int, size: tf.Tensor | int) -> tf.Tensor:
        text = tf.strings.substr(exif, tf.clip_by_value(at, 0, tf.strings.length(exif)), size)
        return tf.cast(tf.io.decode_raw(text, tf.uint8, fixed_length=size), tf.int32)

    def number(digits: tf.Tensor) -> tf.Tensor:
        """Return the numbers of which each row holds the bytes."""
        places = [1 << 8 * place for place in range(digits.shape[-1])]
        return tf.reduce_sum(digits * (places if is_little else places[::-1]), -1)

    start = number(read(0, 4)) - 4
    count = number(read(start, 2))
    entries = tf.reshape(read(start + 2, 12 * tf.maximum(count, 1)), [-1, 12])[:count]
    is_tag = number(entries[:, :2]) == _ORIENTATION
    is_short = (number(entries[:, 2:4]) == _SHORT) & (number(entries[:, 4:8]) == 1)
    is_whole = (start >= 4) & (start + 2 + 12 * count <= tf.strings.length(exif))
    is_regular = is_whole & tf.reduce_all(is_short | ~is_tag)
    values = number(entries[:, 8:10])
    turn = tf.reduce_max(tf.where(is_tag & (values > 1) & (values <= 8), values, 0))
    # Without the tag, the records' decoder looks for one in XMP data.
    is_in_xmp = ~tf.reduce_any(is_tag) & tf.strings.regex_full_match(
        _rest(encoded, b"tiff:Orientation"), r'(="|>)[2-8]\C*'
    )
    named = tf.where(is_in_xmp, "is turned, by its XMP data", "")
    orientation = tf.strings.join(["has EXIF orientation ", tf.strings.as_string(turn)])
    named = tf.where(turn > 0, orientation, named)
    return tf.where(is_regular, named, "has EXIF data of an unusual form")


def _rest(text: tf.Tensor, start: bytes) -> tf.Tensor:
    """Return what follows the first occurrence of `start`, up to the next one, or ""."""
    return tf.concat([tf.strings.split(text, start), [""]], 0)[1]
