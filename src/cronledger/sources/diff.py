"""The changes that an apply would make, and the plan_times that would appear and disappear."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from cronledger.ledger import queries
from cronledger.ledger.access import connect
from cronledger.ledger.transactions import transaction
from cronledger.rules import channels, cron
from cronledger.rules.model import GLOBAL, Job
from cronledger.sources import missing_channels
from cronledger.sources.apply import columns, outdated, refuse_foreign

SHOWN = 10
_TICK = timedelta(microseconds=1)
_TIMING = ("schedule", "timezone", "day_or", "dst_gap", "dst_fold", "starts_at", "ends_at")


@dataclass(frozen=True, slots=True)
class Occurrences:
    """A number of plan_times of one scope, and the first `SHOWN` of them."""

    count: int = 0
    first: tuple[datetime, ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """One job that would change. `fields`: the different fields, as (before, after), without
    secrets.

    `channel`: the channel whose job this is; None: the job is not that of a channel.
    `appear`, `disappear`: the plan_times of its first scope that only the new, or only the old,
    definition has.
    """

    job: str
    change: Literal["added", "changed", "retired"]
    fields: Mapping[str, tuple[Any, Any]]
    appear: Occurrences
    disappear: Occurrences
    channel: str | None = None


@dataclass(frozen=True, slots=True)
class Diff:
    """The changes to plan_times in (after, through]. `refused`: why the source would be refused."""

    after: datetime
    through: datetime
    changes: tuple[Change, ...]
    unchanged: int
    refused: str | None


def diff(
    url: str,
    jobs: Sequence[Job],
    *,
    source: str,
    days: int,
    schema: str = "cronledger",
    deploy: int | None = None,
    force: bool = False,
) -> Diff:
    """Return the changes that `apply` with the same arguments would make. Writes nothing.

    Raises psycopg.Error, and ConfigurationError for a job that belongs to another source, and for a
    channel that would be missing.
    """
    given = {"jobs": json.dumps([columns(job) for job in jobs]), "source": source}
    with connect(url) as c, transaction(c):
        (clock,) = queries.rows(c, "read_clock", schema, {})
        applied = queries.rows(c, "read_deploy", schema, {"source": source})
        found = queries.rows(c, "compare_source", schema, given)
        existing = {
            row["name"] for row in queries.rows(c, "list_channels", schema, {"channel": None})
        }
        gone = missing_channels.names(row for row in found if not row["declared"])
        names = [job.name for job in jobs]
        users = {"jobs": [row["name"] for row in found], "channels": gone}
        missing = [
            *missing_channels.of_source(jobs, existing.difference(gone)),
            *queries.rows(c, "list_channel_users", schema, users),
        ]
    stored = applied[0]["deploy"] if applied else None
    refuse_foreign(source, {
        row["name"]: row["source"] for row in found
        if row["stored"] and row["declared"] and row["retired_at"] is None
    })  # fmt: skip
    missing_channels.refuse(source, names, missing)
    now: datetime = clock["now"]
    window = now, now + timedelta(days=days)
    declared = {job.name: job for job in jobs}
    changes = [_change(row, declared.get(row["name"]), *window) for row in found]
    kept = tuple(change for change in changes if change is not None)
    return Diff(*window, kept, len(changes) - len(kept), outdated(stored, deploy, force=force))


def _change(
    row: Mapping[str, Any], job: Job | None, after: datetime, through: datetime
) -> Change | None:
    alive = row["stored"] and row["retired_at"] is None
    if job is not None and alive and not row["differs"]:
        return None
    new = dict(job.model_dump(mode="python")) if job is not None else {}
    fields = {
        name: (row[name] if row["stored"] else None, row.get(f"new_{name}", new[name]))
        for name in row["differs"] if name != "name" and job is not None
    }  # fmt: skip
    # A pause survives both a retirement and an edit.
    began = after if row["paused_at"] is None else (row["paused_until"] or through)
    began = max(after, began)
    same = alive and job is not None and not fields.keys() & {*_TIMING, "scopes", "scope_kind"}
    old_times = _plan_times(row, began, through) if alive and not same else iter(())
    new_times = _plan_times({**row, **new}, began, through) if new and not same else iter(())
    disappear, appear = _only(old_times, new_times)
    what: Literal["added", "changed", "retired"] = "changed" if alive else "added"
    channel = channels.name_of(row["name"], job.queue if job is not None else row["queue"])
    change = "retired" if job is None else what
    return Change(row["name"], change, fields, appear, disappear, channel)


def _plan_times(row: Mapping[str, Any], after: datetime, through: datetime) -> Iterator[datetime]:
    """Return the plan_times of the first scope; none for a schedule that is invalid."""
    if row["schedule"] is None:
        return iter(())
    first = row["scopes"][0] if row["scopes"] else row["scope_kind"]
    scope = f"{row['scope_kind']}/{GLOBAL if row['scope_kind'] == GLOBAL else first}"
    named = {key: row[key] for key in ("timezone", "day_or", "dst_gap", "dst_fold")}
    try:
        spec = cron.parse(row["schedule"], job=row["name"], scope=scope, **named)
    except cron.CronError:
        return iter(())  # a schedule in the ledger: it has a spec_error; a new one was refused
    if row["starts_at"] is not None:
        after = max(after, row["starts_at"] - _TICK)
    return spec.plan_times(after, min(through, row["ends_at"] or through))


def _only(a: Iterator[datetime], b: Iterator[datetime]) -> tuple[Occurrences, Occurrences]:
    """Return the plan_times that only the first, and that only the second iterator has."""
    counts = [0, 0]
    firsts: tuple[list[datetime], list[datetime]] = ([], [])
    x, y = next(a, None), next(b, None)
    while x is not None or y is not None:
        if x == y:
            x, y = next(a, None), next(b, None)
            continue
        side = 0 if y is None or (x is not None and x < y) else 1
        instant = (x, y)[side]
        assert instant is not None
        counts[side] += 1
        if len(firsts[side]) < SHOWN:
            firsts[side].append(instant)
        x, y = (next(a, None), y) if side == 0 else (x, next(b, None))
    return Occurrences(counts[0], tuple(firsts[0])), Occurrences(counts[1], tuple(firsts[1]))
