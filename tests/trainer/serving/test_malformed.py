"""Test that malformed requests are answered by a status of 4xx, and harm nothing else."""

import json
import random
import re

import numpy as np
import pytest

from tests.odd_images import png as png_of
from tests.refusals import mutated
from tests.trainer.serving.serving_processes import b64, png
from trainer.data.images.pixels import PixelFormat
from trainer.data.source_options import SourceOptions
from trainer.serving.image_instances import ImageInstances

REQUESTS = 500
GROWTH = 60e6
"""Bytes that a process may gain over the requests; one photo of 25 million pixels takes 75 MB."""


INSTANCES = re.split(
    r" \|\s",
    r"""null | true | "text" | 1e999 | [NaN] | {} | {"key": 1} | {"": 1} | {"b64": 3} |
{"b64": {"b64": "QQ=="}} | {"b64": "\ud800"} | {"b64": "QQ==", "a": 1} |
{"key": NaN, "b64": "QQ=="} | {"key": {}, "b64": "QQ=="} | {"image": "x"} | {"hour": 1e400} |
{"miles": [1]} | {"payment": "\ud800"} | {"payment": true} | {"h\ud800": 1} | {"hour": 0.5}""",
)
IMAGES = [
    png_of(60_000, 60_000, 8, 2, b""),
    png_of(0, 0, 8, 2, b""),
    b"\xff\xd8\xff" * 1000,
    b"GIF89a",
]
IMAGES += [b"BM" + b"\xff" * 100, b"\n\x05\n\x03abc"]
BODIES = [
    b"",
    b"\xff\xfe{",
    b"[" * 100_000,
    b'{"instances": 1}',
    b'{"instances": []}',
    b'{"instances": {}}',
    b'["instances"]',
    b"null",
    b'{"instances": ' + b"[" * 60_000 + b"1" + b"]" * 60_000 + b"}",
]
for text in (
    *INSTANCES,
    "9" * 5000,
    '{"hour": ' + "9" * 400 + "}",
    '{"b64": "' + "A" * 1_000_000 + '"}',
    json.dumps(["x" * 300_000, *["y"] * 100_000]),
    json.dumps([[[1]] * 8] * 8).replace("[[1],", "1[[],", 1),
    *(json.dumps([[[pixel]] * 8] * 8) for pixel in (256, 0.5, -1, "a")),
    *(json.dumps(b64(image)) for image in IMAGES),
):
    BODIES.append(b'{"instances": [%s]}' % text.encode())


def valid(kind):
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 1), np.uint8)
    if kind == "image":
        instances = [{**b64(png(pixels)), "key": 1}, pixels.tolist()]
    else:
        row = {"hour": 3, "miles": 2.5, "payment": "card", "Zone Id": "7"}
        instances = [row, {**row, "key": "a", "company": None}]
    return json.dumps({"instances": instances}).encode()


@pytest.mark.parametrize("kind", ["image", "row"])
def test_500_malformed_requests_cost_no_error_and_no_memory(kind, request):
    server = request.getfixturevalue(f"{kind}_server")
    generator = random.Random(7)
    whole = valid(kind)
    bodies = [mutated(generator, whole) for _ in range(REQUESTS - len(BODIES))]
    statuses = [server.send("POST", server.route, body)[0] for body in BODIES]
    assert set(statuses) == {400}
    before = server.resident_bytes()
    for body in bodies:
        statuses.append(server.send("POST", server.route, body)[0])
    assert len(statuses) == REQUESTS
    assert set(statuses) == {200, 400}
    assert statuses.count(400) > REQUESTS // 2
    for body in BODIES:
        server.send("POST", server.route, body)
    after = server.resident_bytes()
    print(f"{before / 1e6:.0f} MB before, {after / 1e6:.0f} MB after")
    assert after - before < GROWTH
    assert server.send("POST", server.route, whole)[0] == 200


