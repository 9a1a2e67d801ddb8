"""The container engine and the image of a run on this machine with --in-containers."""

import itertools
import pathlib
import re
import shutil
from collections.abc import Iterable
from typing import Any

from components.planning.code_digest import OUTSIDE, PACKAGES, ROOT
from vertex.emulator import containers
from vertex.errors import InputError

ENGINES = ("docker", "podman")
_CODE = (*PACKAGES, *(f":!{folder}" for folder in OUTSIDE))
"""The paths of this checkout that an image holds."""


def list_mounts(runs_directory: pathlib.Path, arguments: Iterable[Any]) -> dict[pathlib.Path, bool]:
    """Return the folders that a run's containers mount, and whether each is writable.

    These are the folder of runs, writable, and the local paths among the arguments.
    """
    mounts = {runs_directory.resolve(): True}
    # The model's options may name a file of weights.
    values = itertools.chain.from_iterable(
        argument.values() if isinstance(argument, dict) else [argument] for argument in arguments
    )
    for value in values:
        location = value.rpartition(":")[2] if isinstance(value, str) else ""
        if location.startswith("/") and not location.startswith(("//", "/gcs/")):
            # For a pattern, mount the nearest folder that exists.
            path = pathlib.Path(location)
            path = next(folder for folder in (path, *path.parents) if folder.exists())
            if path != pathlib.Path("/"):
                mounts.setdefault(path, False)
    return mounts


def find_engine(image: str) -> str:
    """Return docker or podman, the first that works and has `image`; raise InputError for none."""
    reasons = []
    for name in ENGINES:
        if not shutil.which(name):
            reasons.append(f"{name} is not installed")
        elif containers.call(name, "info").returncode:
            reasons.append(f"{name} info fails")
        elif containers.call(name, "image", "inspect", image).returncode:
            raise InputError(f"{name} has no {image!r}; run make image or compile.py --image=IMAGE")
        else:
            return name
    raise InputError(f"--in-containers needs docker or podman: {', '.join(reasons)}")


def find_outdated_commit(engine: str, image: str, root: pathlib.Path = ROOT) -> str:
    """Return the commit that an image was built from, if its code differs from that in `root`.

    Return "" if the code is the same, the image names no commit or git doesn't know the commit.
    """
    label = '{{index .Config.Labels "org.opencontainers.image.revision"}}'
    shown = containers.inspect_image(engine, image, label)
    commit = shown.removesuffix("-dirty")
    if not re.fullmatch("[0-9a-f]{40}", commit) or not shutil.which("git"):
        return ""
    difference = containers.call("git", "-C", str(root), "diff", "--quiet", commit, "--", *_CODE)
    return shown if difference.returncode == 1 else ""
