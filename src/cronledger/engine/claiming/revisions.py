"""The revisions of jobs, parsed once and kept for later claims.

Revisions are append-only, but a restore or a failover may remove the last ones. Their numbers are
then reused. So each claim reads the id of the newest revision of its jobs, and uses the revisions
kept here only if they end with that id.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID
from weakref import WeakValueDictionary

from pydantic import ValidationError

from cronledger.ledger.statements import Connection, Statements
from cronledger.rules import retry_items, targets
from cronledger.rules.calendars import Calendar, named_in
from cronledger.rules.model import Handler, Job, JobState, Revision
from cronledger.rules.printable import clean
from cronledger.rules.problems import Problem, problems_of

FIELDS = tuple(Job.model_fields)
MOST_FIELD = 120  # characters of a field, which may be a key that somebody has made up


class BrokenDefinitionError(ValueError):
    """A stored definition is not a valid job. The message names field, value and remedy."""


def parse_job(row: Mapping[str, Any]) -> Job:
    """Return a row of `jobs`, or the definition of a revision, as a Job that a handler can run.

    Raises BrokenDefinitionError.
    """
    try:
        job = Job.model_validate({name: row[name] for name in FIELDS})
    except ValidationError as error:
        raise _broken(problems_of(error)[0]) from error
    if (problem := row["gate_problem"]) is not None:
        column = problem.partition(":")[0]
        raise BrokenDefinitionError(f"{problem}; UPDATE jobs SET {column} = …")
    # The content of an `external` target is up to its workers.
    of_target = () if job.handler is Handler.EXTERNAL else targets.problems(job)
    for problem in (*of_target, *retry_items.problems(job)):
        raise _broken(problem)
    return job


def _broken(problem: Problem) -> BrokenDefinitionError:
    field = problem.field or ""
    column = re.split(r"\W", field, maxsplit=1)[0]
    if column == "target":
        field = ".".join(field.split(".")[:2])
    # Whoever may read a job sees its error, but not its target, and not its ping.
    shown = replace(
        problem, job=None, field=clean(field[:MOST_FIELD]),
        value=None if column in ("ping", "target") else problem.value,
    )  # fmt: skip
    return BrokenDefinitionError(f"{shown}; UPDATE jobs SET {column} = …")


@dataclass(slots=True)
class _Known:
    """Consecutive revisions of one job, oldest first.

    `payloads`: JSON text by revision number. `broken`: the errors of invalid definitions by
    revision number. `newest`: the id of the last revision.
    """

    run: list[Revision] = field(default_factory=list)
    payloads: dict[int, str] = field(default_factory=dict)
    broken: dict[int, str] = field(default_factory=dict)
    newest: UUID | None = None

    def serves(self, first: int, newest: UUID | None) -> bool:
        """Return whether the ledger has the same revisions, from `first` to the one with this id.

        The id of a revision stands for all earlier ones too, because it was appended to them.
        """
        return newest is not None and newest == self.newest and self.run[0].revision <= first

    def add(self, row: Mapping[str, Any], calendar: Calendar | None) -> None:
        number, payload = row["number"], row["payload_json"]
        if payload is not None:
            self.payloads[number] = payload
        try:
            job = parse_job(
                {
                    **row,
                    "payload": _json("payload", payload),
                    "target": _json("target", row["target_json"]),
                }
            )
        except BrokenDefinitionError as error:
            self.broken[number] = str(error)
            job = Job.model_construct(**row)
        state, ends, broken = JobState(row["state"]), row["pause_ends"], number in self.broken
        self.run.append(Revision(number, row["effective_from"], state, job, ends, broken, calendar))
        self.newest = row["revision_id"]


class Revisions:
    """The newest consecutive revisions of each job, oldest first.

    Their jobs do not contain scopes, because a claim finds these in `schedules`.
    """

    def __init__(self, statements: Statements) -> None:
        self._statements = statements
        self._known: dict[str, _Known] = {}
        # By the id of the row, because a restore reuses the numbers. A calendar may have 20,000
        # dates, and 100,000 jobs: all revisions of jobs share one object, as long as one needs it.
        self._calendars: WeakValueDictionary[UUID, Calendar] = WeakValueDictionary()

    async def read(self, c: Connection, wanted: Mapping[str, tuple[int, UUID | None]]) -> None:
        """Read the revisions of the `wanted` jobs, unless they are known.

        `wanted`: by job, the number of the first revision, and the id of the newest one. The same
        transaction has read the id, under the lock of one of the job's schedules. Without an id,
        the revisions are always read.
        """
        missing = {
            name: first
            for name, (first, newest) in wanted.items()
            if name not in self._known or not self._known[name].serves(first, newest)
        }
        if not missing:
            return
        rows = await (
            await self._statements.read_revisions(c, list(missing), list(missing.values()))
        ).fetchall()
        calendars = await self._read_calendars(c, rows)
        self._known.update((name, _Known()) for name in missing)
        for row in rows:
            self._known[row["job_name"]].add(row, calendars.get(row["calendar_id"]))

    async def _read_calendars(
        self, c: Connection, rows: Sequence[Mapping[str, Any]]
    ) -> dict[UUID, Calendar]:
        """Return the calendars of these revisions by id. Reads those that are not known."""
        named = {id: row for row in rows if (id := row["calendar_id"]) is not None}
        known = {id: calendar for id in named if (calendar := self._calendars.get(id)) is not None}
        if missing := named_in(row for id, row in named.items() if id not in known):
            read = await (await self._statements.read_calendars(c, missing)).fetchall()
            known |= {row["id"]: Calendar.from_row(row) for row in read}
            self._calendars.update(known)
        return known

    def since(self, name: str, revision: int) -> list[Revision]:
        """Return the revisions of a job from `revision` on, or [] if the job never existed."""
        known = self._known.get(name)
        return [] if known is None else [r for r in known.run if r.revision >= revision]

    def newest(self, name: str) -> Revision:
        return self._known[name].run[-1]

    def payload(self, name: str, revision: int) -> str | None:
        """Return the payload of a revision as JSON text, which a claim passes on unparsed."""
        return self._known[name].payloads.get(revision)

    def broken(self, name: str) -> str | None:
        """Return the error of the newest revision, or None if it is a valid job."""
        known = self._known[name]
        if not known.run:
            return "its newest revision is missing in job_revisions; edit the job to append one"
        return known.broken.get(known.run[-1].revision)


def _json(field: str, text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BrokenDefinitionError(
            f"{field}: its JSON cannot be read: {error}; UPDATE jobs SET {field} = …"
        ) from error
