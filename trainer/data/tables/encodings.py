"""Find the encoding of a table that is not in UTF-8, by the words in it.

chardet rates each encoding of one byte a character by the letters of 50 languages. (Of 194 small
tables of names in 22 encodings, it reads 185 rightly, and charset-normalizer 127.) Names of cities
and persons in a small table are little evidence. So readings with signs in the middle of words are
excluded, and words in the letters of one language are evidence. The best reading must be better
than any other by a margin, to which each word counts that they read differently. Encodings of East
Asia are rated by their common characters, too.
"""

import functools
import itertools
import math
import re
import unicodedata
from collections.abc import Iterable
from typing import NamedTuple

from vertex.errors import InputError

SINGLE_BYTE = (
    "cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258",
    "cp874", "koi8-r", "koi8-u", "iso8859-15", "iso8859-2", "iso8859-5", "iso8859-7", "iso8859-9",
    "iso8859-13", "mac-roman", "mac-latin2", "mac-cyrillic", "mac-greek", "mac-turkish", "cp866",
    "cp850", "cp852", "cp437", "cp857", "cp737", "cp862",
)  # fmt: skip
"""Encodings of one byte a character; of those that read a table alike, the first is chosen."""


class _Pairs(NamedTuple):
    """An encoding of two bytes a character."""

    common: range  # first bytes of common characters
    letters: tuple[int, ...]  # first bytes of kana
    signs: tuple[int, ...]  # first bytes of signs, which say nothing
    second: int  # smallest second byte of common characters
    size: int  # number of common characters
    rated: str = ""  # chardet's name of it, if it has another


_EAST_ASIAN = {
    "cp949": _Pairs(range(0xB0, 0xC9), (), (0xA1, 0xA2, 0xA3, 0xA7), 0xA1, 2350),
    "gb18030": _Pairs(range(0xB0, 0xD8), (), (0xA1, 0xA2, 0xA3), 0xA1, 3755),
    "euc-jp": _Pairs(
        range(0xB0, 0xD0), (0xA4, 0xA5), (0xA1, 0xA2, 0xA3), 0xA1, 3134, "euc_jis_2004"
    ),
    "cp950": _Pairs(range(0xA4, 0xC7), (), (0xA1, 0xA2, 0xA3), 0x40, 5401, "big5hkscs"),
    "cp932": _Pairs(range(0x88, 0x99), (0x82, 0x83), (0x81,), 0x40, 3134),
}
_MARGIN = 2.1
"""Log-likelihood by which the best reading must exceed any other. With it, none of 10,875 tables
of 1 to 12 names was read wrongly; 1 in 6 with 4 names was refused, and 1 in 23 with 8."""
_PAIRS_MARGIN = 5.0
_PAIRS_WEIGHT = 0.4
"""Of chardet's confidence, which is wrong for one in 50 lists of names in EUC-JP."""
_WITHOUT_KANA = 4.0
"""Log of how much rarer Japanese tables in EUC-JP without any kana are than Korean ones."""
_FEW = 4
"""Different characters that may be East Asian by accident."""
_SHARED = 0.5
"""Share of a word's evidence if two readings read it alike."""
_MOST_WORDS = 60
"""More different words than this do not make a reading more certain: all may share one cause."""
_RARE = 0.7
"""Log of how much rarer encodings of DOS, Macintosh and ISO are than those of Windows."""
_WESTERN = 1.0
_FOREIGN = 1.0
"""Log of how much rarer a word is that has letters of another language than most words."""
_ALPHABETS = tuple(
    set(letters)
    for letters in (
        "äöüß",
        "àâæçèéêëîïôœùûüÿ",
        "áéíñóúüªº",
        "àáâãçéêíóôõúªº",
        "àèéìîòóù",
        "àçèéíïòóúü·",
        "åäöæøéü",
        "áæéíðóöúýþ",
        "áèéëïóöü",
        "ąćęłńóśźż",
        "áäčďéěíĺľňóôŕřšťúůýž",
        "áéíóöőúüű",
        "ćčđšž",
        "âăîşţ",
        "âçğıîöşüû\u0307",
        "ąčėęįšūųž",
        "āčēģīķļņšūž",
        "äõöüšž",
    )
)
"""Latin letters beyond ASCII of the languages that write in an encoding of one byte."""
_SHOWN = 4
_MOST_WRONG = 0.25
_FEW_RARE, _MOST_RARE = 0.08, 0.5
"""Share of rare characters in East Asian texts, and in a few words."""
_UNLIKELY = 0.01
"""Rating of a reading in no language."""
_LIKELY = 0.08
_WORD = re.compile(r"[^\x00-\x40\[-`{-\x7f]+")
_JOINERS = "\u200c\u200d\u200e\u200f"
_SIGNS = re.compile(r"(?<![^\x00-\x7f])[°±²³µ½¼¾§£€©®·×º](?![^\x00-\x7f])")  # noqa: RUF001
"""Signs alone, which need no word beside them to be known."""
_AROUND_WORDS = "’‘“”„‚«»‹›…–—€№ \xa0" + _JOINERS  # noqa: RUF001
_NOT_INSIDE = "«»¿¡“„”‚‹›‘…€№"  # noqa: RUF001
_OPENING, _CLOSING = re.compile("[„‚«‹‘]"), re.compile("[“”»›’]")  # noqa: RUF001
_BLANK_AT_END = re.compile(r"^\xa0+[^\x00-\xa0]|[^\x00-\xa0]\xa0+$")
_WITH_SIGNS = re.compile(
    r"(?i)([ckm]?m|ft)[²³]|µ(mol|[a-z]{0,2})|n[°ºª]|.*l·l.*|[¿¡].*|.{0,3}[ºª]|§|[CF]?°[CF]?"
)


