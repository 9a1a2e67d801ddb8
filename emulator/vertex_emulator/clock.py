"""The emulator's clock, which can be set forward."""

import datetime


class Clock:
    """The machine's clock plus an offset."""

    def __init__(self) -> None:
        self._ahead = datetime.timedelta()

    def now(self) -> datetime.datetime:
        return datetime.datetime.now(datetime.timezone.utc) + self._ahead

    def advance(self, ahead: datetime.timedelta) -> None:
        """Set the clock forward."""
        self._ahead += ahead

    def at(self, seconds: float) -> datetime.datetime:
        """Return the emulator's time at a time of the machine, in seconds since 1970."""
        return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc) + self._ahead
