"""Pages of lists: the part of filter, order_by and read_mask that the commands use."""

import re
from collections.abc import Iterable
from typing import Any

from vertex_emulator.api_error import invalid
from vertex_emulator.field_rules import refuse
from vertex_emulator.proto_rules import check_mask

_TERM = re.compile(r'(?:labels\.(?P<label>[\w-]+)|pipeline_name|pipelineName)="(?P<value>[^"]*)"')
_LATEST_FIRST = ("create_time desc", "createTime desc")
"""The same in the form of the RPC reference and of the REST reference."""
_SORTED = ("PipelineJob", "Schedule")
"""Kinds that are listed from latest to earliest."""


def filter_resources(resources: Iterable[Any], text: str) -> list[Any]:
    """Return the resources that match a filter: labels and a pipeline's name, joined by AND."""
    resources = list(resources)
    for term in text.split(" AND ") if text else ():
        match = _TERM.fullmatch(term)
        if not match:
            raise invalid(
                f'filter {term!r} is not supported here; give labels.KEY="VALUE" or '
                'pipeline_name="NAME", joined by AND'
            )
        field = "labels" if match["label"] else "pipeline_spec"
        lacking = any(not hasattr(resource, field) for resource in resources)
        refuse(lacking, f"filter {term!r} names a field that the resources lack")
        resources = [
            resource
            for resource in resources
            if _read_field(resource, match["label"]) == match["value"]
        ]
    return resources


def _read_field(resource: Any, label: str | None) -> str | None:
    if label:
        return resource.labels.get(label)
    return resource.pipeline_spec.get("pipelineInfo", {}).get("name")


def sort_resources(resources: list[Any], order_by: str, kind: str) -> list[Any]:
    """Return resources in the order of their kind, or the latest first."""
    other = order_by and order_by not in _LATEST_FIRST
    refuse(other, f"order_by {order_by!r} is not supported here; give {_LATEST_FIRST[0]}")
    if order_by or kind in _SORTED:
        return sorted(resources, key=lambda resource: resource.create_time, reverse=True)
    return resources


def apply_mask(resource: Any, mask: Any) -> Any:
    """Return a copy of a resource with the fields of a read mask; with all if it is empty."""
    shown = type(resource)()
    if mask.paths:
        mask = check_mask("read_mask", mask, type(resource))
        mask.MergeMessage(resource._pb, shown._pb)
    else:
        shown._pb.CopyFrom(resource._pb)
    return shown