class _EncodingCandidate(NamedTuple):
    encoding: str
    wrong: float  # share of words that look wrong
    rating: float  # log-likelihood
    text: str
    confidence: float = 1.0
    prior: float = 0.0


def find_encoding(uri: str, raw: bytes) -> str:
    """Return the encoding of text that is not UTF-8.

    Raise InputError if there are several readings, with each, or none.
    """
    # In Big5, Shift-JIS and GB18030, half of a character may be a pipe.
    has_pipes = raw.count(b"|") > max(map(raw.count, (b",", b";", b"\t")))
    fields = {
        field.strip(b" \r\"'")
        for line in raw.split(b"\n")
        for field in re.split(rb"\|" if has_pipes else rb"[,;\t]", line)
        if re.search(rb"[A-Za-z\x80-\xff]", field)
    }
    words = sorted(field for field in fields if not field.isascii())
    text = b"\n".join(words)
    western = text.decode("cp1252", "replace")
    if _SIGNS.sub("", western).isascii() and not any(map(_looks_wrong, western.split("\n"))):
        return "cp1252"
    single = _read_single_bytes(text, b"\n".join(sorted(fields)), len(words))
    pairs = _read_pairs(text, len(words))
    least = min((reading.wrong for reading in (*single, *pairs)), default=1.0) + 0.02
    single = [reading for reading in single if reading.wrong <= least]
    likely_pairs = [reading for reading in pairs if reading.wrong <= max(least, _FEW_RARE)]
    if likely_pairs or not all(_is_rare(reading.encoding) for reading in single):
        pairs = likely_pairs
    else:
        pairs = [reading for reading in pairs if reading.wrong <= _MOST_RARE]
    count = min(len(words), _MOST_WORDS)
    single.sort(key=lambda reading: -reading.prior - count * reading.rating)
    pairs.sort(key=lambda reading: -reading.rating)
    count = len({letter for letter in pairs[0].text if not letter.isascii()}) if pairs else 0
    if likely_pairs and (not single or (single[0].confidence < _LIKELY and count >= _FEW)):
        best, *others = pairs
        is_sure = not others or best.rating - others[0].rating >= _PAIRS_MARGIN
    elif pairs:
        best, others, is_sure = single[0], pairs, False
    elif single and least <= _MOST_WRONG:
        best = single[0]
        others = sorted(single[1:], key=lambda other: _compare(best, other))
        is_likely = best.confidence >= _UNLIKELY
        is_sure = not others or (is_likely and _compare(best, others[0]) >= _MARGIN)
    else:
        raise InputError(
            f"{uri} is in an encoding that can't be recognized; save it in UTF-8, or set its "
            'encoding: --set \'dialect={"encoding": "NAME"}\''
        )
    if is_sure:
        return best.encoding
    others.sort(key=lambda other: _is_rare(other.encoding))
    shown = sorted([best, *others][:_SHOWN], key=lambda reading: _is_rare(reading.encoding))
    raise InputError(f"{uri} may be in {_list_readings(shown)}; choose one")


def _list_readings(readings: list[_EncodingCandidate]) -> str:
    """Return the encodings, with a text that each reads differently, and how to choose each."""
    lines = zip(*(reading.text.split("\n") for reading in readings), strict=True)
    texts = max(lines, key=lambda texts: len({*texts}))
    return " or in ".join(
        f'{reading.encoding}, {text[:30]!r}: --set \'dialect={{"encoding": "{reading.encoding}"}}\''
        for reading, text in zip(readings, texts, strict=True)
    )


def _is_rare(encoding: str) -> bool:
    return not encoding.startswith("cp125") and encoding not in ("cp874", *_EAST_ASIAN)


def _compare(first: _EncodingCandidate, second: _EncodingCandidate) -> float:
    """Return the evidence for one reading; words that both read alike are none."""
    pairs = zip(first.text.split("\n"), second.text.split("\n"), strict=True)
    words = min(_MOST_WORDS, sum(1 if one != other else _SHARED for one, other in pairs))
    return first.prior - second.prior + words * (first.rating - second.rating)