def test_pixels_are_parsed_as_by_json():
    pixels = np.random.default_rng(0).integers(0, 256, (2, 3, 4, 1), np.uint8)
    parser = ImageInstances("image", pixels.shape[1:], PixelFormat(SourceOptions(image_size=8)))
    read = 0
    for whole in (pixels, pixels.squeeze(-1)):
        body = json.dumps({"instances": whole.tolist()}).encode()
        assert (parser.parse_array(body) == pixels).all()
        # One byte for another at each place.
        for at in range(len(body)):
            for byte in b"[], 019-.}":
                parsed = parser.parse_array(body[:at] + bytes([byte]) + body[at + 1 :])
                if parsed is not None:
                    content = json.loads(body[:at] + bytes([byte]) + body[at + 1 :])
                    assert np.array(content["instances"]).tobytes() == parsed.astype(int).tobytes()
                    read += 1
    assert read > 500


BLANK = np.zeros((8, 8)).tolist()
VALID = {"image": [BLANK, {"image": BLANK, "key": 1}], "row": [{"hour": 1}, {"miles": 1}]}


@pytest.mark.parametrize(
    ("kind", "instance", "words"),
    [
        ("image", 3, 'is 3; an image is {"b64": "..."} or a nested list of pixels'),
        ("image", [[1, 2], [3, 4]], "has pixels of shape [2, 2]; the model needs [8, 8, 1]"),
        ("image", [[[300]] * 8] * 8, "that are not integers from 0 to 255; don't scale them"),
        ("image", {"b64": "?"}, "is not base64"),
        ("image", b64(b"text"), "can't be read: not a JPEG, PNG, BMP, GIF, WEBP or TIFF image"),
        (
            "image",
            b64(png_of(9000, 9000, 8, 2, b"")),
            "9000x9000 is too large; send at most 25,000,000 pixels",
        ),
        ("image", b64(b"\n\x05\n\x03abc"), "is neither a JPEG, PNG, BMP, GIF, WEBP or TIFF imag"),
        ("image", {"pixels": []}, "'pixels'; use one of b64, examples, image, image_bytes"),
        ("row", [1, 2], "a row is an object with columns by name, or a list of"),
        ("row", {"Zone Id": "1", "Zone_Id": "2"}, "has the same column twice, as 'Zone Id' and "),
        ("row", {"Zone-Id": "2"}, "the model lacks; did you mean 'Zone Id'?"),
        ("row", {"Zone\u00a0Id": "2"}, "that the model lacks; did you mean 'Zone Id'?"),
        ("row", {"huor": 1}, "a column 'huor' that the model lacks; did you mean 'hour'?"),
        ("row", {"hour": 1.5}, "hour is not a whole number: 1.5"),
        ("row", {"miles": "far"}, "miles is not a number: 'far'"),
        ("row", {"payment": [1]}, "payment is not text: a list of 1"),
        ("row", {"key": 3}, "has none of the columns"),
        ("row", {"miles": None, "payment": " \u2003"}, "has no value: each of its columns is miss"),
        ("row", [None, "nan", "", None, ""], "has no value: each of its columns is missing"),
        ("row", {"payment": "\u200b\0\ufeff"}, "has no value: each of its columns is missing"),
    ],
)
def test_unusable_instance_is_named_with_the_reason(request, kind, instance, words):
    first, third = VALID[kind]
    server = request.getfixturevalue(f"{kind}_server")
    status, content = server.ask([first, instance, third, instance])
    assert status == 400
    assert content["error"].startswith("2 of 4 instances can't be used: instances[1] ")
    assert [problem["index"] for problem in content["instances"]] == [1, 3]
    assert words in content["instances"][0]["error"]


def test_unknown_paths_and_methods_are_refused(image_server):
    assert image_server.send("GET", "/predict")[0] == 405
    assert image_server.send("POST", "/health")[0] == 405
    assert image_server.send("GET", "/docs")[0] == 404
