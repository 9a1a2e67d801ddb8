"""The cache of task outputs, and a run's journal of its tasks that have succeeded.

An entry contains its own name, a task's outputs, a checksum of every file of its artifacts, and a
checksum of itself. It is used only while they match. Paths in a folder that may move with the entry
are stored relative to it.
"""

import dataclasses
import hashlib
import pathlib
from collections.abc import Mapping
from typing import Any

from vertex import checked_json
from vertex.emulator import files
from vertex.emulator.engine.task_inputs import Artifact, list_artifacts

_JOURNAL_NAME = ".completed"
_ARTIFACT, _ARTIFACTS = "__kfp_artifact__", "__kfp_artifact_list__"
"""Marks of artifacts among the JSON values of an entry, those of kfp.local."""
_DAMAGED = (ValueError, TypeError, KeyError, AttributeError)
"""Errors of an entry with other content than `write_entry` writes."""
_CHUNK = 1 << 20
_BASE = "{{$.base}}/"
"""Stands for the folder of an entry's relative paths."""


def write_entry(
    path: pathlib.Path,
    outputs: Mapping[str, Any],
    base: pathlib.Path,
    run: str = "",
    *,
    remote: bool = True,
) -> None:
    """Write a task's outputs, artifacts and plain values by name, as an entry.

    It belongs to `run`, or to every run with the same cache. Paths in `base` become relative.
    `remote` is as in `checksum_outputs`.
    """
    entry = {
        "name": f"{run}/{path.name}",
        "outputs": {name: _to_json(value) for name, value in outputs.items()},
        "files": checksum_outputs(outputs, remote=remote),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_checked(path, to_relative(entry, base))


def read_entry(
    path: pathlib.Path,
    base: pathlib.Path,
    run: str = "",
    *,
    may_have_grown: bool = False,
    remote: bool = True,
) -> dict[str, Any] | None:
    """Return the outputs of an entry; None if it or a file that it names is missing or damaged.

    None, too, if the entry is of another task or run. If it `may_have_grown`, its folders may
    contain additional files. `base` is the present folder of its relative paths.
    """
    try:
        content = _load(path, base)
        name = f"{run}/{path.name}"
        if content.get("name", name) != name:  # Without a name, its checkpoints tell the version.
            return None
        outputs = {name: _from_json(value) for name, value in content["outputs"].items()}
        current = checksum_outputs(outputs, remote=remote).items()
        recorded = content["files"].items()
    except (OSError, *_DAMAGED):
        return None
    return outputs if recorded == current or (may_have_grown and recorded <= current) else None


def to_relative(content: Any, base: pathlib.Path) -> Any:
    """Return JSON whose texts name paths in `base` by a mark."""
    return files.replace_text(content, f"{base}/", _BASE)


def _load(path: pathlib.Path, base: pathlib.Path) -> Any:
    """Return an entry with paths in `base`; raise OSError or one of _DAMAGED."""
    return files.replace_text(checked_json.parse(files.read(path)), _BASE, f"{base}/")


class Journal:
    """The tasks of a run that have succeeded, in any attempt: an entry for each in its folder.

    `remote` is as in `checksum_outputs`.
    """

    def __init__(self, directory: pathlib.Path, *, remote: bool = True) -> None:
        self._remote = remote
        self._folder, self._directory = directory / _JOURNAL_NAME, directory.resolve()
        self._run = self._directory.name

    @property
    def tasks(self) -> list[str]:
        """Return the stored tasks outside loops, in the order in which they ended."""
        paths = sorted(self._folder.glob("*.json"), key=_changed)
        return [path.stem for path in paths]

    def put(self, task_path: str, outputs: Mapping[str, Any]) -> None:
        """Store the outputs of a task."""
        path = self._folder / f"{task_path}.json"
        write_entry(path, outputs, self._directory, self._run, remote=self._remote)

    def get(self, task_path: str) -> dict[str, Any] | None:
        """Return the outputs of a task that an earlier attempt completed; None if it did not.

        A later task may have added files: a job's folder fills while it trains.
        """
        path = self._folder / f"{task_path}.json"
        return read_entry(
            path, self._directory, self._run, may_have_grown=True, remote=self._remote
        )

    def checksum_of(self, path: str) -> str:
        """Return the SHA-256 of a file when the task ended that wrote it; empty if unknown.

        Raise InputError for a damaged entry, which may be that of the file.
        """
        # The last one: an earlier task may have seen what an interrupted attempt had written.
        for entry in sorted(self._folder.rglob("*.json"), key=_changed, reverse=True):
            with files.named(entry):
                content = _load(entry, self._directory)
                if recorded := content["files"].get(path, ""):
                    return str(recorded)
        return ""


def _changed(path: pathlib.Path) -> int:
    return path.stat().st_mtime_ns


def checksum_outputs(outputs: Mapping[str, Any], *, remote: bool = True) -> dict[str, str]:
    """Return a checksum of every file of every artifact in `outputs`, by path or URI.

    Objects in Cloud Storage are checked only in a run that keeps its artifacts there, `remote`;
    another run need not have access to it.
    """
    checksums = {}
    for value in outputs.values():
        for artifact in list_artifacts(value):
            if artifact.uri and (remote or "://" not in artifact.uri):
                checksums.update(checksum_files(artifact.uri))
    return checksums


def checksum_files(uri: str) -> dict[str, str]:
    """Return a checksum of every file at or below `uri`, by path or URI.

    Local files are read, about 1 s per GB; Cloud Storage stores the checksums of objects.
    """
    if not uri.startswith("gs://"):
        path = pathlib.Path(uri)
        found = path.rglob("*") if path.is_dir() else [path]
        return {str(file): _checksum_file(file) for file in found if file.is_file()}
    from google.cloud import storage

    # Access to objects needs no project.
    root = storage.Blob.from_uri(uri, storage.Client(project=None))
    name, bucket = root.name, root.bucket
    return {
        f"gs://{bucket.name}/{blob.name}": f"{blob.size} {blob.crc32c}"
        for blob in bucket.list_blobs(prefix=name)
        # Skip other objects with the same prefix, and folder markers.
        if blob.name == name or (blob.name.startswith(f"{name}/") and not blob.name.endswith("/"))
    }


def _checksum_file(path: pathlib.Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _to_json(value: Any) -> Any:
    if isinstance(value, Artifact):
        return {_ARTIFACT: True, **dataclasses.asdict(value)}
    if isinstance(value, list) and list_artifacts(value):
        return {_ARTIFACTS: True, "artifacts": [_to_json(artifact) for artifact in value]}
    return value


def _from_json(value: Any) -> Any:
    if isinstance(value, dict) and value.get(_ARTIFACTS):
        return [_from_json(artifact) for artifact in value["artifacts"]]
    if isinstance(value, dict) and value.pop(_ARTIFACT, False):
        return Artifact(**value)
    return value
