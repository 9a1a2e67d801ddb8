"""Pages of lists: filter, order_by, page_token and read_mask of a request."""

import datetime
import fnmatch
import operator
import re
from collections.abc import Iterable, Mapping
from typing import Any

from pipelines.emulator.api_error import invalid
from pipelines.emulator.field_rules import refuse
from pipelines.emulator.messages import id_of, to_snake_case
from pipelines.emulator.proto_rules import check_mask

_TERM = re.compile(
    r'(NOT )?([\w.-]+(?:\."[^"]+")?) ?(!=|<=|>=|=|<|>|:) ?("[^"]*"|[^\s"]+)\s*(?:(AND|OR)\s+|$)'
)
_ORDER = re.compile(r"([a-zA-Z_]+)( asc| desc)?")
_FUNCTIONS = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    ":": lambda held, pattern: fnmatch.fnmatchcase(str(held), pattern),
}
_EXACT, _TEXT, _TIME, _LABELS = "= !=", "= != :", "= != < <= > >=", "= != :*"
_DEPLOYABLE = {"display_name": _EXACT, "labels.key": _LABELS, "base_model_name": "="}
_JOB = {"display_name": _TEXT, "state": _EXACT, "create_time": _TIME, "labels.key": _LABELS}
_FILTERABLE = {
    "Model": {"model": _EXACT, **_DEPLOYABLE},
    "ModelVersion": {"labels.key": _LABELS},
    "ModelEvaluation": {},
    "Endpoint": {"endpoint": _EXACT, **_DEPLOYABLE},
    "BatchPredictionJob": {**_JOB, "model_display_name": _EXACT},
    "PipelineJob": {
        **_JOB,
        "pipeline_name": _EXACT,
        "pipeline_job_user_id": _TEXT,
        "update_time": _TIME,
        "end_time": _TIME,
        "template_uri": _TEXT,
        "template_metadata.version": _TEXT,
        # On no page, but Google's SDK filters by it.
        "schedule_name": _EXACT,
    },
    "Schedule": {
        "display_name": _TEXT,
        "state": _EXACT,
        "create_pipeline_job_request": ":*",
        "create_time": _TIME,
        "start_time": _TIME,
        "end_time": f"{_TIME} :*",
        "next_run_time": _TIME,
    },
}
"""The fields that the pages of each kind's list allow in a filter, with their operators.

Operator `:*` asks only whether a field is set. Other kinds have the fields of a job.
"""
_ANY = ("display_name", "create_time", "update_time")
_SORTABLE = {
    "ModelVersion": ("create_time", "update_time"),
    "PipelineJob": ("create_time", "update_time", "end_time", "start_time"),
    "Schedule": ("create_time", "start_time", "end_time", "next_run_time"),
}
_LATEST_FIRST = ("PipelineJob", "Schedule")


def filter_resources(found: Iterable[Any], text: str, kind: str) -> list[Any]:
    """Return the resources that match a filter, terms joined by AND and by OR, which binds tighter.

    https://google.aip.dev/160
    """
    found, fields = list(found), _FILTERABLE.get(kind, _JOB)
    tests, rest = [], text.strip()
    while rest:
        match = _TERM.match(rest)
        test = match and _parse_term(match, fields)
        if not match or not test or (match[5] and match.end() == len(rest)):
            raise invalid(f"filter {rest!r} is not a comparison of {', '.join(fields)}")
        tests.append(test)
        if match[5] != "OR":
            found = [one for one in found if any(_matches(one, *test) for test in tests)]
            tests = []
        rest = rest[match.end() :]
    return found


def _parse_term(
    match: re.Match[str], fields: Mapping[str, str]
) -> tuple[bool, str, str, Any] | None:
    """Return whether a term is negated, its field, its operator and its value.

    Return None if the field is none of `fields`, or not with this operator.
    """
    path, comparison, value = match[2], match[3], match[4].strip('"')
    if path == "labels" and comparison == ":":
        # "`labels.key:*` or `labels:key` - key existence"
        path, value = f"labels.{value}", "*"
    is_label = path.startswith("labels.")
    field = path if is_label else to_snake_case(path)
    allowed = fields.get("labels.key" if is_label else field, "").split()
    if comparison not in allowed and not (comparison + value == ":*" and ":*" in allowed):
        return None
    when: Any = value
    if field.endswith("_time") and comparison != ":":
        try:
            when = datetime.datetime.fromisoformat(value.replace("Z", "+00:00"))
            refuse(not when.tzinfo, f"filter {match[0]!r} names no time zone")
        except ValueError:
            raise invalid(f"filter {match[0]!r} names no time in RFC 3339") from None
    return bool(match[1]), field, comparison, when


def _matches(resource: Any, negated: bool, field: str, comparison: str, value: Any) -> bool:
    held = _field_value(resource, field)
    if held is None:
        return (comparison == "!=") != negated
    return bool(_FUNCTIONS[comparison](held, value)) != negated


def _field_value(resource: Any, field: str) -> Any:
    if field.startswith("labels."):
        return resource.labels.get(field.partition(".")[2].strip('"'))
    if field in ("model", "endpoint", "pipeline_job_user_id"):
        return id_of(resource.name)
    if field == "base_model_name":
        source = getattr(resource, "base_model_source", None)
        return id_of(source.model_garden_source.public_model_name) if source else ""
    if field == "pipeline_name":
        return resource.pipeline_spec.get("pipelineInfo", {}).get("name", "")
    value = resource
    for name in field.split("."):
        value = getattr(value, name)
    # A message that is not set is empty, unlike a time, which is None.
    unset = hasattr(value, "_pb") and not value
    return value.name if field == "state" else None if unset else value


def sort_resources(found: list[Any], order_by: str, kind: str) -> list[Any]:
    """Return resources in the order that a request names; refuse to sort by another field."""
    fields = _SORTABLE.get(kind, _ANY)
    order_by = order_by or ("create_time desc" if kind in _LATEST_FIRST else "")
    for term in reversed([one.strip() for one in order_by.split(",") if one]):
        match = _ORDER.fullmatch(term)
        if not match or to_snake_case(match[1]) not in fields:
            raise invalid(f"order_by {term!r} is none of {', '.join(fields)}, asc or desc")
        field = to_snake_case(match[1])
        # A time that is not set yet is None, which compares with no time.
        found = sorted(
            found,
            key=lambda one, by=field: (getattr(one, by) is not None, getattr(one, by)),
            reverse=match[2] == " desc",
        )
    return found


def apply_mask(resource: Any, mask: Any) -> Any:
    """Return a copy of a resource with the fields of a read mask; with all if it is empty or *."""
    shown = type(resource)()
    if list(mask.paths) in ([], ["*"]):
        shown._pb.CopyFrom(resource._pb)
    else:
        mask = check_mask("read_mask", mask, type(resource))
        mask.MergeMessage(resource._pb, shown._pb)
    return shown
