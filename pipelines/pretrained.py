"""ImageNet weights that a run on this machine would download, looked for before it starts."""

import os
import re
from pathlib import Path

from components.cloud_errors import CloudError
from pipelines.cloud import reachability
from trainer.errors import InputError

_SERVER = "https://storage.googleapis.com/"
"""Where Keras has the weights of keras.applications."""


def check_imagenet(backbone: str) -> None:
    """Check that the backbone's ImageNet weights are in Keras' cache or can be downloaded.

    Raises:
        InputError: neither.
    """
    home = os.environ.get("KERAS_HOME") or Path.home() / ".keras"
    cache = Path(home, "models")
    if any(_stem(backbone) in _stem(path.name) for path in cache.glob("*.h5")):
        return
    try:
        reachability.check(
            _SERVER, advice="fetch the file where there is a network, or use weights=none"
        )
    except CloudError as error:
        raise InputError(
            f"model_options: weights='imagenet': those of {backbone} are not in {cache}: {error}"
        ) from None


def _stem(name: str) -> str:
    """Return a name without what files spell otherwise: mobilenetv2 for mobilenet_v2."""
    return re.sub("[^a-z0-9]", "", name.lower())
