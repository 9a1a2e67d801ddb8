"""The tasks of a run that have succeeded, kept so that the run can be resumed."""

import hashlib
import json
import pathlib
from collections.abc import Mapping
from typing import Any

from trainer.data import storage

_FOLDER_NAME = ".completed"
_ARTIFACT = "schemaTitle"


class Journal:
    """Keeps a file a task, with its outputs and the size of every file of theirs.

    Args:
        directory: of the run, which may have had an earlier attempt.
    """

    def __init__(self, directory: pathlib.Path) -> None:
        self._folder = directory / _FOLDER_NAME
        self._intact = True

    @property
    def tasks(self) -> list[str]:
        """Return the tasks that it holds, in the order in which they ended."""
        paths = sorted(self._folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
        return [path.stem for path in paths]

    def put(self, task: str, outputs: Mapping[str, Any]) -> None:
        """Keep the outputs of a task: artifacts and plain values by name."""
        from pipelines.local.cache import files_of

        self._folder.mkdir(exist_ok=True)
        values = {name: _plain(value) for name, value in outputs.items()}
        kept = {"outputs": values, "files": files_of(outputs)}
        content = json.dumps({**kept, "sha256": _sha256(kept)}).encode()
        storage.write_whole(str(self._path(task)), content, shared=True)

    def get(self, task: str) -> dict[str, Any] | None:
        """Return the outputs of a task that an earlier attempt has completed.

        None from the first task on that is not there or not whole: what came after it was made
        of other outputs than it will have now.
        """
        if not self._intact:
            return None
        from pipelines.local.cache import DAMAGED, files_of

        try:
            content = json.loads(self._path(task).read_text())
            if content.pop("sha256") != _sha256(content):
                raise ValueError("another content than was kept")
            outputs = {name: _restored(value) for name, value in content["outputs"].items()}
            # A later task may have added files: a job's folder fills while it trains.
            self._intact = content["files"].items() <= files_of(outputs).items()
        except DAMAGED:
            self._intact = False
        return outputs if self._intact else None

    def _path(self, task: str) -> pathlib.Path:
        return self._folder / f"{task}.json"


def _sha256(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _plain(value: Any) -> Any:
    from kfp import dsl

    if not isinstance(value, dsl.Artifact):
        return {"value": value}
    return {
        "artifact": {
            "name": value.name,
            "uri": value.uri,
            "metadata": value.metadata,
            "type": {_ARTIFACT: type(value).schema_title},
        }
    }


def _restored(value: dict[str, Any]) -> Any:
    from kfp.dsl import executor

    artifact = value.get("artifact")
    return executor.create_artifact_instance(artifact) if artifact else value["value"]
