"""Filters and orders of lists, as https://google.aip.dev/160 and https://google.aip.dev/132 say.

    predicate = parse_filter('labels.team="a" AND (state=FAILED OR create_time>"2026-01-01")')
    [job for job in jobs if predicate(job)]

OR binds more closely than AND. A `*` in a quoted text stands for any characters.
"""

import datetime
import fnmatch
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from google.protobuf import struct_pb2, timestamp_pb2
from google.protobuf.message import Message

from vertex.emulator.api_error import invalid
from vertex.emulator.messages import to_snake_case

Predicate = Callable[[Any], bool]
Fields = Mapping[str, Callable[[Any], Any]]
"""Fields that the messages lack, by name."""

_TOKEN = re.compile(
    r"""\s*(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|\s*(?P<sign><=|>=|!=|[=<>:(),])"""
    r"""|\s*(?P<word>(?:[^\s"'<>=!:(),]|\.(?="))+)"""
)
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}


def parse_filter(
    text: str, fields: Fields | None = None, functions: Mapping[str, Any] | None = None
) -> Predicate:
    """Return whether a resource matches, as a function; raise ApiError for a malformed filter.

    Args:
        functions: by name, functions of a resource and the text in parentheses.
    """
    if not text.strip():
        return lambda _: True
    parser = _Parser(text, fields or {}, functions or {})
    predicate = parser.conjunction()
    if parser.kind != "end":
        raise parser.error()
    return predicate


def parse_order(text: str, fields: Fields | None = None) -> Callable[[Iterable[Any]], list[Any]]:
    """Return a function that sorts resources: `create_time desc, display_name`."""
    terms = []
    for term in filter(None, map(str.strip, text.split(","))):
        name, _, direction = term.partition(" ")
        if direction.strip().lower() not in ("", "asc", "desc"):
            raise invalid(f"order_by {text!r}: {direction!r} is neither asc nor desc")
        terms.append((name, direction.strip().lower() == "desc"))

    def sort(resources: Iterable[Any]) -> list[Any]:
        ordered = list(resources)
        for name, latest_first in reversed(terms):
            keys = [_sort_key(read_field(one, name, fields or {})) for one in ordered]
            places = sorted(range(len(keys)), key=keys.__getitem__, reverse=latest_first)
            ordered = [ordered[place] for place in places]
        return ordered

    return sort


class _Parser:
    """A recursive-descent parser of a filter."""

    def __init__(self, text: str, fields: Fields, functions: Mapping[str, Any]) -> None:
        self._text, self._fields, self._functions = text, fields, functions
        self._end = 0
        self.next()

    def next(self) -> str:
        """Read a token; return the one before it."""
        before = getattr(self, "current", "")
        match = _TOKEN.match(self._text, self._end)
        if match:
            self.kind, self.current = str(match.lastgroup), match[match.lastgroup or 0]
            self._start, self._end = match.start(), match.end()
        elif self._text[self._end :].strip():
            self._start = self._end
            raise self.error()
        else:
            self.kind, self.current = "end", ""
        return before

    def error(self) -> Exception:
        rest = self._text[self._start :].strip()
        return invalid(f"filter {self._text!r} can't be read from {rest!r} on")

    def conjunction(self) -> Predicate:
        parts = [self._disjunction()]
        while self.kind != "end" and self.current != ")":
            if self.current == "AND" and self.kind == "word":
                self.next()
            parts.append(self._disjunction())
        return lambda one: all(part(one) for part in parts)

    def _disjunction(self) -> Predicate:
        parts = [self._term()]
        while self.current == "OR" and self.kind == "word":
            self.next()
            parts.append(self._term())
        return lambda one: any(part(one) for part in parts)

    def _term(self) -> Predicate:
        if self.kind == "word" and self.current == "NOT":
            self.next()
            denied = self._term()
            return lambda one: not denied(one)
        if self.current == "(":
            self.next()
            inner = self.conjunction()
            self._expect(")")
            return inner
        if self.kind != "word":
            raise self.error()
        if self.current.startswith("-"):
            self.current = self.current[1:]
            denied = self._term()
            return lambda one: not denied(one)
        name = self.next()
        while self.kind == "text" and name.endswith("."):
            name += self.next()
        if self.current == "(":
            return self._call(name)
        if self.kind != "sign" or self.current in "(),":
            raise self.error()
        sign = self.next()
        if self.kind not in ("word", "text"):
            raise self.error()
        quoted = self.kind == "text"
        value = _unquote(self.next())
        return lambda one: _compare(read_field(one, name, self._fields), sign, value, quoted)

    def _call(self, name: str) -> Predicate:
        if name not in self._functions:
            raise self.error()
        self.next()
        argument, function = _unquote(self.next()), self._functions[name]
        self._expect(")")
        return lambda one: function(one, argument)

    def _expect(self, sign: str) -> None:
        if self.current != sign:
            raise self.error()
        self.next()


