"""The cache of task outputs, which trusts an entry only while all it names is whole.

kfp.local's own takes an artifact's folder for good as soon as it exists, and knows nothing
of the code behind a component. Here an entry also holds a checksum of every file and of itself,
and its key the source of what the component imports from this repository, and the packages' lock:
a rerun after an edit of the trainer writes records again exactly when the edit is in code that the
writing uses.
"""

import ast
import hashlib
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from kfp import dsl
from kfp.local.cache import LocalCache, _MissingArtifactError

from pipelines.emulator.environment import component_file
from pipelines.local import run_files
from trainer.data import storage

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_PACKAGES = ("components", "trainer")
_DAMAGES = (
    *(OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError),
    _MissingArtifactError,
)
"""Errors of reading an entry that is absent or damaged, or that names what is gone."""


class WholeCache(LocalCache):
    """kfp.local's cache, with files checked and code counted. Used through kfp_patches."""

    def compute_key(self, *args: Any, **kwargs: Any) -> str:
        key = super().compute_key(*args, **kwargs)
        code = fingerprint(kwargs["full_command"])
        return hashlib.sha256(f"{key} {code}".encode()).hexdigest()

    def get(self, key: str) -> dict[str, Any] | None:
        return read_entry(pathlib.Path(self._entry_path(key)))

    def put(self, key: str, outputs: dict[str, Any]) -> None:
        write_entry(pathlib.Path(self._entry_path(key)), outputs)


def write_entry(path: pathlib.Path, outputs: Mapping[str, Any]) -> None:
    """Keep the outputs of a task: artifacts and plain values by name."""
    kept = {"outputs": LocalCache._serialize_outputs(dict(outputs)), "files": files_of(outputs)}
    content = json.dumps({**kept, "sha256": _sha256(kept)}).encode()
    # Runs of one folder may end the same task at the same time.
    storage.write_whole(str(path), content, shared=True)


def read_entry(path: pathlib.Path, *, may_have_grown: bool = False) -> dict[str, Any] | None:
    """Return the outputs of an entry; None where it, or a file that it names, is not whole.

    Args:
        may_have_grown: further files in its folders are no damage.
    """
    try:
        content = json.loads(path.read_text())
        if content.pop("sha256") != _sha256(content):
            return None
        outputs = LocalCache._deserialize_outputs(content["outputs"])
        kept, found = content["files"].items(), files_of(outputs).items()
    except _DAMAGES:
        return None
    return outputs if kept == found or (may_have_grown and kept <= found) else None


def fingerprint(command: Sequence[str]) -> str:
    """Hash of all modules of this repository that a component imports, directly or not.

    And of the packages that are locked: other versions may write other records. On Vertex AI
    all that is the image.

    Args:
        command: of the component's container; it names the component's function, or holds the
            source of a component of the user's own.
    """
    found: dict[pathlib.Path, str] = {}
    pending = [name for word in command for name in _imports(word)]
    if file := component_file(command):
        pending.append(f"components.{file.stem}")
    while pending:
        for path in _modules(pending.pop()):
            if path not in found:
                found[path] = path.read_text(encoding="utf-8")
                imported = _imports(found[path])
                pending += imported
                # Such a package imports whichever of its files is asked for.
                if "trainer.plugins" in imported and path.name == "__init__.py":
                    package = path.parent.relative_to(_ROOT).parts
                    pending += [".".join([*package, one.stem]) for one in path.parent.glob("*.py")]
    digest = hashlib.sha256()
    lock = _ROOT / "requirements.lock"
    if lock.is_file():
        digest.update(lock.read_bytes())
    for path in sorted(found):
        digest.update(f"{path.relative_to(_ROOT)}\0{found[path]}\0".encode())
    return digest.hexdigest()


def code_digest() -> str:
    """Return a hash of all code that components and replicas may run."""
    digest = hashlib.sha256()
    for package in _PACKAGES:
        for path in sorted((_ROOT / package).rglob("*.py")):
            digest.update(f"{path.relative_to(_ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _imports(source: str) -> list[str]:
    """Dotted names that Python text imports: modules, or things in them; [] if it is none."""
    if "import" not in source:
        return []
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except SyntaxError:
        return []
    names = []
    for node in nodes:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [name for name in names if name.partition(".")[0] in _PACKAGES]


def _modules(name: str) -> list[pathlib.Path]:
    """Files that importing `name` runs: its own and its packages' __init__.py."""
    parts = name.split(".")
    folders = [_ROOT.joinpath(*parts[: n + 1]) for n in range(len(parts))]
    files = [folder / "__init__.py" for folder in folders] + [folders[-1].with_suffix(".py")]
    return [file for file in files if file.is_file()]


def files_of(outputs: Mapping[str, Any]) -> dict[str, str]:
    """Return a checksum of every file of every artifact in `outputs`, by path or URI."""
    found = {}
    for output in outputs.values():
        for artifact in output if isinstance(output, list) else [output]:
            if isinstance(artifact, dsl.Artifact):
                found.update(run_files.checksums(artifact.uri))
    return found


def _sha256(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
