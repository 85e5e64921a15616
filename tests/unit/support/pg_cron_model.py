"""When pg_cron starts a job: the rules of its parser and of its clock, as its C code states them.

A field is a list of `*`, `a`, or `a-b`, of which the first and the last may have a step. A day
matches if both day fields do, where one of them begins with `*`; otherwise one is enough. Each
minute is looked at once, in `cron.timezone`. `tests/db/test_import_pg_cron.py` compares this model
with pg_cron itself.
"""

import re
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
NAMES = {
    3: ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"),
    4: ("sun", "mon", "tue", "wed", "thu", "fri", "sat"),
}
MACROS = {
    "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *",
}  # fmt: skip


class Refused(ValueError):
    """pg_cron refuses the schedule."""


def values(text: str, number: int) -> set[int]:
    low, high = BOUNDS[number]
    found: set[int] = set()
    for item in text.split(","):
        parts = re.fullmatch(r"(?:\*|(\w+)(?:-(\w+))?)(?:/(\d+))?", item)
        if parts is None or (parts[3] and parts[1] and not parts[2]):
            raise Refused(item)
        begin = low if parts[1] is None else _number(parts[1], number)
        end = high if parts[1] is None else _number(parts[2] or parts[1], number)
        step = int(parts[3] or 1)
        if begin < low or end > high or not 0 < step <= high:
            raise Refused(item)
        found.update(range(begin, end + 1, step))
    return found


def _number(word: str, number: int) -> int:
    names = NAMES.get(number, ())
    if word.lower() in names:
        return names.index(word.lower()) + BOUNDS[number][0]
    if not word.isdecimal():
        raise Refused(word)
    return int(word)


class Entry:
    """A parsed schedule."""

    def __init__(self, text: str) -> None:
        fields = MACROS.get(text, text).split()
        self.last = fields[2] == "$"
        self.star = fields[2].startswith("*") or fields[4].startswith("*")
        self.minutes, self.hours, self.doms, self.months, self.dows = (
            set() if field == "$" and number == 2 else values(field, number)
            for number, field in enumerate(fields)
        )
        if self.dows & {0, 7}:
            self.dows |= {0, 7}

    def runs_at(self, minute: datetime, zone: str) -> bool:
        """Return whether a job starts in this minute, which is in UTC."""
        local = minute.astimezone(ZoneInfo(zone))
        ends = (minute + timedelta(days=1)).astimezone(ZoneInfo(zone)).day == 1
        dom = local.day in self.doms or (self.last and ends)
        dow = local.isoweekday() in self.dows
        return (
            local.minute in self.minutes
            and local.hour in self.hours
            and local.month in self.months
            and (dom and dow if self.star else dom or dow)
        )

    def firings(self, after: datetime, through: datetime, zone: str) -> list[datetime]:
        """Return the minutes in (after, through]. No clock change may split a half hour."""
        half, found = timedelta(minutes=30), []
        at = after
        while at <= through:
            local = at.astimezone(ZoneInfo(zone))
            if local.hour in self.hours and local.month in self.months:
                minutes = (m for m in self.minutes if local.minute <= m < local.minute + 30)
                one = [at + timedelta(minutes=m - local.minute) for m in sorted(minutes)]
                if one and self.runs_at(one[0], zone):
                    found += one
            at += half
        return [one for one in found if after < one <= through]
