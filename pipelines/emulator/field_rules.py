"""Checks of Vertex AI on fields that several resources have: a function a rule."""

from typing import Any

from pipelines import resource_names
from pipelines.emulator.api_error import invalid
from pipelines.emulator.environment import LOCATION
from trainer.errors import InputError

_LONGEST_NAME = 128


def check_display_name(resource: Any, field: str) -> None:
    """Refuse a display name of more than 128 characters."""
    if len(resource.display_name) > _LONGEST_NAME:
        raise invalid(f"{field}.display_name has more than {_LONGEST_NAME} characters")


def check_name(resource: Any, field: str) -> None:
    """Refuse no display name, and one that is too long."""
    if not resource.display_name:
        raise invalid(f"{field}.display_name is required")
    check_display_name(resource, field)


def check_key(resource: Any, parent: str) -> None:
    """Refuse a Cloud KMS key that is misnamed, or of another region than that of the resource."""
    key = resource.encryption_spec.kms_key_name
    check_form("encryption_spec_key_name", key)
    check_region("encryption_spec_key_name", key, parent)


def check_form(kind: str, value: str) -> None:
    """Refuse the name of a network, key, account or TensorBoard of another form than its field's.

    Args:
        kind: as `resource_names.check` has it.
        value: empty for none.
    """
    try:
        resource_names.check(kind, value)
    except InputError as error:
        raise invalid(str(error)) from None


def check_region(kind: str, value: str, parent: str) -> None:
    """Refuse a key or TensorBoard of another region than that of the resource.

    Args:
        parent: projects/P/locations/L; a run on this machine is in no region.
    """
    region = parent.rpartition("/")[2]
    if region != LOCATION:
        try:
            resource_names.check_region({kind: value}, region)
        except InputError as error:
            raise invalid(str(error)) from None
