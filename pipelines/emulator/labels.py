"""Labels of resources, and lists that are filtered by them."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pipelines.emulator.api_error import invalid
from pipelines.resource_names import LABEL_KEY, LABEL_VALUE

MAX_LABELS = 64
_TERM = re.compile(r'(?:labels\.([\w-]+)|pipelineName)="([^"]*)"')


def check_labels(labels: Mapping[str, str]) -> None:
    """Refuse labels of another form than up to 63 of a-z, 0-9, _ and -; keys begin with a letter.

    https://cloud.google.com/resource-manager/docs/creating-managing-labels
    """
    if len(labels) > MAX_LABELS:
        raise invalid(f"{len(labels)} labels are given; at most {MAX_LABELS} are allowed")
    for key, value in labels.items():
        for text, pattern in ((key, LABEL_KEY), (value, LABEL_VALUE)):
            if not pattern.fullmatch(text):
                raise invalid(f"{text!r} is not a label")


def filtered(resources: Iterable[Any], text: str) -> list[Any]:
    """Return the resources that a filter lets pass.

    Its terms, joined by AND: `labels.KEY="VALUE"`, and `pipelineName="NAME"` of PipelineJobs.
    """
    found = list(resources)
    for term in filter(None, text.split(" AND ")):
        match = _TERM.fullmatch(term)
        if not match:
            raise invalid(f"filter {term!r} is not supported on this machine")
        key, value = match.groups()
        if key:
            found = [one for one in found if one.labels.get(key) == value]
        else:
            found = [one for one in found if one.pipeline_spec["pipelineInfo"]["name"] == value]
    return found
