"""Test that a served model answers as evaluated, in every form that clients send."""

import math
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf

from tests.trainer.serving.serving_processes import b64, png
from trainer.data import records
from trainer.data.tables.columns import list_columns
from trainer.data.tables.inputs import row_values
from trainer.evaluation.prediction import read_stored_batches
from trainer.evaluation.scoring import evaluate


def judged(uri, dataset):
    """Return the probabilities of an evaluation, and the serialized test examples."""
    ((_, probabilities, _),) = evaluate(uri, dataset.uri).answers.blocks()
    examples = [
        record for batch in read_stored_batches(dataset, "test", 50) for record in batch.numpy()
    ]
    assert len(examples) == dataset.splits["test"].examples > 50
    return probabilities, examples


def check_answers(server, uri, dataset, form):
    """Ask for all test examples in a form, 40 at a time, and compare with their evaluation."""
    expected, examples = judged(uri, dataset)
    answers = []
    for start in range(0, len(examples), 40):
        status, content = server.ask([form(record) for record in examples[start : start + 40]])
        assert status == 200, content
        answers += content["predictions"]
    assert {answer["model_version"] for answer in answers} == {"model@7"}
    assert np.abs([answer["probabilities"] for answer in answers] - expected).max() < 1e-5
    assert expected.std() > 0.01
    best = [dataset.classes[at] for at in expected.argmax(axis=1)]
    assert [answer["label"] for answer in answers] == best


def pixels_of(example):
    raw = tf.train.Example.FromString(example).features.feature["image"].bytes_list.value[0]
    return np.frombuffer(raw, np.uint8).reshape(8, 8, 1)


@pytest.mark.parametrize(
    "form",
    [
        lambda example: b64(example),
        lambda example: pixels_of(example).tolist(),
        lambda example: {"image": pixels_of(example).squeeze(-1).tolist()},
        lambda example: pixels_of(example).astype(float).tolist(),
        lambda example: b64(png(pixels_of(example))),
        lambda example: {"image_bytes": b64(png(pixels_of(example)))},
    ],
    ids=["example", "pixels", "named gray pixels", "floats", "file", "named file"],
)
def test_images_are_answered_as_evaluated(image_server, image_model, digit_records, form):
    check_answers(image_server, image_model, digit_records, form)


def row_of(example, dataset):
    """Return the values of a serialized row by column, without missing ones."""
    values = row_values(records.parse(example), list_columns(dataset))
    present = {name: value for name, value in values.items() if value is not None}
    return {
        name: cell.decode() if isinstance(cell, bytes) else cell for name, cell in present.items()
    }


@pytest.mark.parametrize(
    "form",
    [
        lambda row, names: row,
        lambda row, names: {name: row.get(name) for name in names},
        lambda row, names: {name: str(value) for name, value in row.items()},
        lambda row, names: [row.get(name, "") for name in names],
        None,
    ],
    ids=["row", "row with nulls", "row of text", "list", "example"],
)
def test_rows_are_answered_as_evaluated(row_server, row_model, row_records, form):
    names = [column.name for column in list_columns(row_records)]
    assert names != sorted(names)
    sizes = set()

    def instance(example):
        row = row_of(example, row_records)
        sizes.add(len(row))
        return form(row, names) if form else b64(example)

    check_answers(row_server, row_model, row_records, instance)
    assert sizes >= {4, 5}


def test_record_without_any_value_is_refused_as_such_a_row_is(row_server, row_model, row_records):
    _, (example, *_) = judged(row_model, row_records)
    blank = tf.train.Example.FromString(example)
    for name, kind, missing in (
        ("bytes", "bytes_list", b" "),
        ("floats", "float_list", math.nan),
        ("ints", "int64_list", 0),
    ):
        values = getattr(blank.features.feature[name], kind).value
        assert values
        values[:] = [missing] * len(values)
    instances = [b64(example), b64(blank.SerializeToString())]
    status, content = row_server.ask(instances)
    assert (status, content["instances"]) == (
        400,
        [{"index": 1, "error": "has no value: each of its columns is missing"}],
    )
    blank.features.feature["ints"].int64_list.value[0] = 1
    assert row_server.ask([b64(blank.SerializeToString())])[0] == 200


def test_64_photos_are_one_request(image_server):
    noise = np.random.default_rng(0).integers(0, 256, (200, 300), np.uint8)
    photo = b64(png(noise[..., None]))
    status, content = image_server.ask([photo] * 64)
    assert (status, len(content["predictions"])) == (200, 64)
    assert 64 * len(photo["b64"]) > 3_000_000


def test_mixed_forms_are_answered_with_their_keys(image_server, image_model, digit_records):
    expected, examples = judged(image_model, digit_records)
    pixels = [pixels_of(example) for example in examples]
    instances = [
        {**b64(examples[0]), "key": "a"},
        {"image": pixels[1].tolist(), "key": 7},
        pixels[2].tolist(),
        {"image_bytes": b64(png(pixels[3])), "key": 2.5},
    ]
    status, content = image_server.ask(instances, parameters={"ignored": True})
    assert status == 200
    assert [answer.get("key") for answer in content["predictions"]] == ["a", 7, None, 2.5]
    probabilities = [answer["probabilities"] for answer in content["predictions"]]
    assert np.abs(probabilities - expected[:4]).max() < 1e-5


@pytest.mark.parametrize("seconds", [0.5, pytest.param(60, marks=pytest.mark.slow)])
def test_16_clients_get_their_own_answers(image_server, image_model, digit_records, seconds):
    expected, examples = judged(image_model, digit_records)
    end = time.monotonic() + seconds

    def client(number):
        took = []
        while (sent := time.monotonic()) < end:
            at, key = (number * 7 + len(took)) % len(examples), f"{number}/{len(took)}"
            status, content = image_server.ask([{**b64(examples[at]), "key": key}])
            took.append(time.monotonic() - sent)
            assert status == 200, content
            (answer,) = content["predictions"]
            assert answer["key"] == key
            assert np.abs(answer["probabilities"] - expected[at]).max() < 1e-5
        return took

    with ThreadPoolExecutor(16) as pool:
        took = np.concatenate(list(pool.map(client, range(16))))
    p50, p99 = np.percentile(took, [50, 99])
    print(f"{len(took)} answers; p50 {p50 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms")


def test_undecodable_file_fails_only_its_request(image_server):
    whole = png(np.full((8, 8, 1), 9, np.uint8))
    requests = [[b64(whole)] for _ in range(8)]
    requests[3] = [b64(whole), {**b64(whole[:-40]), "key": "cut"}, b64(whole)]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(image_server.ask, requests))
    status, content = results.pop(3)
    assert status == 400
    assert content["error"].startswith("1 of 3 instances can't be used: instances[1] can't be read")
    assert [(problem["index"], problem["key"]) for problem in content["instances"]] == [(1, "cut")]
    assert {status for status, _ in results} == {200}