def read_field(resource: Any, path: str, fields: Fields) -> Any:
    """Return the value of a field of a resource, such as labels.team; None if it is not set."""
    parts = [part for part in re.split(r"""\.(?=(?:[^"]*"[^"]*")*[^"]*$)""", path) if part]
    if alias := fields.get(to_snake_case(path)):
        return alias(resource)
    value: Any = getattr(resource, "_pb", resource)
    for part in map(_unquote, parts):
        if isinstance(value, struct_pb2.Value):
            if part.endswith("_value"):
                kind = value.WhichOneof("kind")
                value = getattr(value, part) if kind == part else None
                continue
            value = value.struct_value
        if isinstance(value, struct_pb2.Struct):
            value = dict(value.fields).get(part)
        elif isinstance(value, Message):
            found = value.DESCRIPTOR.fields_by_name.get(to_snake_case(part))
            if found is None:
                raise invalid(f"{path!r} is not a field of {value.DESCRIPTOR.name}")
            field = getattr(value, found.name)
            if found.enum_type and not isinstance(field, Sequence):
                field = found.enum_type.values_by_number[field].name
            value = field
        elif isinstance(value, Mapping):
            value = value.get(part)
        elif value is not None:
            raise invalid(f"{path!r} names a part of a value that has none")
    if isinstance(value, struct_pb2.Value):
        kind = value.WhichOneof("kind")
        value = getattr(value, kind) if kind else None
    return value


def _compare(value: Any, sign: str, given: str, quoted: bool) -> bool:
    if sign == ":":
        return _has(value, given)
    if value is None:
        return sign == "!="
    if isinstance(value, timestamp_pb2.Timestamp):
        return _COMPARISONS[sign](value.ToNanoseconds(), _to_nanoseconds(given))
    if isinstance(value, bool):
        return _COMPARISONS[sign](value, given.lower() == "true")
    if isinstance(value, int | float):
        try:
            return _COMPARISONS[sign](float(value), float(given))
        except ValueError:
            raise invalid(f"{given!r} is not a number") from None
    if not isinstance(value, str):
        raise invalid(f"a value with parts can't be compared with {given!r}; use : or a part")
    if quoted and "*" in given and sign in ("=", "!="):
        pattern = given.replace("[", "[[]").replace("?", "[?]")
        return fnmatch.fnmatchcase(value, pattern) == (sign == "=")
    return _COMPARISONS[sign](value, given)


def _has(value: Any, given: str) -> bool:
    """Return whether a value contains another; `*` asks whether it is set."""
    if given == "*":
        return value is not None and value not in ("", 0)
    if isinstance(value, Message):
        return value.DESCRIPTOR.fields_by_name.get(given) is not None and value.HasField(given)
    if isinstance(value, str):
        return given in value
    if isinstance(value, Mapping | Sequence):
        return given in value
    return value is not None and str(value) == given


def _sort_key(value: Any) -> Any:
    if isinstance(value, timestamp_pb2.Timestamp):
        return value.ToNanoseconds()
    return value if value is not None else ""


def _to_nanoseconds(text: str) -> int:
    try:
        time = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise invalid(f"{text!r} is not a time, such as 2026-01-31T12:00:00Z") from None
    found = timestamp_pb2.Timestamp()
    found.FromDatetime(time if time.tzinfo else time.replace(tzinfo=datetime.UTC))
    return found.ToNanoseconds()


def _unquote(text: str) -> str:
    if text[:1] in "\"'" and len(text) > 1:
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    return text
