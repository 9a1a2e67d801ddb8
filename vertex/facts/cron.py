"""Cron expressions of schedules: five fields, after an optional time zone.

Libraries accept more than Vertex AI does (seconds, years, L, #), so that each field would be
checked here anyway, and this package has no dependencies.

https://docs.cloud.google.com/gemini-enterprise-agent-platform/reference/rest/v1/projects.locations.schedules
https://man7.org/linux/man-pages/man5/crontab.5.html
"""

import calendar
import dataclasses
import datetime
import itertools
import re
import zoneinfo

from vertex.errors import InputError

_ZONE = re.compile(r"(?:CRON_)?TZ=(\S+)\s+(.*)")
_PART = re.compile(r"(?:\*|(\d+)(?:-(\d+))?)(?:/([1-9]\d*))?")
_UNITS = (
    ("minute", 0, 59),
    ("hour", 0, 23),
    ("day of the month", 1, 31),
    ("month", 1, 12),
    ("day of the week", 0, 7),
)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_NAMES = {
    "month": {name: str(number) for number, name in enumerate(_MONTHS, 1)},
    "day of the week": {name: str(number) for number, name in enumerate(_DAYS)},
}
_LONGEST_DAYS = 8 * 366
_LEAP_YEAR = 2028


@dataclasses.dataclass(frozen=True)
class Cron:
    """A parsed cron expression."""

    zone: datetime.tzinfo
    # Minutes, hours, days of the month, months, and days of the week (0 is Sunday).
    fields: tuple[frozenset[int], ...]
    either: bool  # both day fields are restricted, so that a match of either is enough

    def next_after(self, moment: datetime.datetime) -> datetime.datetime:
        """Return the first matching minute after a moment, in UTC."""
        local = moment.astimezone(self.zone).replace(second=0, microsecond=0)
        minutes, hours, days, months, weekdays = self.fields
        today = local.toordinal()
        for number in range(today, min(today + _LONGEST_DAYS, datetime.date.max.toordinal())):
            day = datetime.date.fromordinal(number)
            matches = (day.day in days, day.isoweekday() % 7 in weekdays)
            if day.month not in months or not (any(matches) if self.either else all(matches)):
                continue
            for hour, minute in itertools.product(sorted(hours), sorted(minutes)):
                time = datetime.time(hour, minute, tzinfo=self.zone)
                start = datetime.datetime.combine(day, time)
                if start > moment:
                    return start.astimezone(datetime.UTC)
        raise InputError("cron never matches a time")


def parse(text: str) -> Cron:
    """Parse five fields after an optional TZ=ZONE; raise InputError for another text."""
    match = _ZONE.fullmatch(text)
    name, rest = (match[1], match[2]) if match else ("UTC", text)
    try:
        zone = zoneinfo.ZoneInfo(name)
    except (ValueError, zoneinfo.ZoneInfoNotFoundError):
        raise InputError(f"cron={text!r}: {name!r} is not an IANA time zone") from None
    fields, parts = parse_fields(rest), rest.split()
    return Cron(zone, fields, not parts[2].startswith("*") and not parts[4].startswith("*"))


def parse_fields(text: str) -> tuple[frozenset[int], ...]:
    """Parse the five fields of a cron expression; raise InputError for another text."""
    parts = text.split()
    if len(parts) != len(_UNITS):
        raise InputError(
            f"cron={text!r} is not five fields (minute hour day month weekday), such as '0 3 * * 1'"
        )
    try:
        fields = [_parse_field(part, *unit) for part, unit in zip(parts, _UNITS, strict=True)]
    except InputError as error:
        raise InputError(f"cron={text!r}: {error}") from None
    _, _, days, months, _ = fields
    longest = max(calendar.monthrange(_LEAP_YEAR, month)[1] for month in months)
    if min(days) > longest and parts[4].startswith("*"):
        raise InputError(f"cron={text!r}: no day {min(days)} in that month; give 1 to {longest}")
    return (*fields[:4], frozenset(day % 7 for day in fields[4]))


def _parse_field(text: str, unit: str, minimum: int, maximum: int) -> frozenset[int]:
    """Return the values that a field such as 0-30/10,45 names."""
    names, values = _NAMES.get(unit, {}), set()
    for part in text.lower().split(","):
        match = _PART.fullmatch(re.sub("[a-z]+", lambda word: names.get(word[0], word[0]), part))
        if not match:
            raise InputError(f"{part!r} is not a valid {unit}; give *, numbers, ranges and steps")
        first, last, step = (int(group) if group else None for group in match.groups())
        for number in (first, last):
            if number is not None and not minimum <= number <= maximum:
                raise InputError(f"{number} is not a valid {unit}; give {minimum} to {maximum}")
        if last is None:
            last = first if first is not None and not step else maximum
        first = minimum if first is None else first
        if last < first:
            raise InputError(f"{part!r} is not a valid {unit}; give the smaller one first")
        values |= set(range(first, last + 1, step or 1))
    return frozenset(values)
