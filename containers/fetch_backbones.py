"""Download the ImageNet weights of backbones, without their tops, to $KERAS_HOME.

python3 fetch_backbones.py [NAME ...]      names of keras.applications
"""

import os
import sys
from pathlib import Path


def main(names: list[str]) -> str | None:
    """Return an error as one line, or None."""
    home = Path(os.environ["KERAS_HOME"])
    # Any user of the container may add weights.
    home.mkdir(parents=True, exist_ok=True)
    home.chmod(0o1777)
    if not names:
        return None
    import keras

    for name in names:
        backbone = getattr(keras.applications, name, None)
        if not name[:1].isupper() or backbone is None:
            return f"error: BACKBONES: {name!r} is not in keras.applications"
        try:
            backbone(include_top=False, weights="imagenet")
        # Keras raises a bare Exception for a download that failed.
        except Exception as error:
            return f"error: BACKBONES: the weights of {name} can't be downloaded: {error}"
        print(f"{name}: its ImageNet weights are in {home}")
    for folder in (home, *(path for path in home.rglob("*") if path.is_dir())):
        folder.chmod(0o1777)
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
