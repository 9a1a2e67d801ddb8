"""Vertex AI's checks of fields that several resources have."""

import re
from collections.abc import Iterable
from typing import Any

from vertex.emulator.api_error import ApiError, invalid
from vertex.facts import regions, resource_names
from vertex.facts.emulation import LOCATION
from vertex.facts.resource_names import LABEL_KEY, LABEL_VALUE
from vertex.machines.prediction_machines import check_prediction_machine

MAX_LABELS = 64
_LONGEST_NAME = 128
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_IDS = {
    "pipeline_job_id": (re.compile("[a-z0-9-]{1,127}"), "up to 127 of a-z, 0-9 and -"),
    "endpoint_id": (
        re.compile("[a-z]([a-z0-9-]{0,61}[a-z0-9])?|[1-9][0-9]{0,8}|0"),
        "up to 63 of a-z, 0-9 and -",
    ),
    "model_id": (re.compile("[a-z_][a-z0-9_-]{0,62}"), "up to 63 of a-z, 0-9, _ and -"),
    **dict.fromkeys(
        ("artifact_id", "context_id", "execution_id", "metadata_schema_id"),
        (re.compile("[a-z0-9-]{4,128}"), "4 to 128 of a-z, 0-9 and -"),
    ),
    "deployed_model.id": (re.compile("[0-9]{1,10}"), "up to 10 digits"),
}


def refuse(broken: Any, message: str) -> None:
    """Raise INVALID_ARGUMENT if `broken` is true."""
    if broken:
        raise invalid(message)


def refuse_state(broken: Any, message: str) -> None:
    """Raise FAILED_PRECONDITION if `broken` is true."""
    if broken:
        raise ApiError("FAILED_PRECONDITION", message)


def check_id(field: str, value: str) -> None:
    """Refuse an ID that does not match its field's pattern."""
    form, shown = _IDS[field]
    refuse(not form.fullmatch(value), f"{field} {value!r} is not {shown}")


def check_choice(field: str, value: str, choices: Iterable[str]) -> None:
    """Refuse a value that a field does not allow."""
    refuse(value not in choices, f"{field} {value!r} is not one of {', '.join(choices)}")


def check_common(resource: Any, field: str, parent: str) -> None:
    """Refuse an unknown region, an invalid name, label, network, account or key, or a far key.

    Labels have up to 63 of a-z, 0-9, _ and -; keys begin with a letter.
    """
    if region := region_of(parent):
        regions.check_region(region)
    too_long = len(resource.display_name) > _LONGEST_NAME
    refuse(too_long, f"{field}.display_name has more than {_LONGEST_NAME} characters")
    labels = getattr(resource, "labels", {})
    refuse(len(labels) > MAX_LABELS, f"{len(labels)} labels are set; at most {MAX_LABELS}")
    for key, value in labels.items():
        for text, pattern in ((key, LABEL_KEY), (value, LABEL_VALUE)):
            refuse(not pattern.fullmatch(text), f"{text!r} is not a label")
    for name in ("network", "service_account"):
        resource_names.check(name, getattr(resource, name, ""))
    if hasattr(resource, "encryption_spec"):
        key = resource.encryption_spec.kms_key_name
        resource_names.check("encryption_spec_key_name", key)
        check_region("encryption_spec_key_name", key, parent)


def check_variables(variables: Iterable[Any], path: str) -> None:
    """Refuse environment variables with a malformed name, or two with the same."""
    names = [variable.name for variable in variables]
    for name in names:
        refuse(not _VARIABLE.fullmatch(name), f"{path}.env has the invalid name {name!r}")
        refuse(names.count(name) > 1, f"{path}.env sets {name!r} more than once")


def check_region(kind: str, value: str, parent: str) -> None:
    """Refuse a key or TensorBoard that is not in the resource's region, the end of `parent`."""
    if region := region_of(parent):
        resource_names.check_region({kind: value}, region)


def region_of(parent: str) -> str:
    """Return the region in projects/P/locations/L; empty for a run on this machine."""
    region = parent.rpartition("/")[2]
    return "" if region == LOCATION else region


def check_machine(resources: Any, where: str, parent: str) -> None:
    """Refuse resources without a machine type that supports prediction in the region."""
    machine, where = resources.machine_spec, f"{where}.dedicated_resources.machine_spec."
    refuse(not machine.machine_type, f"{where}machine_type is required")
    check_prediction_machine(f"{where}machine_type", machine.machine_type)
    regions.check_serving_machine(machine.machine_type, region_of(parent))
