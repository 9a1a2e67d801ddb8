"""Log the instances of prediction requests as JSON Lines, in rotated files of bounded size."""

import datetime
import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from logging import LogRecord, handlers
from pathlib import Path
from typing import Any

import numpy as np
from pydantic_core import to_json

from trainer.data import storage
from vertex.errors import InputError

Log = Callable[[Sequence[Any]], None]
"""Called with the instances of a request."""
_BYTES = 16 << 20
_OLDER_FILES = 3
"""Number of older files that are kept, as FILE.1, FILE.2, ..."""


class _PrivateHandler(handlers.RotatingFileHandler):
    """A handler whose files only their owner can read."""

    _failed = False

    def _open(self) -> Any:
        def private(path: str, flags: int) -> int:
            return os.open(path, flags, 0o600)

        return open(self.baseFilename, self.mode, encoding=self.encoding, opener=private)

    def handleError(self, _: LogRecord) -> None:  # noqa: N802
        """Report once that the file can't be written; requests are still answered."""
        if not self._failed:
            problem = f"{self.baseFilename} can't be written ({sys.exc_info()[1]})"
            print(f"warning: {problem}; requests are not logged", file=sys.stderr, flush=True)
        self._failed = True


def open_log(path: str) -> Log:
    """Return a function that appends instances to a file that only its owner can read.

    Raise InputError if the file can't be written.
    """
    try:
        handler = _PrivateHandler(path, maxBytes=_BYTES, backupCount=_OLDER_FILES, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path!r} can't be written ({error.strerror}); give another") from None

    def append(instances: Sequence[Any]) -> None:
        time = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        # One log record per request: a record per instance takes longer than its prediction.
        records = ({"time": time, "instance": instance} for instance in instances)
        lines = b"\n".join(to_json(record, fallback=np.ndarray.tolist) for record in records)
        handler.emit(LogRecord("", 0, "", 0, lines.decode(), None, None))

    return append


def read(path: str) -> Iterator[Any]:
    """Yield the instances in a log, the oldest first.

    Raise InputError if a file can't be read, or is not a request log.
    """
    files = [Path(f"{path}.{number}") for number in range(_OLDER_FILES, 0, -1)]
    for file in [*filter(Path.exists, files), Path(path)]:
        position = str(file)
        try:
            with io.TextIOWrapper(storage.open_file(position, "rb"), encoding="utf-8") as lines:
                for number, line in enumerate(lines, 1):
                    position = f"{file}:{number}"
                    # A server that was killed may have written only part of the last line.
                    if line.endswith("\n"):
                        yield json.loads(line)["instance"]
        except OSError as error:
            problem = f"{str(file)!r} can't be read ({error.strerror})"
            raise InputError(f"{problem}; use the file of serve's --log") from None
        except (ValueError, KeyError, TypeError, RecursionError):
            raise InputError(
                f"{position} is not a line of a request log; give the file of serve's --log"
            ) from None
