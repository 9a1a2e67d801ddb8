"""The emulator's clock, which can be set forward."""

import datetime
import os
import pathlib

from trainer.data import storage
from trainer.errors import InputError

_VARIABLE = "EMULATOR_CLOCK_AHEAD"


class Clock:
    """The machine's clock plus an offset, which child processes take from the environment.

    With a file, the offset outlives this process.
    """

    def __init__(self, file: pathlib.Path | None = None) -> None:
        seconds = os.environ.get(_VARIABLE, "0")
        self._file = file
        try:
            if file and file.exists():
                seconds = file.read_text()
            self._ahead = datetime.timedelta(seconds=float(seconds))
        except (OSError, ValueError, OverflowError) as error:
            raise InputError(
                f"{file or _VARIABLE} can't be read ({error}); remove it, which sets the clock back"
            ) from None

    def now(self) -> datetime.datetime:
        return datetime.datetime.now(datetime.timezone.utc) + self._ahead

    def advance(self, ahead: datetime.timedelta) -> None:
        """Set the clock forward."""
        self._ahead += ahead
        if self._file:
            storage.write_atomically(str(self._file), f"{self._ahead.total_seconds()}\n".encode())

    @property
    def environment(self) -> dict[str, str]:
        """Return the variable that sets the clocks of a child process."""
        return {_VARIABLE: str(self._ahead.total_seconds())}
