"""Cron expressions of schedules: five fields and a time zone.

https://docs.cloud.google.com/gemini-enterprise-agent-platform/reference/rest/v1/projects.locations.schedules
"""

import dataclasses
import datetime
import re
import zoneinfo

from pipelines.emulator.api_error import invalid

_ZONE = re.compile(r"(?:CRON_)?TZ=(\S+)\s+(.*)")
_PART = re.compile(r"(?:\*|(\d+)(?:-(\d+))?)(?:/(\d+))?")
_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_LONGEST_DAYS = 8 * 366


@dataclasses.dataclass(frozen=True)
class Cron:
    """A parsed cron expression.

    Attributes:
        fields: minutes, hours, days of the month, months, and days of the week (0 is Sunday).
        either: both day fields are restricted, so that a match of either is enough.
    """

    zone: datetime.tzinfo
    fields: tuple[frozenset[int], ...]
    either: bool

    def next_after(self, moment: datetime.datetime) -> datetime.datetime:
        """Return the first matching minute after a moment, in UTC."""
        local = moment.astimezone(self.zone).replace(second=0, microsecond=0)
        minutes, hours, days, months, weekdays = self.fields
        first = local.toordinal()
        for number in range(first, min(first + _LONGEST_DAYS, datetime.date.max.toordinal())):
            day = datetime.date.fromordinal(number)
            chosen = (day.day in days, day.isoweekday() % 7 in weekdays)
            if day.month not in months or not (any(chosen) if self.either else all(chosen)):
                continue
            for hour in sorted(hours):
                for minute in sorted(minutes):
                    clock = datetime.time(hour, minute, tzinfo=self.zone)
                    found = datetime.datetime.combine(day, clock)
                    if found > moment:
                        return found.astimezone(datetime.timezone.utc)
        raise invalid("cron never matches a time")


def parse(text: str) -> Cron:
    """Parse a schedule's cron expression.

    Raises:
        ApiError: it is not five fields, after an optional TZ=ZONE.
    """
    match = _ZONE.fullmatch(text)
    name, rest = (match[1], match[2]) if match else ("UTC", text)
    parts = rest.split()
    try:
        zone = zoneinfo.ZoneInfo(name)
        fields = tuple(_parse_numbers(*pair) for pair in zip(parts, _RANGES, strict=True))
    except (ValueError, zoneinfo.ZoneInfoNotFoundError):
        raise invalid(f"cron {text!r} is not five fields of numbers after TZ=ZONE") from None
    weekdays = frozenset(one % 7 for one in fields[4])
    either = not parts[2].startswith("*") and not parts[4].startswith("*")
    return Cron(zone, (*fields[:4], weekdays), either)


def _parse_numbers(text: str, limits: tuple[int, int]) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if not match:
            raise ValueError(part)
        first = int(match[1]) if match[1] else limits[0]
        last = int(match[2] or (match[1] if match[1] and not match[3] else limits[1]))
        if not limits[0] <= first <= last <= limits[1]:
            raise ValueError(part)
        found |= set(range(first, last + 1, int(match[3] or 1)))
    return frozenset(found)
