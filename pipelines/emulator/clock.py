"""The time of the emulator, which can be wound forward."""

import datetime


class Clock:
    """Goes as the machine's, ahead of it by what it was wound."""

    def __init__(self) -> None:
        self._ahead = datetime.timedelta()

    def now(self) -> datetime.datetime:
        return datetime.datetime.now(datetime.timezone.utc) + self._ahead

    def forward(self, ahead: datetime.timedelta) -> None:
        """Wind it forward."""
        self._ahead += ahead
