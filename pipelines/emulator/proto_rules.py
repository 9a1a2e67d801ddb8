"""Rules that the official messages declare: required and output-only fields, and masks.

The comment of each field in Google's protos begins with Required., Output only. and so on, and
google-cloud-aiplatform has it in the docstring of the generated class. `python -OO` drops
docstrings, so they are read from the source.
"""

import ast
import functools
import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipelines.emulator.api_error import ApiError, invalid
from pipelines.emulator.field_rules import refuse

_ALLOWED = {("EnvVar", "value")}
"""Required fields that may be empty, since protos don't distinguish empty from missing."""


def find_marked(kind: Any, mark: str) -> tuple[str, ...]:
    """Return the fields of a message type whose comment begins with Required or Output only."""
    fields = _read_marks(kind.__module__)[kind.__qualname__]
    names = [name for name, field_mark in fields if field_mark == mark]
    return tuple(name for name in names if (kind.__name__, name) not in _ALLOWED)


@functools.cache
def _read_marks(module: str) -> Mapping[str, Sequence[tuple[str, str]]]:
    """Return the fields with a mark, and the mark, by the name of each class of a module."""
    form = re.compile(r"^    (\w+) \([^)]*\):\n        (Required|Output only)\.", re.MULTILINE)
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {name: form.findall(text) for name, text in _find_docstrings(tree)}


def _find_docstrings(node: ast.Module | ast.ClassDef, outer: str = "") -> Iterator[tuple[str, str]]:
    for child in node.body:
        if isinstance(child, ast.ClassDef):
            yield outer + child.name, ast.get_docstring(child) or ""
            yield from _find_docstrings(child, f"{outer}{child.name}.")


def check_required(message: Any, path: str = "") -> None:
    """Refuse a request without a field that the messages in it call required.

    A resource to be updated has only the fields that change.
    """
    for name in find_marked(type(message), "Required"):
        refuse(name not in message, f"{path}{name} is required")
    for name, field in type(message).meta.fields.items():
        if not hasattr(field.message, "meta") or name not in message:
            continue
        value = getattr(message, name)
        if not field.repeated:
            if not type(message).__name__.startswith("Update"):
                check_required(value, f"{path}{name}.")
        elif not hasattr(value, "items"):
            for number, item in enumerate(value):
                check_required(item, f"{path}{name}[{number}].")


def clear_output_only(resource: Any) -> None:
    """Clear the fields of a new resource that only Vertex AI sets, as it ignores them."""
    for name in find_marked(type(resource), "Output only"):
        resource._pb.ClearField(name)


def check_update(request: Any, update: Any, present: Any, updatable: Sequence[str]) -> Any:
    """Return the mask of an update; refuse an empty mask, a fixed field and an outdated etag.

    A request without an etag overwrites any state.

    Args:
        updatable: fields that the mask may name; empty: those that users may set.
    """
    refuse(not request.update_mask.paths, "update_mask is required")
    mask = check_mask("update_mask", request.update_mask, type(update))
    fixed = find_marked(type(update), "Output only")
    for field in {path.partition(".")[0] for path in mask.paths}:
        other = field in fixed or (updatable and field not in updatable)
        refuse(other, f"update_mask names {field}, which is not updatable")
    if getattr(update, "etag", "") not in ("", getattr(present, "etag", "")):
        raise ApiError("ABORTED", f"{update.name} has changed since etag was read")
    return mask


def check_mask(field: str, mask: Any, kind: Any) -> Any:
    """Return a mask, cut at the keys of a Struct; refuse one with a field that `kind` lacks."""
    from google.protobuf import field_mask_pb2

    paths = [re.sub(r"^pipeline_spec\..*", "pipeline_spec", path) for path in mask.paths]
    mask = field_mask_pb2.FieldMask(paths=paths)
    if not mask.IsValidForDescriptor(kind.pb().DESCRIPTOR):
        raise invalid(f"{field} {','.join(paths)!r} names a field that {kind.__name__} lacks")
    return mask
