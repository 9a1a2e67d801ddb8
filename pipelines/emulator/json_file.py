"""Resources in a file that processes may share."""

import contextlib
import fcntl
import json
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

from pipelines.emulator.api_error import ApiError

Content = dict[str, Any]


class JsonFile:
    """An object in a JSON file, changed by one process at a time.

    Args:
        path: made by the first change.
        is_entry: checks a value of the object.
    """

    def __init__(self, path: pathlib.Path, is_entry: Callable[[Any], bool]) -> None:
        self._path, self._is_entry = path, is_entry

    def read(self) -> Content:
        """Return the content; {} where there is no file.

        Raises:
            ApiError: the file is damaged.
        """
        try:
            content = json.loads(self._path.read_text(encoding="utf-8"))
            if not isinstance(content, dict) or not all(map(self._is_entry, content.values())):
                raise ValueError("it has another form")
            return content
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            raise ApiError(
                "FAILED_PRECONDITION",
                f"{self._path} can't be read ({error}); mend it, or take it away with its models",
            ) from None

    @contextlib.contextmanager
    def change(self) -> Iterator[Content]:
        """Yield the content, and write it back whole at the end."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.with_suffix(".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                content = self.read()
                yield content
                half = self._path.with_suffix(".half")
                half.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
                half.replace(self._path)
        except OSError as error:
            raise ApiError(
                "FAILED_PRECONDITION", f"{self._path} can't be written: {error.strerror}"
            ) from None
