"""Artifacts for components' functions, as KFP's executor would make them."""

from pathlib import Path

from kfp import dsl


def artifact(kind: type[dsl.Artifact], path: Path) -> dsl.Artifact:
    """An artifact at `path`, whose folder is there and which itself is not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return kind(name=path.name, uri=str(path), metadata={})
