"""The cache of task outputs, and a run's journal of its tasks that have succeeded.

kfp.local's own cache accepts any artifact folder that exists and ignores the code that a
component imports. Here, an entry also contains a checksum of every file and of itself.
The entry's name depends on the modules of this repository that the component imports, and on the
lock file of packages. So after an edit of the trainer, records are written again only if the step
that writes them uses the edited code.
"""

import ast
import contextlib
import hashlib
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from components.planning.code_digest import PACKAGES
from pipelines.local import run_files
from trainer import checked_json
from trainer.data import storage
from trainer.errors import InputError
from vertex_emulator.environment import component_file

_JOURNAL_NAME = ".completed"
_ROOT = pathlib.Path(__file__).resolve().parents[2]
_DAMAGED = (ValueError, TypeError, KeyError, AttributeError)
"""Errors of an entry with other content than `write_entry` writes."""


def entry_name(
    image: str, command: Sequence[str], variables: Mapping[str, str], inputs: Mapping[str, Any]
) -> str:
    """Return the file name of a task's entry.

    Args:
        image: ID of the image that the task runs in; without containers, the image's name.
        command: command of the component's container, with placeholders.
    """
    return f"{_sha256([image, command, variables, inputs, fingerprint(command)])}.json"


def write_entry(path: pathlib.Path, outputs: Mapping[str, Any]) -> None:
    """Write a task's outputs, artifacts and plain values by name, as an entry."""
    from kfp.local.cache import LocalCache

    entry = {
        "outputs": LocalCache._serialize_outputs(dict(outputs)),
        "files": checksum_outputs(outputs),
    }
    content = json.dumps(checked_json.with_checksum(entry)).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    # Two runs in the same folder of runs may finish the same task at the same time.
    storage.write_atomically(str(path), content, shared=True)


def read_entry(path: pathlib.Path, *, may_have_grown: bool = False) -> dict[str, Any] | None:
    """Return the outputs of an entry; None if it or a file that it names is missing or damaged.

    If it `may_have_grown`, its folders may contain additional files.
    """
    from kfp.local.cache import LocalCache, _MissingArtifactError

    try:
        content = checked_json.parse(path.read_bytes())
        outputs = LocalCache._deserialize_outputs(content["outputs"])
        recorded, current = content["files"].items(), checksum_outputs(outputs).items()
    except (OSError, _MissingArtifactError, *_DAMAGED):
        return None
    return outputs if recorded == current or (may_have_grown and recorded <= current) else None


class Journal:
    """The tasks of a run that have succeeded, in any attempt: an entry for each in its folder."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._folder = directory / _JOURNAL_NAME
        self._intact = True

    @property
    def tasks(self) -> list[str]:
        """Return the stored tasks outside loops, in the order in which they ended."""
        paths = sorted(self._folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
        return [path.stem for path in paths]

    def put(self, task_path: str, outputs: Mapping[str, Any]) -> None:
        """Store the outputs of a task."""
        write_entry(self._folder / f"{task_path}.json", outputs)

    def get(self, task_path: str) -> dict[str, Any] | None:
        """Return the outputs of a task that an earlier attempt completed.

        Return None for the first task whose entry is missing or damaged, and for all later tasks,
        which may have used outputs that will now change.
        """
        outputs = None
        if self._intact:
            # A later task may have added files: a job's folder fills while it trains.
            outputs = read_entry(self._folder / f"{task_path}.json", may_have_grown=True)
        self._intact = outputs is not None
        return outputs

    def check_file(self, path: str) -> None:
        """Raise InputError if a file has changed since the task ended that wrote it."""
        for entry in self._folder.glob("*.json"):
            recorded = ""
            with contextlib.suppress(OSError, *_DAMAGED):  # Then the file itself may be intact.
                recorded = checked_json.parse(entry.read_bytes())["files"].get(path, "")
            if recorded and storage.sha256(path) != recorded:
                raise InputError(
                    f"{path} is damaged: its SHA-256 has changed since its run wrote it; restore "
                    "the file, or run the recipe again"
                )


def fingerprint(command: Sequence[str]) -> str:
    """Return a digest of the modules of this repository that a component imports, even indirectly.

    The digest covers the lock file of packages, since other versions may write other records. On
    Vertex AI the image determines both. A command names the component's function, or contains the
    source of a user's own component.
    """
    sources: dict[pathlib.Path, str] = {}
    pending = [name for word in command for name in _find_imports(word)]
    if file := component_file(command):
        pending.append(f"components.{file.stem}")
    while pending:
        for path in _find_modules(pending.pop()):
            if path not in sources:
                sources[path] = path.read_text(encoding="utf-8")
                imported = _find_imports(sources[path])
                pending += imported
                # A package of plugins imports its modules by name at run time.
                if "trainer.plugins" in imported and path.name == "__init__.py":
                    package = path.parent.relative_to(_ROOT).parts
                    modules = path.parent.glob("*.py")
                    pending += [".".join([*package, module.stem]) for module in modules]
    digest = hashlib.sha256()
    lock = _ROOT / "requirements.lock"
    if lock.is_file():
        digest.update(lock.read_bytes())
    for path in sorted(sources):
        digest.update(f"{path.relative_to(_ROOT)}\0{sources[path]}\0".encode())
    return digest.hexdigest()


def _find_imports(source: str) -> list[str]:
    """Return the dotted names that Python source imports; [] if it can't be parsed."""
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
    return [name for name in names if name.partition(".")[0] in PACKAGES]


def _find_modules(name: str) -> list[pathlib.Path]:
    """Return the files that importing `name` runs: its own and its packages' __init__.py."""
    parts = name.split(".")
    folders = [_ROOT.joinpath(*parts[: n + 1]) for n in range(len(parts))]
    files = [folder / "__init__.py" for folder in folders] + [folders[-1].with_suffix(".py")]
    return [file for file in files if file.is_file()]


def checksum_outputs(outputs: Mapping[str, Any]) -> dict[str, str]:
    """Return a checksum of every file of every artifact in `outputs`, by path or URI."""
    checksums = {}
    for output in outputs.values():
        for artifact in output if isinstance(output, list) else [output]:
            if uri := getattr(artifact, "uri", ""):
                checksums.update(run_files.checksum_files(uri))
    return checksums


def _sha256(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
