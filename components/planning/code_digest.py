"""Digests of the code of this checkout, and of all that determines a model but the records."""

import dataclasses
import hashlib
import importlib.util
import json
import pathlib

from trainer.training.config import TrainingConfig

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = ("components", "trainer", "vertex")
"""The project's packages in an image."""
OUTSIDE = ("vertex/emulator", "vertex/tests")
"""Their folders that no image has, as .dockerignore says."""


def code_digest(*modules: str) -> str:
    """Return a digest of all code that components and replicas may run.

    It covers the packages, or the files, that the users' own `modules` are in.
    """
    folders = [ROOT / package for package in PACKAGES]
    digest = hashlib.sha256()
    for top in dict.fromkeys(module.partition(".")[0] for module in filter(None, modules)):
        if spec := importlib.util.find_spec(top):
            if spec.submodule_search_locations is None:
                digest.update(pathlib.Path(spec.origin or "").read_bytes())
            folders += map(pathlib.Path, spec.submodule_search_locations or ())
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            name = path.relative_to(folder.parent).as_posix()
            if not name.startswith(OUTSIDE):
                digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def configuration_digest(config: TrainingConfig, code: str) -> str:
    """Return a digest, 16 hex digits, of everything but the records that determines the model.

    Machines are excluded, because they change the speed, and the model only by rounding. The
    version of the champion that warm_start names is also excluded: each training changes it, so a
    scheduled run would never find that nothing has changed. `code` identifies the code that trains.
    """
    content = json.dumps([dataclasses.asdict(config), code], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:16]
