"""Pages of lists: filter, order_by, page_token and read_mask of a request."""

import datetime
import fnmatch
import operator
import re
from typing import Any

from pipelines.emulator.api_error import invalid
from pipelines.emulator.field_rules import refuse
from pipelines.emulator.messages import id_of, snake
from pipelines.emulator.proto_rules import known_mask

_TERM = re.compile(r'(NOT )?([\w.-]+) ?(!=|<=|>=|=|<|>|:) ?("[^"]*"|[^\s"]+)')
_ORDER = re.compile(r"([a-zA-Z_]+)( asc| desc)?")
_NAMES = {"=": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
"""Functions of the module operator."""


def filtered(found: list[Any], text: str, fields: tuple[str, ...]) -> list[Any]:
    """Return the resources that match a filter, terms joined by AND and OR.

    https://google.aip.dev/160

    Args:
        fields: that the filter may name, in snake case.
    """
    for group in filter(None, text.split(" AND ")):
        tests = [_test(term, fields) for term in group.split(" OR ")]
        found = [one for one in found if any(_matches(one, *test) for test in tests)]
    return found


def _test(term: str, fields: tuple[str, ...]) -> tuple[bool, str, str, Any]:
    """Parse a term; return whether it is negated, its field, its operator and its value."""
    match = _TERM.fullmatch(term.strip())
    kind, dot, key = match[2].partition(".") if match else ("", "", "")
    field = snake(kind)
    if not match or field not in fields or bool(dot) != (field == "labels"):
        raise invalid(f"filter {term!r} is not a comparison of {', '.join(fields)}")
    value: Any = match[4].strip('"')
    is_time = field.endswith("_time")
    refuse(match[3] not in ("=", "!=", ":") and not is_time, f"filter {term!r} compares no time")
    if is_time and match[3] != ":":
        try:
            value = datetime.datetime.fromisoformat(value.replace("Z", "+00:00"))
            refuse(not value.tzinfo, f"filter {term!r} names no time zone")
        except ValueError:
            raise invalid(f"filter {term!r} names no time in RFC 3339") from None
    return bool(match[1]), f"labels.{key}" if dot else field, match[3], value


def _matches(resource: Any, negated: bool, field: str, comparison: str, value: Any) -> bool:
    held = _value(resource, field)
    if comparison == ":":
        result = held not in (None, "") and fnmatch.fnmatchcase(str(held), value)
    elif held is None:
        result = comparison == "!="
    else:
        result = getattr(operator, _NAMES[comparison])(held, value)
    return result != negated


def _value(resource: Any, field: str) -> Any:
    if field.startswith("labels."):
        return resource.labels.get(field.removeprefix("labels."))
    if field in ("model", "endpoint", "pipeline_job_user_id"):
        return id_of(resource.name)
    if field == "pipeline_name":
        return resource.pipeline_spec.get("pipelineInfo", {}).get("name", "")
    value = getattr(resource, field)
    return value.name if field == "state" else value


def ordered(found: list[Any], order_by: str, fields: tuple[str, ...]) -> list[Any]:
    """Return resources in the order that a request names; refuse to sort by another field."""
    for term in reversed([one.strip() for one in order_by.split(",") if one]):
        match = _ORDER.fullmatch(term)
        if not match or snake(match[1]) not in fields:
            raise invalid(f"order_by {term!r} is none of {', '.join(fields)}, asc or desc")
        field = snake(match[1])
        # A time that is not set yet is None, which compares with no time.
        found = sorted(
            found,
            key=lambda one, by=field: (getattr(one, by) is not None, getattr(one, by)),
            reverse=match[2] == " desc",
        )
    return found


def masked(resource: Any, mask: Any) -> Any:
    """Return a copy of a resource with the fields of a read mask; with all if it is empty or *."""
    shown = type(resource)()
    if list(mask.paths) in ([], ["*"]):
        shown._pb.CopyFrom(resource._pb)
    else:
        mask = known_mask("read_mask", mask, type(resource))
        mask.MergeMessage(resource._pb, shown._pb)
    return shown
