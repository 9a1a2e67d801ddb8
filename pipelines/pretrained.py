"""ImageNet weights that a run on this machine would download, looked for before it starts."""

import os
import re
import urllib.error
import urllib.request
from pathlib import Path

from trainer.errors import InputError

_SERVER = "https://storage.googleapis.com/"
"""Where Keras has the weights of keras.applications."""
_TIMEOUT_SECONDS = 5


def check_imagenet(backbone: str) -> None:
    """Check that the backbone's ImageNet weights are in Keras' cache or can be downloaded.

    Raises:
        InputError: neither.
    """
    home = os.environ.get("KERAS_HOME") or Path.home() / ".keras"
    cache = Path(home, "models")
    if any(_stem(backbone) in _stem(path.name) for path in cache.glob("*.h5")):
        return
    request = urllib.request.Request(_SERVER, method="HEAD")
    try:
        urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS).close()  # noqa: S310
    except urllib.error.HTTPError:
        return  # An answer, whatever it says of the bare address.
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise InputError(
            f"model_options: weights='imagenet': those of {backbone} are not in {cache}, "
            f"and {_SERVER} does not answer ({reason}); fetch the file where there is a network "
            "and give it as weights, or use weights=none"
        ) from None


def _stem(name: str) -> str:
    """Return a name without what files spell otherwise: mobilenetv2 for mobilenet_v2."""
    return re.sub("[^a-z0-9]", "", name.lower())
