"""Regions of Vertex AI and what is available there, read from regions.toml."""

import functools
from pathlib import Path
from typing import Any

from trainer.errors import InputError
from trainer.fields import suggest
from trainer.toml_reader import tomllib

_NO_N1 = "me-west1"


@functools.cache
def load_content() -> dict[str, Any]:
    """Return the content of regions.toml."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def check_region(region: str) -> None:
    """Raise InputError for a region that Vertex AI does not have."""
    regions = load_content()["accelerators"]
    if region not in regions:
        raise InputError(
            f"region={region!r} is not a region of Vertex AI (locations, "
            f"{load_content()['date']}){suggest(region, regions)}"
        )


def check_accelerator(accelerator: str, region: str) -> None:
    """Raise InputError for an accelerator that training does not have in a region."""
    regions = load_content()["accelerators"]
    if accelerator and accelerator not in regions.get(region, ()):
        found = ", ".join(name for name, held in regions.items() if accelerator in held)
        raise InputError(
            f"accelerator_type={accelerator!r} is not available for training in {region} "
            f"(locations, {load_content()['date']}), but in {found}"
        )


def check_monitoring(region: str) -> None:
    """Raise InputError for a region without Model Monitoring."""
    if region in load_content()["without_monitoring"]:
        raise InputError(
            f"{region} has no Model Monitoring (locations, {load_content()['date']}); leave out "
            "--monitor, or use a model of another region"
        )


def check_serving_machine(name: str, region: str) -> None:
    """Raise InputError for a machine type without accelerator that a region can't serve with."""
    if region == _NO_N1 and name.startswith("n1-"):
        raise InputError(
            f"machine_type={name!r} needs an accelerator in {region} (locations, "
            f"{load_content()['date']}); use one such as 'e2-standard-4'"
        )
