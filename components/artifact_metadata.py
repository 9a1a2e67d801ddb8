"""What Vertex ML Metadata keeps of an artifact, beside its files."""

import json
from collections.abc import Mapping
from typing import Any

METADATA_BYTES = 200_000
"""An artifact's metadata must not be larger: `metadata` in Google's artifact.proto, "200KB"."""


def fits(metadata: Mapping[str, Any]) -> bool:
    """Whether an artifact can have `metadata`: a step with a larger one fails on Vertex AI."""
    return len(json.dumps(metadata).encode()) <= METADATA_BYTES
