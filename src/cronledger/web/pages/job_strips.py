"""The last 24 hours of the jobs of a list: a strip each, of all scopes that are looked at."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from markupsafe import Markup
from starlette.requests import Request

from cronledger.explain.day.states import BY_URGENCY, State
from cronledger.explain.day.strips import Strip, joined, read_strips, worst
from cronledger.ledger.reports import ReadRows, Row
from cronledger.rules.model import ScopeKey
from cronledger.web.drawing.strip import draw_strip, list_strip
from cronledger.web.site import site_of

STRIPS_SECONDS = 10.0
"""A cell of a strip is a quarter of an hour."""
MOST_SCOPES = 10
"""Scopes of one job that are looked at."""
MOST_FAILURES = 500
"""The newest failures of all jobs. Their scopes are looked at before others."""

MOST_STREAK = 50
"""Failures in a row that the statements of the list count."""

_TROUBLE = BY_URGENCY[: BY_URGENCY.index(State.WAITING)]


@dataclass(frozen=True, slots=True)
class JobStrip:
    """The strip of a job.

    `scopes`: the number of scopes in it. `worst`: of several scopes, the one to look at first, and
    the most urgent state that it has.
    """

    figure: Markup
    scopes: int
    worst: tuple[ScopeKey, State] | None


@dataclass(frozen=True, slots=True)
class Streak:
    """The failures in a row of one scope, which is that of the job with the most of them."""

    key: ScopeKey
    count: int
    since: datetime | None


async def read_jobs_strips(
    request: Request, rows: Sequence[Row], now: datetime | None
) -> tuple[Mapping[str, JobStrip], Mapping[str, Streak]]:
    """Return the strips until `now`, and the streaks of failures, of these jobs by their names.

    `rows`: those of `list_shown_jobs`. Jobs without a scope, and what could not be read, are
    missing.
    """
    found = [_streak(row["name"], row) for row in rows if row["scope_id"] is not None]
    found += await _scopes(request, [row["name"] for row in rows if row["scopes"] > 1])
    keys = tuple(one.key for one in found)
    if not keys or now is None:
        return {}, {}

    def draw(read: ReadRows) -> Mapping[str, JobStrip]:
        of_job: dict[str, list[Strip]] = defaultdict(list)
        for strip in read_strips(read, keys, now):
            of_job[strip.key.job_name].append(strip)
        return {name: _strip(strips) for name, strips in of_job.items()}

    drawn = await site_of(request).reader.compute("strips", draw, keys=keys, fresh=STRIPS_SECONDS)
    streaks: dict[str, Streak] = {}
    for one in found:
        if one.count > (streaks[one.key.job_name].count if one.key.job_name in streaks else 0):
            streaks[one.key.job_name] = one
    return drawn.value or {}, streaks


async def _scopes(request: Request, names: Sequence[str]) -> list[Streak]:
    """Return the scopes of jobs with several that are looked at, with their streaks."""
    if not names:
        return []
    found = await site_of(request).reader.read(
        "list_shown_scopes", names=list(names), max_scopes=MOST_SCOPES,
        max_failures=MOST_FAILURES, max_rows=MOST_SCOPES * len(names), fresh=STRIPS_SECONDS,
    )  # fmt: skip
    return [_streak(row["job_name"], row) for row in found.known]


def _streak(job: str, row: Row) -> Streak:
    key = ScopeKey(job, row["scope_kind"], row["scope_id"])
    return Streak(key, row["streak"], row["failing_since"])


def _strip(strips: Sequence[Strip]) -> JobStrip:
    strip = joined(strips)
    found = worst(strips) if len(strips) > 1 else None
    urgent = (found[0].key, found[1]) if found and found[1] in _TROUBLE else None
    return JobStrip(Markup(draw_strip(strip) + list_strip(strip)), len(strips), urgent)
