"""A digest of the code of this checkout, for which on Vertex AI the image's name stands."""

import hashlib
import importlib.util
import pathlib

_ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = ("components", "trainer", "vertex_facts")
"""The project's packages in an image."""
ROOTS = (_ROOT, _ROOT / "emulator")
"""Folders that hold them: a checkout has vertex_facts in the second."""


def code_digest(*modules: str) -> str:
    """Return a digest of all code that components and replicas may run.

    It covers the packages, or the files, that the users' own `modules` are in.
    """
    folders = [root / package for root in ROOTS for package in PACKAGES]
    digest = hashlib.sha256()
    for top in dict.fromkeys(module.partition(".")[0] for module in filter(None, modules)):
        if spec := importlib.util.find_spec(top):
            if spec.submodule_search_locations is None:
                digest.update(pathlib.Path(spec.origin or "").read_bytes())
            folders += map(pathlib.Path, spec.submodule_search_locations or ())
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            name = str(path.relative_to(folder.parent)).encode()
            digest.update(name + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
