"""Check names of Google Cloud resources against the forms that its APIs accept.

The forms come from the descriptions of a CustomJob's fields and of its EncryptionSpec:
https://docs.cloud.google.com/gemini-enterprise-agent-platform/reference/rest/Shared.Types/CustomJobSpec
https://docs.cloud.google.com/gemini-enterprise-agent-platform/reference/rest/v1/EncryptionSpec
https://cloud.google.com/iam/docs/service-account-types
The checks do not look up whether a resource exists.
"""

import re
from collections.abc import Mapping
from typing import Any

from vertex.errors import InputError
from vertex.facts import regions
from vertex.machines.machine_types import accelerators

_PROJECT = r"projects/[a-z0-9][a-z0-9.:-]*"
_EXAMPLE = regions.CONTENT["names"][0]
_LOCATION = r"/locations/(?P<location>[a-z0-9-]+)"

_FORMS = {
    "network": (
        re.compile(r"projects/[0-9]+/global/networks/[A-Za-z0-9-]+"),
        "projects/NUMBER/global/networks/NAME, with the project's number: gcloud projects describe "
        "PROJECT --format='value(projectNumber)'",
    ),
    "encryption_spec_key_name": (
        re.compile(rf"{_PROJECT}{_LOCATION}/keyRings/[\w-]{{1,63}}/cryptoKeys/[\w-]{{1,63}}"),
        "projects/PROJECT/locations/REGION/keyRings/RING/cryptoKeys/KEY",
    ),
    # User-managed accounts end in .iam, also for projects in an organization's domain; Compute
    # Engine's default is NUMBER-compute@developer, App Engine's PROJECT@appspot.
    "service_account": (
        re.compile(
            r"[a-z0-9][a-z0-9.-]*@([a-z0-9.-]+\.iam|developer|appspot)\.gserviceaccount\.com"
        ),
        "NAME@PROJECT.iam.gserviceaccount.com or NUMBER-compute@developer.gserviceaccount.com",
    ),
    "tensorboard": (
        re.compile(rf"{_PROJECT}{_LOCATION}/tensorboards/[a-z0-9-]+"),
        "projects/PROJECT/locations/REGION/tensorboards/ID",
    ),
    "image": (
        re.compile(
            r"[a-z0-9][a-z0-9._-]*(:[0-9]+(?=/))?(/[a-z0-9][a-z0-9._-]*)*"
            r"(:[A-Za-z0-9_][\w.-]*)?(@sha256:[0-9a-f]{64})?"
        ),
        f"an image's name, such as '{_EXAMPLE}-docker.pkg.dev/my-project/images/training:1'",
    ),
    "project": (
        re.compile(r"([a-z0-9.-]+:)?[a-z][a-z0-9-]*|[0-9]+"),
        "a project's ID, such as 'my-project'",
    ),
    "region": (
        re.compile(r"[a-z]+-[a-z]+[0-9]+"),
        f"a region, such as {_EXAMPLE!r}",
    ),
    "pipeline_root": (
        re.compile(r"gs://[a-z0-9][^\s]*"),
        "a folder in Cloud Storage, such as 'gs://my-bucket/runs'",
    ),
    "template_repository": (
        re.compile(r"gs://[a-z0-9][^\s]*|https?://[^\s/]+/[^\s/]+/[^\s/]+/?"),
        "a repository: neither https://REGION-kfp.pkg.dev/PROJECT/REPOSITORY nor "
        "gs://BUCKET/FOLDER",
    ),
    "endpoint": (
        re.compile(r"(https?://)?([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?/?"),
        "a server's address, such as 'http://127.0.0.1:8080' or "
        f"'{_EXAMPLE}-aiplatform.googleapis.com'",
    ),
    "dataflow_subnetwork": (
        re.compile(r".*regions/(?P<location>[a-z0-9-]+)/subnetworks/[a-z0-9-]+"),
        "regions/REGION/subnetworks/NAME",
    ),
}
LABEL_KEY, LABEL_VALUE = re.compile(r"[a-z][a-z0-9_-]{0,62}"), re.compile(r"[a-z0-9_-]{0,63}")
GOOGLES_LABELS = ("vertex-ai-", "goog-")
"""Prefixes of keys that labels of a model can't have."""
TABLE = re.compile(r"bq://[^./\s]+\.[^./\s]+\.[^./\s]+")
"""URI of a table in BigQuery."""
OUTPUT_TABLE = re.compile(r"bq://[^./]+(\.[^./]+){0,2}")
"""URI of a destination in BigQuery: a project, a data set or a table."""
_PREBUILT = re.compile(r"[a-z]+-docker\.pkg\.dev/vertex-ai(-restricted)?/prediction/.*")
_STORAGE_URI = re.compile(r"gs://[a-z0-9][a-z0-9._-]*(/.*)?")
_ALIASES = {
    **dict.fromkeys(("gpu_image", "serving_image", "image_uri", "gpu_image_uri"), "image"),
    "encryption_key": "encryption_spec_key_name",
}
"""Key in `_FORMS` of settings and parameters with another name."""
_REGIONAL = ("encryption_spec_key_name", "tensorboard", "dataflow_subnetwork")