def _rate(text: bytes, encodings: Iterable[str]) -> dict[str, float]:
    """Return chardet's confidence in each encoding, by the most likely language."""
    import chardet

    rated = chardet.detect_all(
        text,
        ignore_threshold=True,
        compat_names=False,
        include_encodings=encodings,
        no_match_encoding=next(iter(encodings)),
    )
    return {str(one["encoding"]): float(one["confidence"]) for one in rated}


def _read_single_bytes(text: bytes, context: bytes, words: int) -> list[_EncodingCandidate]:
    confidences = _rate(context, SINGLE_BYTE)
    found: dict[str, _EncodingCandidate] = {}
    for encoding in SINGLE_BYTE:
        try:
            decoded = text.decode(encoding)
        except UnicodeDecodeError:
            continue
        lines = decoded.split("\n")
        confidence = confidences.get(encoding, 0.0)
        prior = -_RARE if _is_rare(encoding) else _WESTERN if encoding == "cp1252" else 0.0
        prior -= _FOREIGN * min(len(lines), _MOST_WORDS) * _share_foreign(lines)
        rating = math.log(confidence + 1e-4)
        wrong = sum(map(_looks_wrong, lines)) / len(lines)
        reading = _EncodingCandidate(encoding, wrong, rating, decoded, confidence, prior)
        other = found.setdefault(decoded, reading)
        if other.rating < rating:
            found[decoded] = other._replace(rating=rating, confidence=confidence)
    return list(found.values())


def _read_pairs(text: bytes, words: int) -> list[_EncodingCandidate]:
    confidences = _rate(text, _EAST_ASIAN)
    readings = []
    for encoding, pairs in _EAST_ASIAN.items():
        try:
            decoded = text.decode(encoding)
        except UnicodeDecodeError:
            continue
        characters = {character for character in decoded if not character.isascii()}
        confidence = confidences.get(pairs.rated or encoding, 0.0)
        rating = _PAIRS_WEIGHT * min(words, _MOST_WORDS) * math.log(confidence + 1e-3)
        rare = 0
        for character in characters:
            code = character.encode(encoding, "ignore")
            first, second = (code[0], code[1]) if len(code) == 2 else (0, 0)
            if first in pairs.signs:
                continue
            is_common = first in pairs.letters or (first in pairs.common and second >= pairs.second)
            rare += not is_common
            rating += math.log(0.97 / pairs.size if is_common else 0.03 / 20_000)
        if encoding == "euc-jp" and not any("\u3040" <= one <= "\u30ff" for one in characters):
            rating -= _WITHOUT_KANA
        lines = decoded.split("\n")
        mixed = sum(map(_mixes_scripts, lines)) / len(lines)
        wrong = max(rare / max(1, len(characters)), mixed)
        readings.append(_EncodingCandidate(encoding, wrong, rating, decoded))
    return readings


def _mixes_scripts(text: str) -> bool:
    """Return whether an ideograph is next to a Latin letter or, in a text, to Hangul."""
    has_hangul = any("\uac00" <= character <= "\ud7a3" for character in text)
    if has_hangul and any("\u4e00" <= character <= "\u9fff" for character in text):
        return True
    return any(
        (first > "\u2e80") != (second > "\u2e80") and min(first, second).isalpha()
        for first, second in itertools.pairwise(text)
    )


def _share_foreign(texts: list[str]) -> float:
    """Return the share of texts with Latin letters that most of the others' language lacks."""
    letters = [{letter for letter in text.lower() if _kind(letter) == "LATIN"} for text in texts]
    letters = [{letter for letter in one if not letter.isascii()} for one in letters]
    fitting = max(sum(one <= alphabet for one in letters) for alphabet in _ALPHABETS)
    return 1 - fitting / len(texts)


def _looks_wrong(text: str) -> bool:
    """Return whether a text has signs, two scripts or a capital letter inside of a word."""
    if (_OPENING.search(text) and not _CLOSING.search(text)) or _BLANK_AT_END.search(text):
        return True
    for word in _WORD.findall(text):
        kinds = set(map(_kind, word)) - {""}
        if len(kinds - {"sign"}) > 1 or "control" in kinds or "ƒ" in word:
            return True
        if "sign" in kinds and len(word) > 1 and not _WITH_SIGNS.fullmatch(word):
            return True
        for before, letter, after in zip(word, word[1:], word[2:] + " ", strict=False):
            is_capital = not letter.isascii() and letter.isupper()
            if is_capital and (before.islower() or (before.isalpha() and after.islower())):
                return True
            if letter in _NOT_INSIDE and before.isalpha() and after.isalpha():
                return True
    return False


@functools.cache
def _kind(character: str) -> str:
    """Return the script of a letter, "sign" or "control"; empty for what may be around words."""
    category = unicodedata.category(character)
    if category[0] == "C" and character not in _JOINERS:
        return "control"
    if character in _AROUND_WORDS or category[0] == "M":
        return ""
    if character in "ªºµ":
        return "sign"
    return unicodedata.name(character, "?").split(" ")[0] if category[0] == "L" else "sign"
