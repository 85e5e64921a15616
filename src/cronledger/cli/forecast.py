"""`cronledger forecast`: show what schedules, slots and limits make of the coming days."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import click

from cronledger.cli import complete
from cronledger.cli.listing import Listing, print_listing
from cronledger.cli.session import Session, session
from cronledger.cli.show import cell, counted, echo, json_option, print_json, read_moment
from cronledger.cli.source import load_source
from cronledger.explain.forecast import (
    Basis,
    Declared,
    Interval,
    Pause,
    caveats,
    read_basis,
    running_of,
    series_of,
    with_pauses,
    with_slots,
    with_sources,
)
from cronledger.ledger import queries
from cronledger.ledger.reports import Row
from cronledger.ledger.transactions import transaction
from cronledger.rules import forecast as rules
from cronledger.rules.forecast import PERIODS, STARTS, Forecast, Outcomes

SHOWN = 20
"""Most rows of each table for people."""

_DAYS = Listing(
    {"day": "DAY", "starts": "STARTS", "others": "SKIPPED OR WAITING"}, (), "nothing is planned"
)
_QUEUES = Listing(
    {"queue": "QUEUE", "slots": "SLOTS", "limit": "LIMIT", "starts": "STARTS",
     "most_running": "AT ONCE"}, (), "",
)  # fmt: skip
_BACKLOGS = Listing(
    {"start": "FROM", "end": "UNTIL", "queue": "QUEUE", "cause": "WAITS FOR", "most": "WAITING",
     "longest": "LONGEST"}, (), "",
)  # fmt: skip
_WAITS = Listing(
    {"job": "JOB", "cause": "WAITS FOR", "count": "STARTS", "longest": "LONGEST"}, (), ""
)
_GATES = Listing(
    {"job": "JOB", "upstream": "WAITS FOR", "count": "STARTS", "longest": "LONGEST",
     "expired": "EXPIRE", "first_expired": "FIRST EXPIRES"}, (), "",
)  # fmt: skip
_RISKS = Listing(
    {"job": "JOB", "scope": "SCOPE", "plan_time": "PLAN_TIME", "kind": "DEADLINE",
     "deadline": "AT", "expected": "EXPECTED", "risk": "RISK"}, (), "",
)  # fmt: skip
_PEAKS = Listing({"at": "MINUTE", "starts": "STARTS", "running": "AT ONCE", "jobs": "JOBS"}, (), "")
_CHANGES = Listing({"job": "JOB", "day": "DAY", "before": "BEFORE", "after": "AFTER"}, (), "")


class Slots(click.ParamType[tuple[str | None, int]]):
    """`N`, or `QUEUE=N`."""

    name = "slots"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str | None, int]:
        queue, _, number = value.rpartition("=")
        if not number.isdecimal() or not 0 < int(number) < 2**31:
            self.fail(f"{value!r} is not N or QUEUE=N; write it like 20 or default=20", param, ctx)
        return queue or None, int(number)


@click.command()
@click.option(
    "--days", type=click.IntRange(1, 31), default=7, show_default=True, help="Length in days."
)
@click.option(
    "--with", "files", metavar="FILE|APP", multiple=True, shell_complete=complete.sources,
    help="Compare with the forecast after an apply of this source; repeatable.",
)  # fmt: skip
@click.option(
    "--source", metavar="NAME", help="Name of the source of --with [default: path or APP]."
)
@click.option(
    "--pause", "pauses", metavar="[JOB=]FROM/UNTIL", multiple=True,
    help="Assume a pause of a job, or of all jobs; repeatable.",
)  # fmt: skip
@click.option(
    "--slots", type=Slots(), metavar="[QUEUE=]N", multiple=True,
    help="Assume slots of a queue, or slots that all other queues share; repeatable "
    "[default: those of the live runners].",
)  # fmt: skip
@click.option(
    "--suggest", type=click.Choice([*PERIODS]), help="Suggest a free minute for a new job."
)
@json_option
def forecast(
    *,
    days: int,
    files: tuple[str, ...],
    source: str | None,
    pauses: tuple[str, ...],
    slots: tuple[tuple[str | None, int], ...],
    suggest: str | None,
    as_json: bool,
) -> None:
    """Show what the schedules will do in the coming days.

    The planner runs in virtual time, with the slots of the live runners, the limits of jobs and
    queues, overlap, catch_up, calendars, pauses, planned skips and gates. Each execution takes the
    median duration of its job in the last 28 days, and succeeds. Retries and requested executions
    are left out. Nothing is written.

    The output has the starts and skips of each day (UTC), the load of each queue, the times in
    which executions wait, the gates that wait, deadlines at risk, and the worst minutes. A deadline
    is at risk if only an execution that takes the 95th percentile of the durations misses it.

    --with prints the days of jobs that differ from the current definitions. --pause takes times or
    durations from now, such as 2h/8h. A time without an offset is read in UTC. --suggest prints a
    schedule in UTC.

    A forecast has at most 500,000 firings; with more, it ends earlier.
    """
    if source is not None and len(files) != 1:
        raise click.UsageError("--source needs exactly one --with; omit it, or use --with once")
    sources = [load_source(name, name=source, imports=False) for name in files]
    declared = [Declared(one.name, one.jobs, one.calendars) for one in sources]
    with session() as ledger:
        before = _read(ledger)
        if slots:
            before = with_slots(before, dict(slots))
        before = with_pauses(before, [_pause(text, before) for text in pauses])
        after = with_sources(before, declared, ledger.reports) if declared else before
    length = timedelta(days=days)
    found = _forecast(after, length)
    compared = _forecast(before, length) if declared else None
    for warning in _warnings(after, found):
        echo(f"Warning: {warning}", err=True)
    fields = _fields(after, found, compared, suggest)
    if as_json:
        print_json(fields)
    else:
        _print(fields, found.now)


def _read(ledger: Session) -> Basis:
    """Read what the forecast needs in one read-only transaction."""
    connection, schema = ledger.connection, ledger.settings.schema_name
    connection.read_only = True
    try:
        with transaction(connection):

            def read(name: str, params: Mapping[str, object]) -> list[Row]:
                return queries.rows(connection, name, schema, params)

            return read_basis(read)
    finally:
        connection.read_only = None


def _pause(text: str, basis: Basis) -> Pause:
    job, _, interval = text.rpartition("=")
    if job and job not in basis.jobs:
        raise click.BadParameter(
            f"job {job!r} does not exist; `cronledger jobs list` lists the jobs",
            param_hint="--pause",
        )
    first, slash, last = interval.partition("/")
    if not slash:
        raise click.BadParameter(
            f"{text!r} is not [JOB=]FROM/UNTIL; write it like report=2h/8h", param_hint="--pause"
        )
    start, end = (read_moment(x, "--pause", basis.now, ahead=True) for x in (first, last))
    if end <= start:
        raise click.BadParameter(
            f"{text!r} ends before it begins; swap the times", param_hint="--pause"
        )
    return Pause(Interval(start, end), job or None)


def _forecast(basis: Basis, length: timedelta) -> Forecast:
    return rules.forecast(series_of(basis), basis.capacity, running_of(basis), basis.now, length)


def _warnings(basis: Basis, found: Forecast) -> list[str]:
    cut = (
        f"the forecast ends at {cell(found.through)}, because there are more than "
        f"{rules.MOST_FIRINGS:,} firings; ask for fewer days"
    )
    unless = ", unless --slots names them"
    return ([cut] if found.is_cut else []) + caveats(basis, found, unless)


# --- output ---------------------------------------------------------------------------------------


def _fields(
    basis: Basis, found: Forecast, compared: Forecast | None, alias: str | None
) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "after": found.now, "through": found.through, "is_cut": found.is_cut,
        "scopes": found.scopes,
        "days": [{"day": day, **_outcomes(of)} for day, of in found.days.items()],
        "jobs": [
            {"job": job, "day": day, **_outcomes(of)}
            for (job, day), of in sorted(found.jobs.items())
        ],
        "queues": _queues(basis, found),
        "backlogs": [backlog._asdict() for backlog in found.backlogs],
        "more_backlogs": found.more_backlogs,
        "waits": [
            {"job": job, "cause": cause, "count": wait.count, "longest": wait.longest}
            for job, waits in sorted(found.waits.items()) for cause, wait in waits.items()
        ],
        "gates": [
            {
                "job": job, "upstream": upstream, "count": wait.count, "longest": wait.longest,
                "expired": wait.expired, "first_expired": wait.first_expired,
            }
            for (job, upstream), wait in sorted(found.gates.items())
        ],
        "deadlines": [
            {
                "job": risk.key.job_name, "scope_kind": risk.key.scope_kind,
                "scope": risk.key.scope_id, "plan_time": risk.plan_time, "kind": risk.kind,
                "deadline": risk.deadline, "expected": risk.expected,
                "risk": "missed" if risk.is_certain else "at risk",
            }
            for risk in found.risks
        ],
        "missed_deadlines": found.missed.total(), "risky_deadlines": found.risky.total(),
        "peaks": [
            {
                "at": found.at(peak.minute), "starts": found.starts[peak.minute],
                "running": round(found.running[peak.minute], 3),
                "jobs": [
                    {
                        "job": share.key.job_name, "scope": share.key.scope_id,
                        "running": round(share.running, 3),
                    }
                    for share in peak.shares
                ],
            }
            for peak in found.peaks
        ],
    }  # fmt: skip
    if compared is not None:
        fields["differences"] = [
            {
                "job": one.job, "day": one.day, "before": _outcomes(one.before),
                "after": _outcomes(one.after),
            }
            for one in rules.differences(compared, found)
        ]  # fmt: skip
    if alias is not None:
        fields["suggestion"] = rules.suggest(found, alias)._asdict()
    return fields


def _outcomes(of: Outcomes) -> dict[str, Any]:
    return {STARTS: of.get(STARTS, 0), **{x: n for x, n in sorted(of.items()) if x != STARTS}}


def _queues(basis: Basis, found: Forecast) -> list[dict[str, Any]]:
    starts: dict[str, int] = {}
    for (job, _), of in found.jobs.items():
        one = basis.jobs[job].job
        if not one.is_observed(found.through):  # no replica runs these
            starts[one.queue] = starts.get(one.queue, 0) + of.get(STARTS, 0)
    return [
        {
            "queue": queue, "slots": basis.capacity.slots(queue),
            "limit": basis.capacity.limits.get(queue), "starts": count,
            "most_running": found.most_running.get(queue, 0),
        }
        for queue, count in sorted(starts.items())
    ]  # fmt: skip


def _print(fields: Mapping[str, Any], now: datetime) -> None:
    echo(
        f"{cell(fields['after'])} to {cell(fields['through'])}, "
        f"{counted(fields['scopes'], 'scope')}\n"
    )
    days = [
        {"day": str(row["day"]), "starts": row[STARTS], "others": _words(row)}
        for row in fields["days"]
    ]
    print_listing(days, _DAYS, now, wide=True)
    _table("Queues", fields["queues"], _QUEUES, now)
    _table("Waiting for slots or limits", fields["backlogs"], _BACKLOGS, now)
    _table("Late starts by job", fields["waits"], _WAITS, now)
    _table("Gates that wait", fields["gates"], _GATES, now)
    _table("Deadlines at risk", fields["deadlines"], _RISKS, now)
    peaks = [
        {**row, "jobs": ", ".join(f"{one['job']} {one['running']:.2g}" for one in row["jobs"])}
        for row in fields["peaks"][:5]
    ]
    _table("Worst minutes", peaks, _PEAKS, now)
    if "differences" in fields:
        rows = [
            {
                "job": row["job"], "day": str(row["day"]), "before": _all(row["before"]),
                "after": _all(row["after"]),
            }
            for row in fields["differences"]
        ]  # fmt: skip
        if rows:
            _table("Differences", rows, _CHANGES, now)
        else:
            echo("\nNo day of a job differs.")
    if "suggestion" in fields:
        one = fields["suggestion"]
        echo(
            f"\nSuggestion: {one['schedule']} (UTC): {counted(one['starts'], 'start')} and "
            f"{one['running']:.2g} executions at once in this minute"
        )


def _table(title: str, rows: Sequence[Mapping[str, Any]], listing: Listing, now: datetime) -> None:
    if not rows:
        return
    echo(f"\n{title}")
    print_listing(rows[:SHOWN], listing, now, wide=True)
    if len(rows) > SHOWN:
        echo(f"and {len(rows) - SHOWN:,} more; --json has them")


def _words(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{n} {x}" for x, n in row.items() if x not in ("day", STARTS))


def _all(of: Outcomes) -> str:
    return ", ".join(f"{n} {x}" for x, n in of.items() if n) or "none"