def check(kind: str, value: str, called: str = "") -> None:
    """Raise InputError for a value that does not name a resource of this kind; accept an empty one.

    The message refers to the value by `called`; default: `kind`.
    """
    form, shown = _FORMS[kind]
    if value and not form.fullmatch(value):
        raise InputError(f"{called or kind}={value!r} is not {shown}")


def check_names(values: Mapping[str, Any]) -> None:
    """Raise InputError for settings or parameters that are not valid names of resources."""
    for name, value in values.items():
        kind = _ALIASES.get(name, name)
        if kind in _FORMS:
            check(kind, value, name)
    check_labels(values.get("labels", {}))


def check_labels(labels: Mapping[str, Any]) -> None:
    """Raise InputError for labels that resources can't have.

    https://cloud.google.com/resource-manager/docs/creating-managing-labels
    https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/model-registry/model-labels
    """
    for key, value in labels.items():
        if key.startswith(GOOGLES_LABELS):
            raise InputError(
                f"labels: {key!r} begins like a label that Google sets on models; give another key"
            )
        is_text = isinstance(value, str) and LABEL_VALUE.fullmatch(value)
        if not LABEL_KEY.fullmatch(key) or not is_text:
            raise InputError(
                f"labels: {key}={value!r} is not a label: up to 63 of a-z, 0-9, - and _, the "
                'key starting with a letter, as in team=vision or {"team": "vision"}'
            )


def check_uri(name: str, uri: str) -> None:
    """Raise InputError for a URI that is not in Cloud Storage; accept paths."""
    if "://" in uri and not _STORAGE_URI.fullmatch(uri):
        raise InputError(f"{name}: {uri!r} is neither gs://BUCKET/FOLDER nor a path")


def check_region(values: Mapping[str, str], region: str) -> None:
    """Raise InputError for a key, TensorBoard or subnetwork that is not in the run's region.

    EncryptionSpec, as above, and the page on TensorBoard require the region of the job:
    https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/experiments/tensorboard-setup
    """
    for name in _REGIONAL:
        match = _FORMS[name][0].fullmatch(values.get(name, ""))
        if match and match["location"] != region:
            raise InputError(
                f"{name}={values[name]!r} is in {match['location']}, but the run is in {region}; "
                f"give one in {region}, or --region {match['location']}"
            )


def is_prebuilt(image: str) -> bool:
    """Return True for an image of Google's, including those with the optimized runtime."""
    return bool(_PREBUILT.fullmatch(image))


def check_image_region(image: str, region: str) -> None:
    """Raise InputError for a custom image that the region's Model Registry does not accept.

    https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/predictions/custom-container-requirements
    """
    is_custom = image and not is_prebuilt(image)
    if is_custom and not image.startswith(f"{region}-docker.pkg.dev/"):
        raise InputError(
            f"serving_image={image!r} is not in the Artifact Registry of {region}, the region of "
            f"its models; push it to {region}-docker.pkg.dev/PROJECT/REPOSITORY"
        )


def check_peering(network: str, accelerator: str) -> None:
    """Raise InputError for a network with accelerators whose machines can't be peered.

    https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/training/using-private-ip
    """
    if network and accelerator and not accelerators()[accelerator].peered:
        raise InputError(f"network={network!r} can't be peered with machines with {accelerator}")


def check_tensorboard(tensorboard: str, service_account: str) -> None:
    """Raise InputError for a TensorBoard without the service account that writes to it."""
    if tensorboard and not service_account:
        raise InputError(f"tensorboard={tensorboard!r} needs a service_account to write to it")
