"""Revisions of jobs, parsed once for as long as the ledger has them.

Revisions are append-only, but a ledger is not: a restore, or a failover that lost the last commits,
takes revisions away, and their numbers are used again. So each claim reads the id of the newest
revision of its jobs, and what is kept here serves only under that id.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from pydantic import ValidationError

from cronledger.ledger.statements import Connection, Statements
from cronledger.rules import targets
from cronledger.rules.model import Handler, Job, JobState, Revision
from cronledger.rules.problems import Problem, problems_of

FIELDS = tuple(Job.model_fields)


class BrokenDefinitionError(ValueError):
    """A stored definition that is no job; the message names field, value and remedy."""


def parse_job(row: Mapping[str, Any]) -> Job:
    """Return a row of `jobs`, or a revision's definition, as a Job that a handler can run.

    Raises BrokenDefinitionError.
    """
    try:
        job = Job.model_validate({name: row[name] for name in FIELDS})
    except ValidationError as error:
        raise _broken(problems_of(error)[0]) from error
    # What a target of `external` holds is its workers' own.
    if job.handler is not Handler.EXTERNAL:
        for problem in targets.problems(job):
            raise _broken(replace(problem, job=None))
    return job


def _broken(problem: Problem) -> BrokenDefinitionError:
    column = re.split(r"\W", problem.field or "", maxsplit=1)[0]
    return BrokenDefinitionError(f"{problem}; UPDATE jobs SET {column} = …")


@dataclass(slots=True)
class _Known:
    """Revisions of one job in one unbroken run, oldest first. `payloads` as JSON text and, of those
    that are no job, why (`broken`), by number. `newest`: the id of the last one."""

    run: list[Revision] = field(default_factory=list)
    payloads: dict[int, str] = field(default_factory=dict)
    broken: dict[int, str] = field(default_factory=dict)
    newest: UUID | None = None

    def serves(self, first: int, newest: UUID | None) -> bool:
        """Whether this is what the ledger has from `first` to the revision with this id. Whoever
        wrote that row found all earlier ones, so its id stands for them too."""
        return newest is not None and newest == self.newest and self.run[0].revision <= first

    def add(self, row: Mapping[str, Any]) -> None:
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
            job = Job.model_construct(**{**row, "schedule": None})
        state, ends = JobState(row["state"]), row["pause_ends"]
        self.run.append(Revision(number, row["effective_from"], state, job, ends))
        self.newest = row["revision_id"]


class Revisions:
    """Per job the newest revisions in one unbroken run, oldest first. Their jobs are without their
    scopes: a claim finds these in `schedules`."""

    def __init__(self, statements: Statements) -> None:
        self._statements = statements
        self._known: dict[str, _Known] = {}

    async def read(self, c: Connection, wanted: Mapping[str, tuple[int, UUID | None]]) -> None:
        """Afterwards the revisions of each job in `wanted` are known from the given number on.

        The id is that of the job's newest revision, read in the same transaction and under the lock
        of one of its schedules; None: it is not known, and all are read.
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
        self._known.update((name, _Known()) for name in missing)
        for row in rows:
            self._known[row["job_name"]].add(row)

    def since(self, name: str, revision: int) -> list[Revision]:
        """The revisions of a job from `revision` on; [] for a job that never existed."""
        known = self._known.get(name)
        return [] if known is None else [r for r in known.run if r.revision >= revision]

    def newest(self, name: str) -> Revision:
        return self._known[name].run[-1]

    def payload(self, name: str, revision: int) -> str | None:
        """The payload of a revision as JSON text: handed on as it is, a claim need not read it."""
        return self._known[name].payloads.get(revision)

    def broken(self, name: str) -> str | None:
        """Why the newest revision is no job; None if it is one.

        An earlier one that was none does no harm: it has no plan_times.
        """
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
