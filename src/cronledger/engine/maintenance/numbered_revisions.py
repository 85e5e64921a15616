"""Revisions of jobs by their numbers, for what was planned or skipped by them."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from cronledger.ledger.statements import Connection, Statements
from cronledger.rules.calendars import Calendar, CalendarKey, by_key, named_in
from cronledger.rules.model import Revision


class RevisionKey(NamedTuple):
    """The number of a revision of a job."""

    job_name: str
    revision: int


async def read_numbered(
    s: Statements, c: Connection, wanted: Collection[RevisionKey]
) -> dict[RevisionKey, Revision]:
    """Return these revisions, without those that do not exist. Raises psycopg.Error."""
    if not wanted:
        return {}
    keys = sorted(wanted)
    names, numbers = [key.job_name for key in keys], [key.revision for key in keys]
    rows = await (await s.deadline_revisions(c, names, [None] * len(names), numbers)).fetchall()
    read = await with_calendars(s, c, rows)
    return {RevisionKey(name, x.revision): x for name, of_job in read.items() for x in of_job}


async def with_calendars(
    s: Statements, c: Connection, rows: Sequence[Mapping[str, Any]]
) -> dict[str, list[Revision]]:
    """Return the revisions of these rows by job, with their calendars. Raises psycopg.Error."""
    calendars: dict[CalendarKey, Calendar] = {}
    if keys := named_in(rows):
        read = await (await s.read_calendars(c, keys)).fetchall()
        calendars = by_key(read)
    found: dict[str, list[Revision]] = {}
    for row in rows:
        found.setdefault(row["job_name"], []).append(Revision.unchecked(row, calendars))
    return found
