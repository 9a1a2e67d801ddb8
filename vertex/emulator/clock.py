"""The emulator's clock, which can be set forward."""

import datetime
import pathlib

from vertex.emulator import files
from vertex.errors import InputError


class Clock:
    """The machine's clock plus an offset, which outlives this process if it has a file."""

    def __init__(self, file: pathlib.Path | None = None) -> None:
        self._file = file
        try:
            seconds = file.read_text() if file and file.exists() else "0"
            self._ahead = datetime.timedelta(seconds=float(seconds))
        except (OSError, ValueError, OverflowError) as error:
            raise InputError(
                f"{file} can't be read ({error}); remove it, which sets the clock back"
            ) from None

    def now(self) -> datetime.datetime:
        return datetime.datetime.now(datetime.UTC) + self._ahead

    def advance(self, ahead: datetime.timedelta) -> None:
        """Set the clock forward."""
        self._ahead += ahead
        if self._file:
            files.write_atomically(self._file, f"{self._ahead.total_seconds()}\n".encode())

    def at(self, seconds: float) -> datetime.datetime:
        """Return the emulator's time at a time of the machine, in seconds since 1970."""
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC) + self._ahead
