"""Apply a source in one transaction: write calendars, jobs and channels, and retire the others."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from time import sleep
from typing import Any, Literal
from uuid import UUID

import psycopg

from cronledger.ledger import queries
from cronledger.ledger.access import connect
from cronledger.ledger.identity import require_ledger
from cronledger.ledger.transactions import transaction
from cronledger.rules.calendar_spec import CalendarSpec
from cronledger.rules.channels import Channel, settings
from cronledger.rules.model import Job
from cronledger.rules.problems import ConfigurationError, Problem
from cronledger.sources import missing_channels, source_calendars, upstreams

BUSY_TRIES = 40
BUSY_SECONDS = 0.05
MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class Applied:
    """The changes of an apply. `refused`: why nothing was applied, such as an older deploy.

    `channels`: the channels that were added, changed or retired, with that word. `calendars`: the
    calendars that are new, or whose declaration or dates changed. `warnings`: those about the
    calendars.
    """

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    retired: tuple[str, ...] = ()
    unchanged: int = 0
    refused: str | None = None
    channels: Mapping[str, str] = field(default_factory=dict)
    calendars: tuple[str, ...] = ()
    warnings: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyRequest:
    """The arguments with which a replica calls `apply` at its start."""

    jobs: Sequence[Job]
    channels: Mapping[str, Channel] = field(default_factory=dict)
    source: str
    deploy: int | None = None
    force: bool = False
    by: str | None = None
    calendars: Mapping[str, CalendarSpec] = field(default_factory=dict)
    host: str | None = None


def apply(
    url: str,
    jobs: Sequence[Job],
    *,
    source: str,
    channels: Mapping[str, Channel] | None = None,
    schema: str = "cronledger",
    deploy: int | None = None,
    force: bool = False,
    by: str | None = None,
    ledger: UUID | None = None,
    calendars: Mapping[str, CalendarSpec] | None = None,
    host: str | None = None,
) -> Applied:
    """Replace the jobs and channels of `source`, and set its calendars, in one transaction.

    Nothing changes if a newer deploy was applied before, unless `force` is set. A calendar that is
    not among `calendars` any more stays. `host`: this host, if the source has no name of its own
    and therefore belongs to one host; None: any host may apply it.

    Raises psycopg.Error, also if the database holds a different ledger than `ledger`, and
    ConfigurationError for a job, channel or calendar of another source, for a missing channel, for
    a calendar that cannot be written out, for a job whose calendar does not exist, and for a
    change of a source that belongs to another host, unless `force` is set.
    """
    with connect(url) as c, transaction(c):
        require_ledger(c, schema, ledger)
        applying = _Applying(c, schema, source, by, host)
        return applying.apply(jobs, channels or {}, calendars or {}, deploy, force)


@dataclass(frozen=True, slots=True)
class Retired:
    """The changes of a retirement.

    `kept`: the jobs that another live runner has, or that belong to another source. `cancelling`:
    the ids of the executions that were requested to end.
    """

    retired: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    cancelling: tuple[int, ...] = ()
    refused: str | None = None


def check_owners(
    url: str, sources: Mapping[str, Sequence[str]], schema: str = "cronledger"
) -> None:
    """Raise ConfigurationError if one of these jobs, by source, belongs to another source.

    Changes nothing. `apply` checks again.
    """
    problems: list[Problem] = []
    with connect(url) as c, transaction(c):
        for source, names in sources.items():
            rows = _Applying(c, schema, source, None).rows("read_job_revisions", jobs=list(names))
            try:
                refuse_foreign(source, _owners(rows))
            except ConfigurationError as error:
                problems.extend(error.problems)
    if problems:
        raise ConfigurationError(problems)


def retire(
    url: str,
    jobs: Sequence[str],
    *,
    source: str,
    runner: str,
    schema: str = "cronledger",
    deploy: int | None = None,
    by: str | None = None,
    ledger: UUID | None = None,
) -> Retired:
    """Retire these jobs of `source`, except those whose function another live runner has.

    If the source has no jobs left, its channels are dropped.
    Waiting executions are CANCELLED, and RUNNING executions are requested to end. Jobs of a newer
    deploy do not change. The row of `runner` must no longer list the functions.

    Raises psycopg.Error. Then either nothing was retired, or all jobs were retired and some
    executions were not requested to end.
    """
    with connect(url) as c:
        with transaction(c):
            require_ledger(c, schema, ledger)
            applying = _Applying(c, schema, source, by)
            if (refused := outdated(applying.lock()["deploy"], deploy, force=False)) is not None:
                return Retired(kept=tuple(jobs), refused=refused)
            given_up = applying.rows(
                "retire_given_up", source=source, jobs=list(jobs), runner=runner, requested_by=by
            )
            names = [row["name"] for row in given_up]
            applying.rows("drop_channels", source=source)
        requested: dict[int, str] = {}
        for _ in range(BUSY_TRIES):  # a heartbeat may hold a row
            with transaction(c):
                rows = applying.rows("cancel_running", jobs=names, requested_by=by)
            requested.update((row["id"], row["result"]) for row in rows)
            if "busy" not in requested.values():
                break
            sleep(BUSY_SECONDS)
    kept = tuple(name for name in jobs if name not in names)
    cancelling = tuple(sorted(id for id, result in requested.items() if result == "requested"))
    return Retired(tuple(sorted(names)), kept, cancelling)


@dataclass(frozen=True, slots=True)
class _Applying:
    """One transaction that changes the jobs of `source`, requested by `by` on `host`."""

    c: psycopg.Connection
    schema: str
    source: str
    by: str | None
    host: str | None = None

    def rows(self, name: str, **params: Any) -> list[dict[str, Any]]:
        return queries.rows(self.c, name, self.schema, params)

    def apply(
        self,
        jobs: Sequence[Job],
        channels: Mapping[str, Channel],
        calendars: Mapping[str, CalendarSpec],
        deploy: int | None,
        force: bool,
    ) -> Applied:
        stored_source = self.lock()
        if (refused := outdated(stored_source["deploy"], deploy, force=force)) is not None:
            return Applied(refused=refused)
        names = [job.name for job in jobs]
        self._check_upstreams(jobs)
        before = self.rows("read_job_revisions", jobs=names)
        refuse_foreign(self.source, _owners(before))
        changed_calendars, warnings = self._set_calendars(jobs, calendars)
        after = self.rows(
            "upsert_jobs",
            jobs=json.dumps([columns(job) for job in jobs]),
            source=self.source,
            deploy=deploy,
            requested_by=self.by,
        )
        if len(after) < len(names):  # another source added one meanwhile
            refuse_foreign(self.source, _owners(self.rows("read_job_revisions", jobs=names)))
        retired = self.rows("retire_missing", source=self.source, jobs=names, requested_by=self.by)
        written = self.rows(
            "upsert_channels", channels=stored(channels), source=self.source, requested_by=self.by
        )
        refuse_foreign(self.source, {x["name"]: x["source"] for x in written}, "channel")
        changes = {row["name"]: row["change"] for row in written if row["change"] is not None}
        gone = [name for name, change in changes.items() if change == "retired"]
        if gone or any(job.notify for job in jobs):
            self.rows("lock_channels", drops=bool(gone))
        missing = self.rows("list_missing_channels", jobs=names, channels=gone)
        missing_channels.refuse(self.source, names, missing)
        if any(job.gates for job in jobs):  # an edit of an upstream is one of its dependents, too
            after = self.rows("read_job_revisions", jobs=names)
        revisions = {row["name"]: row["revision"] for row in before if not row["is_retired"]}
        added = tuple(row["name"] for row in after if row["name"] not in revisions)
        changed = tuple(
            row["name"] for row in after
            if row["name"] in revisions and row["revision"] != revisions[row["name"]]
        )  # fmt: skip
        done = Applied(
            added, changed, tuple(sorted(row["name"] for row in retired)),
            len(after) - len(added) - len(changed),
            channels=changes,
            calendars=changed_calendars,
            warnings=warnings,
        )  # fmt: skip
        owner = (
            self.host if force else owning_host(self.source, stored_source["host"], self.host, done)
        )
        self.rows(
            "record_deploy", source=self.source, deploy=deploy, requested_by=self.by, host=owner
        )
        return done

    def _check_upstreams(self, jobs: Sequence[Job]) -> None:
        if any(job.gates for job in jobs):
            self.rows("lock_jobs")
            upstreams.checked(self.source, jobs, self.rows)

    def _set_calendars(
        self, jobs: Sequence[Job], specs: Mapping[str, CalendarSpec]
    ) -> tuple[tuple[str, ...], tuple[Problem, ...]]:
        """Return the names of the calendars that changed, and warnings."""
        if not specs and all(job.calendar is None for job in jobs):
            return (), ()
        (clock,) = self.rows("read_clock")
        present = {row["name"]: row for row in self.rows("list_calendars", calendar=None)}
        written, warnings = source_calendars.write_out(self.source, specs, clock["now"].date())
        source_calendars.refuse(self.source, jobs, specs, present)
        after = self.rows(
            "set_calendars",
            calendars=json.dumps([source_calendars.row(x, specs[x.name]) for x in written]),
            source=self.source,
            requested_by=self.by,
        )
        changed = [
            row["name"] for row in after
            if row["name"] not in present or row["revision"] != present[row["name"]]["revision"]
        ]  # fmt: skip
        return tuple(changed), warnings

    def lock(self) -> dict[str, Any]:
        """Lock the source. Return its last deploy and the host that it belongs to."""
        rows = self.rows("lock_source", source=self.source)
        # A row that the statement itself inserted is not in its snapshot.
        rows = rows or self.rows("lock_source", source=self.source)
        return rows[0]


def _owners(rows: Sequence[Mapping[str, Any]]) -> dict[str, str | None]:
    """Return the source of each of these jobs that is not retired."""
    return {row["name"]: row["source"] for row in rows if not row["is_retired"]}


def outdated(stored: int | None, deploy: int | None, *, force: bool) -> str | None:
    """Return why `deploy` may not follow `stored`, the last applied deploy, or None if it may."""
    if stored is None or force or (deploy is not None and deploy >= stored):
        return None
    given = "no deploy was given" if deploy is None else f"deploy {deploy} is older"
    return f"{given}, and deploy {stored} was applied before; use --force to override"


def refuse_foreign(
    source: str, owners: Mapping[str, str | None], kind: Literal["job", "channel"] = "job"
) -> None:
    """Raise ConfigurationError if one of these jobs, or channels, belongs to another source.

    Otherwise two sources would overwrite each other's at every deployment.
    """
    problems = [
        Problem(
            where=source, job=name if kind == "job" else None,
            field="name" if kind == "job" else f"channels.{name}", value=name,
            message=f"belongs to the source {owner!r}",
            remedy=f"if it is the same file, add --source {shlex.quote(owner)}; if the file or App "
            f"has moved, run `cronledger sources rename {shlex.quote(owner)} "
            f"{shlex.quote(source)}`; otherwise use another name, or remove the {kind} there first",
        )
        for name, owner in owners.items()
        if owner is not None and owner != source
    ]  # fmt: skip
    if problems:
        raise ConfigurationError(problems)


def owning_host(source: str, owner: str | None, host: str | None, changes: Applied) -> str | None:
    """Return the host to which the source belongs after `host` has applied it with these changes.

    A source without a name of its own belongs to the host that applied it first: another host may
    have another file at the same path. That host may apply the source if it changes nothing.

    Raises ConfigurationError if another host would change it.
    """
    if host is None or owner is None or owner == host:
        return host
    if changes.added or changes.changed or changes.retired or changes.channels or changes.calendars:
        message = f"belongs to the host {owner!r}, and the host {host!r} {_would(changes)}"
        remedy = (
            "if the hosts have different files, give this one a name: --source NAME. If they share "
            f"one, run `cronledger sources rename {shlex.quote(source)} NAME` once, and use "
            "--source NAME on each. With --force, the source moves to this host"
        )
        raise ConfigurationError([Problem(where=source, message=message, remedy=remedy)])
    return owner


def _would(changes: Applied) -> str:
    """Return what an apply would do, as in `would retire a, b`."""
    done = {
        "retire": changes.retired, "change": changes.changed, "add": changes.added,
        "change channel": tuple(changes.channels), "change calendar": changes.calendars,
    }  # fmt: skip
    parts = []
    for verb, names in done.items():
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        parts += [f"{verb} {', '.join(sorted(names)[:MOST_NAMED])}{more}"] if names else []
    return "would " + "; ".join(parts)


def stored(channels: Mapping[str, Channel]) -> str:
    """Return the settings of channels by name, as JSON."""
    return json.dumps({name: settings(channel) for name, channel in channels.items()})


def columns(job: Job) -> dict[str, Any]:
    """Return a job as a row of `jobs` for jsonb_populate_recordset, with intervals as text."""
    return {name: _plain(value) for name, value in job.model_dump(mode="python").items()}


def _plain(value: Any) -> Any:
    match value:
        case timedelta():
            return f"{value // timedelta(microseconds=1)} microseconds"
        case tuple():
            return [_plain(item) for item in value]
        case _ if hasattr(value, "isoformat"):
            return value.isoformat()
        case _:
            return value
