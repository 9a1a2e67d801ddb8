"""Folders of this machine that a run reads, or keeps records in."""

import glob
from pathlib import Path
from typing import Any

from pipelines.parameters import ParameterSet
from trainer.dataset.storage import is_remote
from trainer.errors import InputError


def on_this_machine(parameters: ParameterSet) -> dict[str, Any]:
    """Parameters that a run on this machine needs otherwise than they were given.

    Local paths become absolute, since each step runs in a folder of its own.

    Raises:
        InputError: a local folder or file that is not there.
    """
    changed: dict[str, Any] = {}
    kind, _, location = parameters.records.source.partition(":")
    if kind == "images" and not is_remote(location):
        changed["source"] = f"images:{_folder('source', location)}"
    if kind == "csv" and not is_remote(location):
        path = Path(location).expanduser().absolute()
        if not path.exists() and not glob.glob(str(path), recursive=True):  # noqa: PTH207
            raise InputError(f"source: there is no file {location!r}; give a CSV that is there")
        changed["source"] = f"csv:{path}"
    if parameters.records.data_dir and not is_remote(parameters.records.data_dir):
        changed["data_dir"] = str(_folder("data_dir", parameters.records.data_dir))
    store = parameters.records.records_store
    if store and not is_remote(store):
        changed["records_store"] = str(Path(store).expanduser().absolute())
    return changed


def _folder(name: str, location: str) -> Path:
    folder = Path(location).expanduser()
    if not folder.exists():
        raise InputError(f"{name}: there is no folder {location!r}; give one that is there")
    if not folder.is_dir():
        raise InputError(f"{name}: {location!r} is a file; give the folder that holds the classes")
    return folder.resolve()
