"""Replace names that identify a project, its accounts and its secrets by placeholders.

    scrubber = Scrubber({})
    scrubber.learn("PROJECT", "acme-9")
    scrubber.scrub({"name": "ACME-9"})        # {"name": "<PROJECT-1>"}
    scrubber.find({"uri": "gs://photos/x"})   # learns the bucket

A name is found by the text around it, such as projects/NAME, and is then replaced everywhere: in
other words, in any case, percent-encoded, and in base64.
"""

import base64
import binascii
import contextlib
import functools
import ipaddress
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

PLACEHOLDER = re.compile(r"<[A-Z]+-\d+>")
_PROJECT = r"((?-i:(?:[a-z][a-z0-9-]*\.[a-z.]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]))"
_BUCKET = r"((?-i:[a-z0-9][a-z0-9._-]+[a-z0-9]))"
_DOMAIN = r"(?:[\w-]+\.)+[a-z]{2,}"
_OPAQUE = r"([\w%.~+/-]{8,}=*)"
_PATTERNS = (
    ("TOKEN", rf"\b(?:bearer|basic) {_OPAQUE}"),
    ("TOKEN", rf"(?:Signature|Credential|Token|[?&]key|upload_id)={_OPAQUE}"),
    ("TOKEN", r"\b((?-i:ya29\.|eyJ[\w-]+\.|AIza|1//|GOOG1?[A-Z0-9])[\w.-]{20,})"),
    ("TOKEN", r"(-----BEGIN [A-Z ]+-----[^-]*-----END [A-Z ]+-----)"),
    ("ACCOUNT", rf"([\w.+-]+)@{_DOMAIN}"),
    ("ACCOUNT", r"\bprincipal(?:set)?://([^\s\"',\\]+)"),
    ("DOMAIN", rf"(?:\bdomain:|@)({_DOMAIN})"),
    ("NUMBER", r"\b(?:projects/|organizations/|folders/|service-)(\d+)"),
    ("NUMBER", r"\b(\d+)-compute@"),
    ("NUMBER", r"\bproject[ _]?(?:number|id)?\W{1,5}(\d{6,})"),
    ("KEY", r"(?:/keyRings/|/cryptoKeys/|\bbillingAccounts/)([^/\s\"\\]+)"),
    ("NETWORK", r"networks/([\w-]+)"),
    ("PROJECT", rf"(?:\bprojects/|\bproject=|\.pkg\.dev/|\bgcr\.io/){_PROJECT}(?![\w$])"),
    ("PROJECT", rf"@{_PROJECT}\.iam\.gserviceaccount\.com"),
    ("BUCKET", rf"(?:\bgs:/|/gcs|/b|\bstorage\.(?:googleapis|cloud\.google)\.com)/{_BUCKET}"),
    ("BUCKET", rf"\"bucket\": ?\"{_BUCKET}"),
    ("HOST", r"\b(?:https?|grpc)://([^/\s\"'\\<>?#]+)"),
    ("ADDRESS", r"(?<![\w.])(\d{1,3}(?:\.\d{1,3}){3})(?![\w.])"),
    ("ADDRESS", r"(?<![\w:.])([0-9a-f:]*:[0-9a-f:]*:[0-9a-f]*)"),
    ("USER", r"/(?:home|Users)/([\w.-]+)"),
)
"""Kinds of names, each with a regular expression that finds some by the text around them."""
_PUBLIC = re.compile(
    r"((?!.*\.p\.)(.*\.)?(googleapis\.com|google\.com|pkg\.dev|gcr\.io|gserviceaccount\.com)"
    r"|127\.0\.0\.1|0\.0\.0\.0|localhost|default|vertex-ai|ml-pipeline"
    # Examples in the descriptions of Google's components.
    r"|12345|name|myvpc|key;|…|goo\.gl|github\.com)(:\d+)?",
    re.IGNORECASE,
)
"""Names that identify nobody."""
_BEFORE = ("projects/", "gs://", "/gcs/", "/b/", "project=", "@", "://", ".pkg.dev/", "gcr.io/")
_SHORT = 5
_ENCODED = re.compile(r"[\w+/-]{8,}={0,2}")
_PERCENT = re.compile(r"[^\s\"'<>]*%[0-9A-Fa-f]{2}[^\s\"'<>]*")


