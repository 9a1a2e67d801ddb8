"""Numbers in JSON of PipelineSpecs and PipelineJobs, which KFP and Vertex AI pass as doubles."""

from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]
"""A JSON object."""


def to_whole_numbers(value: Any) -> Any:
    """Return a copy of JSON with every integral float as an int.

    A PipelineSpec has doubles alone, but a proto's integer field refuses 2.0.
    """
    if isinstance(value, Mapping):
        return {key: to_whole_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [to_whole_numbers(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
