"""Regions of Vertex AI and what is available there, read from regions.toml."""

import re
import tomllib
from pathlib import Path

from vertex.errors import InputError
from vertex.formats import suggest
from vertex.machines.machine_types import accelerators, serving_types

CONTENT = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_AS_OF = f"(locations, {CONTENT['date']})"
_MULTI_REGIONS = {"us": "us-", "eu": "europe-", "asia": "asia-"}
"""Beginning of the names of a multi-region's regions."""
_OUTSIDE_EU = ("europe-west2", "europe-west6")
"""London and Zurich: "Object data added to a bucket in the EU multi-region is not stored" there.

https://docs.cloud.google.com/storage/docs/locations
"""
_REGION = re.compile("[a-z]+-[a-z]+[0-9]+")


def check_region(region: str) -> None:
    """Raise InputError for a region that Vertex AI does not have."""
    names = CONTENT["names"]
    if region not in names:
        hint = suggest(region, names, f"; known: {', '.join(names)}")
        raise InputError(f"region={region!r} is not a region of Vertex AI {_AS_OF}{hint}")


def check_accelerator(accelerator: str, region: str) -> None:
    """Raise InputError for an accelerator that training does not have in a region."""
    regions = accelerators()[accelerator].regions if accelerator else ()
    if accelerator and region not in regions:
        raise InputError(
            f"accelerator_type={accelerator!r} is not in {region} {_AS_OF}, but in "
            f"{', '.join(regions)}"
        )


def check_monitoring(region: str) -> None:
    """Raise InputError for a region without Model Monitoring."""
    if region in CONTENT["without_monitoring"]:
        raise InputError(
            f"{region} has no Model Monitoring {_AS_OF}; leave out --monitor, or use another region"
        )


def has_experiments(region: str) -> bool:
    """Return False for a region without Vertex AI Experiments."""
    return region not in CONTENT["without_experiments"]


def check_serving_machine(name: str, region: str) -> None:
    """Raise InputError for a machine type without accelerator that a region can't serve with."""
    if region in CONTENT["serving_n1_with_accelerators"] and name.startswith("n1-"):
        other = next(name for name in serving_types() if not name.startswith("n1-"))
        raise InputError(
            f"machine_type={name!r} needs an accelerator in {region} {_AS_OF}; use one such as "
            f"{other!r}"
        )


def is_within(region: str, location: str, *, table: bool = False, view: bool = False) -> bool:
    """Return whether a location of Cloud Storage or BigQuery is a region, or contains it.

    Of a location with two regions, True. In Europe, a BigQuery table must be in the region itself,
    and a view everywhere.
    https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/predictions/get-batch-predictions
    https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/general/locations
    """
    if location in _MULTI_REGIONS:
        regional = view or (location == "eu" and (table or region in _OUTSIDE_EU))
        return region.startswith(_MULTI_REGIONS[location]) and not regional
    return location == region or not _REGION.fullmatch(location)