class Scrubber:
    """Placeholders by name; the same name always gets the same placeholder."""

    def __init__(self, names: dict[str, str]) -> None:
        self.names = names  # placeholders by name in lower case
        self._compile()

    def learn(self, kind: str, name: str) -> None:
        """Replace a name by <KIND-NUMBER> from now on."""
        name = name.lower()
        if name and name not in self.names:
            count = sum(value.startswith(f"<{kind}-") for value in self.names.values())
            self.names[name] = f"<{kind}-{count + 1}>"
            self._compile()

    def find(self, value: Any) -> None:
        """Learn the names in JSON by the text around them."""
        for text in _decode(PLACEHOLDER.sub("", json.dumps(value, ensure_ascii=False))):
            for kind, pattern in _PATTERNS:
                for name in re.findall(pattern, text, re.IGNORECASE):
                    if not _PUBLIC.fullmatch(name) and (kind != "ADDRESS" or _is_address(name)):
                        self.learn(kind, name)

    def scrub(self, value: Any) -> Any:
        """Return JSON with the known names replaced."""
        if isinstance(value, dict):
            return {self.scrub(key): self.scrub(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.scrub(item) for item in value]
        if isinstance(value, int):
            return self.names.get(str(value), value)
        return self._replace(value) if isinstance(value, str) else value

    def _replace(self, text: str) -> str:
        def decode(match: re.Match[str]) -> str:
            return plain if self._hides(plain := _unquote(match[0])) else match[0]

        text = _PERCENT.sub(decode, text)
        for word in _ENCODED.findall(text):
            if any(map(self._hides, _decode_base64(word))):
                self.learn("ENCODED", word)
        return self._pattern.sub(lambda match: self.names.get(match[0].lower(), match[0]), text)

    def _hides(self, text: str) -> bool:
        return any(match[0].lower() in self.names for match in self._pattern.finditer(text))

    def _compile(self) -> None:
        before = "|".join(f"(?<={re.escape(text)})" for text in _BEFORE)
        words = [PLACEHOLDER.pattern]
        for name in sorted(self.names, key=len, reverse=True):
            word = re.escape(name)
            if len(name) < _SHORT or (name.isalpha() and name in _read_sources()):
                # Elsewhere it is a word of the requests, such as that of a project `pipeline`.
                word = rf"(?:{before}){word}(?!\w)|(?<!\w){word}(?=@)"
            words.append(word)
        self._pattern = re.compile("|".join(words), re.IGNORECASE)


def _decode(text: str) -> Iterator[str]:
    """Yield a text, without percent-encoding, and what it has in base64."""
    words = set(_ENCODED.findall(text))
    yield text
    yield _unquote(text)
    yield "\n".join(plain for word in words for plain in _decode_base64(word) if plain.isascii())


def _unquote(text: str) -> str:
    return text if (plain := unquote(text)) == text else _unquote(plain)


@functools.lru_cache(maxsize=100_000)
def _decode_base64(word: str) -> list[str]:
    """Return what a word may mean in base64, which may begin after up to three characters."""
    plain = word.rstrip("=").replace("-", "+").replace("_", "/")
    parts = [plain[start : len(plain) - ((len(plain) - start) % 4 == 1)] for start in range(4)]
    texts = []
    for part in parts:
        with contextlib.suppress(binascii.Error):
            texts.append(base64.b64decode(part + "=" * (-len(part) % 4)).decode("latin-1"))
    return texts


def _is_address(text: str) -> bool:
    try:
        return not ipaddress.ip_address(text).is_loopback
    except ValueError:
        return False


@functools.cache
def _read_sources() -> str:
    folders = [Path(__file__).parents[2] / name for name in ("pipelines", "components")]
    return "".join(path.read_text() for folder in folders for path in folder.rglob("*.py")).lower()
