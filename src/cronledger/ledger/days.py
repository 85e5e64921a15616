"""Readers of one day of one (job, scope), each with a bounded statement.

The role cronledger_viewer may read everything.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from cronledger.ledger import queries
from cronledger.rules import calendars
from cronledger.rules.model import ScopeKey

Row = dict[str, Any]
MOST_PAUSES = 1000


class DayRows:
    """Readers of the rows of [start, end) of one scope. They lock nothing. Raise psycopg.Error.

    `read`: returns the rows of the statement of `sql/NAME.sql` with these parameters. `extent` is
    read first, so that the other statements see everything that its cursor accounts for.
    """

    def __init__(
        self,
        read: Callable[[str, Mapping[str, object]], list[Row]],
        key: ScopeKey,
        start: datetime,
        end: datetime,
    ) -> None:
        self._rows = read
        self._day = {**queries.scope(key), "start": start, "end": end}

    def _read(self, name: str, **params: object) -> list[Row]:
        return self._rows(name, self._day | params)

    def extent(self) -> Row | None:
        """Return `now`, `pruned_through` and the state of planning; None: no such scope."""
        rows = self._read("show_day_extent")
        return rows[0] if rows else None

    def revisions(self, limit: int) -> list[Row]:
        """Return the revision at the start, and at most `limit` that follow, the oldest first."""
        return self._read("list_day_revisions", max_rows=limit)

    def calendars(self, revisions: Sequence[Row]) -> list[Row]:
        """Return the rows of `calendar_revisions` that these revisions name."""
        definitions = (row["definition"] for row in revisions)
        keys = calendars.named_in(one for one in definitions if "calendar" in one)
        return self._rows("read_calendars", queries.calendar_keys(keys)) if keys else []

    def counts(self, graces: Mapping[int, timedelta]) -> list[Row]:
        """Return the executions by trigger and state: their seconds, or their number by minute.

        `graces`: the grace of each revision, which decides what is late. The first one is that of
        all other revisions.
        """
        return self._read(
            "count_day_executions",
            revisions=list(graces),
            graces=list(graces.values()),
            grace=next(iter(graces.values()), None),
        )

    def executions(self, triggers: Sequence[str], limit: int) -> list[Row]:
        """Return the executions with one of these triggers, by plan_time, at most `limit`."""
        return self._read("list_day_executions", triggers=list(triggers), max_rows=limit)

    def skips(self) -> list[Row]:
        """Return the skips whose ranges reach into the day, by their first plan_time."""
        return self._read("list_day_skips")

    def planned_skips(self) -> list[Row]:
        """Return the planned skips that contain an instant of the day."""
        day = self._day
        return self._read(
            "list_planned_skips_at", since=day["start"], until=day["end"], max_rows=None
        )

    def pauses(self) -> list[Row]:
        """Return the pauses of the job that are planned or in force, the first one first."""
        return self._read("list_job_pauses", max_rows=MOST_PAUSES)

    def verified_at(self) -> datetime | None:
        """Return when the last run of `verify` that found no violation of the day ended."""
        rows = self._read("show_day_verified")
        return rows[0]["finished_at"] if rows else None

    def runners(self, queue: str, since: datetime, limit: int) -> list[Row]:
        """Return when the runners of a queue lived that were seen after `since`."""
        return self._read("list_day_runners", queue=queue, start=since, max_rows=limit)
