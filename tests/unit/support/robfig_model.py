"""The schedules of CronJobs, by the documentation of robfig/cron, which Kubernetes uses.

This model shares no code with the importer. It was compared with robfig/cron 3.0.1 itself.
"""

from datetime import UTC, datetime
from functools import cache
from zoneinfo import ZoneInfo

BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()  # noqa: SIM905
DAYS = "sun mon tue wed thu fri sat".split()  # noqa: SIM905
NAMES = {
    3: {name: number for number, name in enumerate(MONTHS, 1)},
    4: {name: number for number, name in enumerate(DAYS)},
}
DESCRIPTORS = {
    "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0", "@daily": "0 0 * * *", "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}  # fmt: skip


class Refused(ValueError):
    """robfig/cron does not accept the schedule."""


class Field:
    """The values of one field, and whether an item of it is a star."""

    def __init__(self, text: str, number: int) -> None:
        self.values: set[int] = set()
        self.star = False
        low, high = BOUNDS[number]
        for item in filter(None, text.split(",")):
            span, *steps = item.split("/")
            first, *rest = span.split("-")
            if len(rest) > 1 or len(steps) > 1:
                raise Refused(item)
            step = int(steps[0]) if steps else 1
            if first in ("*", "?"):
                begin, end = low, high
                self.star |= step == 1
            else:
                begin = self._number(first, number)
                end = self._number(rest[0], number) if rest else high if steps else begin
            if begin < low or end > high or begin > end or step == 0:
                raise Refused(item)
            self.values.update(range(begin, end + 1, step))

    @staticmethod
    def _number(word: str, number: int) -> int:
        known = NAMES.get(number, {})
        if word.lower() in known:
            return known[word.lower()]
        if not word.isdecimal():
            raise Refused(word)
        return int(word)


HALF_HOUR = 1800
"""No clock change of the zones in use is shorter, so the local hour of a half hour is one."""


def firings(text: str, zone: str, after: datetime, through: datetime) -> list[datetime]:
    """Return the instants in (after, through] whose local minute the schedule names.

    So a minute that a clock change skips does not fire, and one that it repeats fires twice.
    """
    fields = DESCRIPTORS.get(text, text).split()
    if len(fields) != 5:
        raise Refused(text)
    minute, hour, dom, month, dow = (Field(field, number) for number, field in enumerate(fields))
    found = []
    for at, local in half_hours(zone, after, through):
        if local.month not in month.values or local.hour not in hour.values:
            continue
        days = local.day in dom.values, (local.weekday() + 1) % 7 in dow.values
        if all(days) if dom.star or dow.star else any(days):
            begin = local.minute
            found += [
                datetime.fromtimestamp(at + 60 * (value - begin), UTC)
                for value in sorted(minute.values)
                if begin <= value < begin + 30
            ]
    return [one for one in found if after < one <= through]


@cache
def half_hours(zone: str, after: datetime, through: datetime) -> list[tuple[int, datetime]]:
    begin, end = (int(at.timestamp()) // HALF_HOUR for at in (after, through))
    local = ZoneInfo(zone)
    return [
        (at * HALF_HOUR, datetime.fromtimestamp(at * HALF_HOUR, local))
        for at in range(begin, end + 1)
    ]
