"""Revisions of jobs, parsed once. They are append-only, so what was read stays true."""

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from cronledger.ledger.statements import Connection, Statements
from cronledger.rules.model import Job, JobState, Revision

FIELDS = tuple(Job.model_fields)


class BrokenDefinitionError(ValueError):
    """A stored definition that is no job; the message names field, value and remedy."""


def parse_job(row: Mapping[str, Any]) -> Job:
    """A row of `jobs`, or a revision's definition, as a Job. Raises BrokenDefinitionError."""
    try:
        return Job.model_validate({name: row[name] for name in FIELDS})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BrokenDefinitionError(
            f"{where} = {first['input']!r}: {first['msg']}; UPDATE jobs SET {where} = …"
        ) from error


class Revisions:
    """Per job the newest revisions in one unbroken run, oldest first."""

    def __init__(self, statements: Statements) -> None:
        self._statements = statements
        self._runs: dict[str, list[Revision]] = {}
        self._broken: dict[tuple[str, int], str] = {}
        self._payloads: dict[tuple[str, int], str] = {}

    async def read(self, c: Connection, wanted: Mapping[str, tuple[int, int]]) -> None:
        """Afterwards the revisions first..newest of each job in `wanted` are known."""
        missing = {
            name: first
            for name, (first, newest) in wanted.items()
            if not self._has(name, first, newest)
        }
        if not missing:
            return
        rows = await (
            await self._statements.read_revisions(c, list(missing), list(missing.values()))
        ).fetchall()
        for name in missing:
            self._runs[name] = []
        for row in rows:
            self._add(row)

    def _has(self, name: str, first: int, newest: int) -> bool:
        run = self._runs.get(name)
        return bool(run) and run[0].revision <= first and run[-1].revision >= newest  # type: ignore[index]

    def _add(self, row: Mapping[str, Any]) -> None:
        name, number = row["job_name"], row["number"]
        payload = row["payload_json"]
        if payload is not None:
            self._payloads[name, number] = payload
        try:
            job = parse_job(
                {
                    **row,
                    "payload": _json("payload", payload),
                    "target": _json("target", row["target_json"]),
                }
            )
        except BrokenDefinitionError as error:
            self._broken[name, number] = str(error)
            job = Job.model_construct(**{**row, "schedule": None})
        self._runs[name].append(
            Revision(number, row["effective_from"], JobState(row["state"]), job, row["pause_ends"])
        )

    def since(self, name: str, revision: int) -> list[Revision]:
        """The revisions of a job from `revision` on; [] for a job that never existed."""
        return [r for r in self._runs.get(name, ()) if r.revision >= revision]

    def newest(self, name: str) -> Revision:
        return self._runs[name][-1]

    def payload(self, name: str, revision: int) -> str | None:
        """The payload of a revision as JSON text: handed on as it is, a claim need not read it."""
        return self._payloads.get((name, revision))

    def broken(self, name: str) -> str | None:
        """Why the newest revision is no job; None if it is one.

        An earlier one that was none does no harm: it has no plan_times.
        """
        return self._broken.get((name, self.newest(name).revision))


def _json(field: str, text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BrokenDefinitionError(
            f"{field}: its JSON cannot be read: {error}; UPDATE jobs SET {field} = …"
        ) from error
