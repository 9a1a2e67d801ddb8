"""Rules that the official messages declare: required and output-only fields, and masks.

The comment of each field in Google's protos begins with Required., Output only. and so on, and
google-cloud-aiplatform has it in the docstring of the generated class.
"""

import inspect
import re
from collections.abc import Sequence
from typing import Any

from google.protobuf import field_mask_pb2

from vertex.emulator.api_error import ApiError, invalid
from vertex.emulator.field_rules import refuse

_ALLOWED = {
    ("EnvVar", "value"),
    *(
        (f"{kind}ValueSpec", f"{end}_value")
        for kind in ("Double", "Integer")
        for end in ("min", "max")
    ),
}
"""Required fields that may be empty, since protos don't distinguish empty from missing."""
_MARKED = re.compile(r"^    (\w+) \([^)]*\):\n        (Required|Output only)\.", re.MULTILINE)


def find_marked(kind: Any, mark: str) -> list[str]:
    """Return the fields of a message type whose comment begins with Required or Output only."""
    # `python -OO` drops docstrings: then every request fails.
    marks = _MARKED.findall(inspect.cleandoc(kind.__doc__))
    return [
        name for name, found in marks if found == mark and (kind.__name__, name) not in _ALLOWED
    ]


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

    The mask may name the fields in `updatable`; if that is empty, those that users may set. A
    request without an etag overwrites any state.
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
    paths = [re.sub(r"^pipeline_spec\..*", "pipeline_spec", path) for path in mask.paths]
    mask = field_mask_pb2.FieldMask(paths=paths)
    if not mask.IsValidForDescriptor(kind.pb().DESCRIPTOR):
        raise invalid(f"{field} {','.join(paths)!r} names a field that {kind.__name__} lacks")
    return mask
