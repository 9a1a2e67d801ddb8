"""The emulator's clock, which can be set forward."""

import datetime
import os

_VARIABLE = "EMULATOR_CLOCK_AHEAD"


class Clock:
    """The machine's clock plus an offset, which child processes take from the environment."""

    def __init__(self) -> None:
        self._ahead = datetime.timedelta(seconds=float(os.environ.get(_VARIABLE, 0)))

    def now(self) -> datetime.datetime:
        return datetime.datetime.now(datetime.timezone.utc) + self._ahead

    def advance(self, ahead: datetime.timedelta) -> None:
        """Set the clock forward."""
        self._ahead += ahead

    @property
    def environment(self) -> dict[str, str]:
        """Return the variable that sets the clocks of a child process."""
        return {_VARIABLE: str(self._ahead.total_seconds())}
