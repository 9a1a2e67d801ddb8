"""Split texts into words, and learn the words and pairs of words of a column.

Vocabularies and the SavedModel share one function of TensorFlow operations, so that a text has the
same words in both, in any language.
"""

import collections
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from trainer.data.tables.columns import WORD_CHARACTERS

MAX_COUNTED = 10**6
"""Number of words and pairs that are counted at once, some 150 MB; then the rarest are dropped."""

LONGER = 0.999
"""Share of texts of which a model reads all words; a few long ones would make its input wide."""

_TEXTS = 1 << 10
"""Number of texts that are split at once."""
_HASHES = 2**31 - 1
_UNSPACED = "".join(
    rf"\p{{{script}}}"
    for script in ("Han", "Hiragana", "Katakana", "Thai", "Lao", "Khmer", "Myanmar")
)
_STEPS = (
    # Apostrophes, so that don't is one word; the dot of a Turkish I; the selector of emoji.
    (r"['\x{2018}\x{2019}\x{2bc}\x{307}\x{fe0f}]", ""),
    (rf"([^\pL\pM\pN]|[{_UNSPACED}])", r" \1 "),
)
"""Parts of a lower-case text to replace, in the syntax of RE2."""


class Terms(NamedTuple):
    """The words and pairs of words that a column's texts have."""

    vocabulary: list[str]  # the most common first; a pair of words has a space
    longest: int  # number of words that a text has at most, except for 1 of 1000
    drawn: dict[str, int]  # number of texts from which `draw_words` draws each word


def split_words(texts: Any, words: int) -> tf.Tensor:
    """Return the first words of texts in lower case, string [n, words], "" where there are fewer.

    A word is a run of letters, marks and digits, without apostrophes; in scripts without spaces
    between words, such as Chinese and Thai, each character is one. Punctuation marks, emoji and
    other symbols are words, too. Control characters and whitespace only separate words.

    Args:
        texts: string [n], UTF-8.
    """
    texts = tf.convert_to_tensor(texts, tf.string)
    texts = tf.strings.substr(texts, 0, words * WORD_CHARACTERS, unit="UTF8_CHAR")
    # tf.strings.lower ends at a null character, and changes I by the locale's language.
    texts = tf.strings.regex_replace(texts, r"[\pZ\pC]+", " ")
    texts = tf.strings.regex_replace(texts, "I", "i")
    texts = tf.strings.lower(texts, encoding="utf-8")
    for pattern, replacement in _STEPS:
        texts = tf.strings.regex_replace(texts, pattern, replacement)
    return tf.strings.split(texts)[:, :words].to_tensor("", shape=[None, words])


def list_terms(words: tf.Tensor) -> tf.Tensor:
    """Return the words [n, k] of texts, then the pairs of adjacent words: string [n, 2k - 1]."""
    pairs = tf.strings.join([words[:, :-1], words[:, 1:]], " ")
    return tf.concat([words, tf.where(words[:, 1:] == "", "", pairs)], axis=1)


def draw_words(texts: np.ndarray, words: int) -> list[str]:
    """Return a word of each text (bytes, [n]) that has any; the text alone determines which."""
    drawn: list[bytes] = []
    for start in range(0, len(texts), _TEXTS):
        drawn += _draw(split_words(texts[start : start + _TEXTS], words))
    return [word.decode() for word in drawn]


def _draw(words: tf.Tensor) -> list[bytes]:
    counts = tf.math.count_nonzero(words != "", axis=1)
    hashes = tf.strings.to_hash_bucket_fast(tf.strings.reduce_join(words, axis=1), _HASHES)
    places = hashes % tf.maximum(counts, 1)
    drawn = tf.gather(words, places, batch_dims=1).numpy().tolist()
    return [word for word in drawn if word]


def learn_terms(texts: np.ndarray, *, terms: int, minimum_count: int, words: int) -> Terms:
    """Return the terms of texts (bytes, [n]); the order of texts may matter.

    Args:
        terms: largest size of the vocabulary.
        minimum_count: number of texts that must have a term.
        words: number of words that are read of a text.
    """
    counts: collections.Counter[bytes] = collections.Counter()
    drawn: collections.Counter[bytes] = collections.Counter()
    lengths: list[int] = [1]
    for start in range(0, len(texts), _TEXTS):
        split = split_words(texts[start : start + _TEXTS], words)
        drawn.update(_draw(split))
        lengths += tf.math.count_nonzero(split != "", axis=1).numpy().tolist()
        found = list_terms(split)
        places = tf.where(found != "")
        names, codes = tf.unique(tf.gather_nd(found, places), tf.int64)
        # A text counts once for each of its terms.
        once = np.unique(places[:, 0].numpy() * len(names) + codes.numpy())
        by_name = np.bincount(once % len(names)) if len(names) else np.zeros(0, int)
        counts.update(dict(zip(names.numpy().tolist(), by_name.tolist(), strict=True)))
        if len(counts) > MAX_COUNTED:
            counts = collections.Counter(dict(_rank(counts)[: MAX_COUNTED // 2]))
    common = [term for term, count in _rank(counts)[:terms] if count >= minimum_count]
    return Terms(
        [term.decode() for term in common],
        int(np.quantile(lengths, LONGER, method="higher")),
        {word.decode(): count for word, count in _rank(drawn)},
    )


def _rank(counts: collections.Counter[bytes]) -> list[tuple[bytes, int]]:
    """Return the counts by falling count, then by name."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))
