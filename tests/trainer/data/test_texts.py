"""Texts of a table: their words, the vocabulary that is learned from them, and their ids."""

import csv
import itertools
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from pipelines import request_drift
from tests import tables
from tests.child_processes import ROOT
from tests.refusals import refused
from tests.trainer.data.picture_folders import content
from trainer.data.schema import Dataset
from trainer.data.tables import statistics, words
from trainer.data.tables.inputs import Encoder, list_texts, parse_columns
from trainer.data.tables.words import split_words
from trainer.evaluation import drift


def write_texts(folder, texts, **options) -> Dataset:
    """Write records of texts, all of them for training, and of two test rows without text."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [(text, "ab"[number % 2], "train") for number, text in enumerate(texts)]
    with (folder / "t.csv").open("w", newline="", encoding="utf-8") as file:
        header = ("comment", "kind", "split")
        csv.writer(file).writerows([header, *rows, ("", "a", "test"), ("", "b", "test")])
    return tables.write(
        folder / "t.csv",
        folder / "out",
        columns=[{"name": "comment", "type": "text", **options}],
        crosses=[],
        label={"column": "kind"},
        split_by={"column": "split"},
    )


def words_of(text: str | bytes, limit: int = 50) -> list[str]:
    given = text.encode() if isinstance(text, str) else text
    return [word.decode() for word in split_words([given], limit).numpy()[0].tolist() if word]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I don't KNOW; it\u2019s ok", "i dont know ; its ok"),
        ("3.14 rock'n'roll #tag", "3 . 14 rocknroll # tag"),
        (
            "\u00c9T\u00c9 \u0130zmir \u03a3\u0391\u03a3",
            "\u00e9t\u00e9 izmir \u03c3\u03b1\u03c2",
        ),
        ("Cafe\u0301 Stra\u00dfe", "cafe\u0301 stra\u00dfe"),
        ("\u65e5\u672c\u8a9eok\u30c6", "\u65e5 \u672c \u8a9e ok \u30c6"),
        ("\u0e44\u0e17\u0e22", "\u0e44 \u0e17 \u0e22"),
        ("good\u2764\ufe0f\U0001f44d\U0001f3fd!!", "good \u2764 \U0001f44d \U0001f3fd ! !"),
        ("\U0001f468\u200d\U0001f469", "\U0001f468 \U0001f469"),
        ("a\0b\x01c\u200bd\u00a0e\u3000f\ne", "a b c d e f e"),
        ("", ""),
        ("\0\u200b '", ""),
        (b"caf\xe9 \xff\xfeb", "caf \ufffd \ufffd \ufffd b"),
    ],
)
def test_text_is_split_into_words(text, expected):
    assert words_of(text) == expected.split(" ") * bool(expected)


@pytest.mark.slow
def test_words_do_not_depend_on_the_locale():
    code = (
        "from trainer.data.tables.words import split_words\n"
        "print(split_words(['TITLE \u0130zmir'], 2).numpy()[0].tolist())"
    )
    environment = {**os.environ, "LC_ALL": "tr_TR.UTF-8", "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-c", code]
    printed = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True)
    assert printed.stdout.decode().strip() == "[b'title', b'izmir']"


def draw_text(generator) -> str:
    """Draw characters from all of Unicode, half of them from a few scripts and symbols."""
    common = [
        *"aZ09 '\u2019.!?\u00df\u00c9\u0130\u03a3\u65e5\u0e44\u2764\ufe0f\u200d\u0301\U0001f44d"
    ]
    drawn = [
        generator.choice(common)
        if generator.random() < 0.5
        else chr(generator.integers(1, sys.maxunicode))
        for _ in range(generator.integers(1, 40))
    ]
    return "".join(drawn).encode(errors="ignore").decode()  # without surrogates


@pytest.mark.slow
def test_every_word_of_any_text_has_its_id(tmp_path):
    generator = np.random.default_rng(0)
    texts = [f"w {draw_text(generator)}" for _ in range(800)]
    dataset = write_texts(tmp_path, texts * 2, terms=10**5)
    column = dataset.features[0]
    shards = [dataset.shard_uri(shard) for shard in dataset.splits["train"].shards]
    raw = parse_columns(tf.stack(list(tf.data.TFRecordDataset(shards))), dataset)
    ids = Encoder(dataset)(raw)["words"].numpy()
    (text,) = list_texts(dataset)
    assert ids.shape == (2 * len(texts), text.width) and ids.max() == text.size - 1
    for row, value in zip(ids, raw["comment"].numpy(), strict=True):
        found = words_of(value)[: column.settings["longest"]]
        pairs = [f"{one} {other}" for one, other in itertools.pairwise(found)]
        named = [column.settings["vocabulary"][index - 1] for index in row if index]
        assert named == [*found, *pairs]


def test_vocabulary_has_the_most_common_words_and_pairs(tmp_path):
    texts = ["good good day"] * 6 + ["Good night"] * 3 + ["Bad night!"] * 2 + ["", " "]
    dataset = write_texts(tmp_path, texts * 2, terms=6, minimum_count=5)
    column = dataset.features[0]
    # A text counts once for a word; ties are by name.
    assert column.settings["vocabulary"] == [
        "good",
        "day",
        "good day",
        "good good",
        "night",
        "good night",
    ]
    assert column.statistics["missing"]["train"] == pytest.approx(2 / 13)
    assert sum(column.statistics["counts"].values()) == 22
    encoded = Encoder(dataset)({"comment": tf.constant(["GOOD day, good", "", "other"])})
    assert column.settings["longest"] == 3
    assert encoded["words"].numpy().tolist() == [[1, 2, 0, 3, 0], [0] * 5, [0] * 5]
    assert encoded["ids"].numpy().tolist() == [[1], [0], [1]]
    once = write_texts(tmp_path / "once", [*texts, "Otto 7"])
    assert not {"otto", "7", "otto 7"} & {*once.features[0].settings["vocabulary"]}
    least = write_texts(tmp_path / "least", texts * 2, minimum_count=12)
    assert least.features[0].settings["vocabulary"] == ["good", "day", "good day", "good good"]


def test_long_text_is_cut_off(tmp_path):
    long = " ".join(f"w{number}" for number in range(50))
    dataset = write_texts(tmp_path, [long] * 30, words=4)
    column = dataset.features[0]
    assert column.settings["longest"] == 4
    assert {*column.settings["vocabulary"]} == {"w0", "w1", "w2", "w3", "w0 w1", "w1 w2", "w2 w3"}
    assert tables.read_rows(dataset)[0]["comment"].decode() == long
    assert words_of("\u00e9" * 100, 4) == ["\u00e9" * 40]


def test_vocabulary_of_many_texts_depends_on_neither_order_nor_blocks(tmp_path, monkeypatch):
    generator = np.random.default_rng(3)
    texts = [" ".join(f"w{n}" for n in generator.zipf(1.5, 9).clip(max=300)) for _ in range(900)]
    monkeypatch.setattr(statistics, "SAMPLE", 200)
    monkeypatch.setattr(words, "MAX_COUNTED", 500)
    monkeypatch.setattr(words, "_TEXTS", 64)
    (tmp_path / "b").mkdir()
    rows = [f"{text},{'ab'[len(text) % 2]}" for text in texts]
    written = []
    for name, order in (("a", rows), ("b", rows[::-1])):
        table = tables.write_csv(tmp_path / name / "t.csv", order, "comment,kind")
        options = {"columns": [{"name": "comment", "type": "text"}], "crosses": []}
        written.append(
            tables.write(table, tmp_path / name / "out", **options, label={"column": "kind"})
        )
    one, other = (dataset.features[0] for dataset in written)
    assert one.settings == other.settings and one.statistics == other.statistics
    assert one.settings["vocabulary"][0] == "w1" and len(one.settings["vocabulary"]) <= 500
    train = written[0].splits["train"].examples
    assert sum(one.statistics["counts"].values()) == pytest.approx(train, abs=25)


def test_text_of_numbers_is_refused(tmp_path):
    message = refused(write_texts, tmp_path, ["17", " 2.5", ""] * 20)
    assert "'comment' is a text column, but contains only numbers, such as" in message
    assert "; make it numeric or, if they are names, a vocabulary" in message


def test_table_without_any_text_is_written(tmp_path):
    dataset = write_texts(tmp_path, [""] * 40)
    assert dataset.features[0].settings["vocabulary"] == []
    encoded = Encoder(dataset)({"comment": tf.constant(["some", ""])})
    assert encoded["words"].numpy().tolist() == [[0], [0]]
    assert content(tmp_path / "out")


def test_other_words_are_drift(tmp_path):
    generator = np.random.default_rng(4)

    def draw(common: str, count: int) -> list[str]:
        words = [*common.split(), *(f"w{number}" for number in range(300))]
        shares = np.array([0.1] * 4 + [0.002] * 300)
        return [" ".join(generator.choice(words, 8, p=shares)) for _ in range(count)]

    before = write_texts(tmp_path / "before", draw("the a of to", 1500))
    same, other = draw("the a of to", 700), draw("der ein von zu", 700)
    now = {name: write_texts(tmp_path / name, texts) for name, texts in (("s", same), ("o", other))}
    (column, _), _ = drift.measure(before, now["s"])
    assert (column.name, column.is_drift) == ("comment", False)
    (column, _), _ = drift.measure(before, now["o"])
    assert (
        column.name == "comment"
        and column.is_drift
        and column.bins["the"]
        == (
            pytest.approx(0.1, abs=0.03),
            0,
        )
    )
    for texts, is_drift in ((same, False), (other, True)):
        ((column,), _), rows = request_drift.measure(before, [{"comment": one} for one in texts])
        assert rows == 700 and column.is_drift is is_drift
