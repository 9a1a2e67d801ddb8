"""Read JSON files that another process wrote and that may be damaged."""

import pathlib
from typing import TypeVar

from trainer.errors import InputError
from vertex_emulator import files
from vertex_facts import UsageError

T = TypeVar("T")


def read_json(path: pathlib.Path, form: type[T]) -> T | None:
    """Read a JSON file into a dataclass; return None if there is no file.

    Raise InputError if the file is damaged: it has a checksum, unless an earlier version of this
    project wrote it.
    """
    try:
        return files.read_checked(path, form)
    except FileNotFoundError:
        return None
    except UsageError as error:
        raise InputError(str(error)) from None
