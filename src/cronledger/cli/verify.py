"""`cronledger verify`: every plan_time is accounted for, or what is wrong."""

import dataclasses
import io
import json
import sys
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from cronledger.cli.listing import Listing, print_listing
from cronledger.cli.show import iso, json_option, read_moment

if TYPE_CHECKING:
    from cronledger.audit.judge import Violation
    from cronledger.audit.verify import Report

MOST_ROWS = 1000
LISTING = Listing(
    {
        "kind": "VIOLATION",
        "job_name": "JOB",
        "scope_id": "SCOPE",
        "plan_time": "PLAN TIME",
        "execution_id": "ID",
        "detail": "DETAIL",
    },
    drop=("execution_id", "scope_id"),
    none="no violations",
)


@click.command()
@click.argument("job", metavar="[JOB]", required=False)
@click.option("--from", "start", metavar="ISO|DURATION", help="First plan_time.")
@click.option("--to", "end", metavar="ISO|DURATION", help="Last plan_time.")
@json_option
def verify(*, job: str | None, start: str | None, end: str | None, as_json: bool) -> None:
    """Hold the ledger against what should have run.

    Every plan_time that a job's history asks for, from the creation of its schedule (or the
    retention) to where planning stands, must have its execution or lie in a skip with a true
    reason; nothing may have started early, overlapped, run too often. Exit 1 with violations. It
    only reads, and may run beside live replicas.
    """
    from cronledger.audit import verify as audit
    from cronledger.cli.session import session
    from cronledger.ledger.audits import Audits
    from cronledger.rules.errors import Exit

    with session() as ledger:
        schema, now = ledger.settings.schema_name, ledger.reports.now()
        if job is not None and not Audits(ledger.connection, schema).extent([job])["schedules"]:
            raise click.UsageError(f"job {job!r}: there is no such job; see `cronledger jobs list`")
        first = read_moment(start, "--from", now, -1) if start else None
        last = read_moment(end, "--to", now, -1) if end else None
        if first is not None and last is not None and last < first:
            raise click.UsageError(f"--to {iso(last)} lies before --from {iso(first)}")
        terminal = sys.stderr if sys.stderr.isatty() else io.StringIO()
        with click.progressbar(length=0, label="schedules", file=terminal) as bar:

            def moved(done: int, of: int) -> None:
                bar.length = of
                bar.update(done - bar.pos)

            report = audit.verify(
                ledger.connection, schema=schema, jobs=None if job is None else [job],
                from_=first, to=last, retention=ledger.settings.retention, progress=moved,
            )  # fmt: skip
            # JSON as it comes, for there may be millions; a table needs its widths first.
            kept = [] if as_json else list(islice(report, MOST_ROWS))
            for violation in report if as_json else ():
                _print_object(violation, report)
            more = sum(1 for _ in report)
    if as_json:
        _end_json(report)
    else:
        _print_table(report, kept, more, now)
    if report.violations:
        raise click.exceptions.Exit(Exit.FAILED)


def _print_object(violation: "Violation", report: "Report") -> None:
    click.echo('{"violations": [' if report.violations == 1 else ",")
    click.echo("  " + json.dumps(_fields(violation), ensure_ascii=False), nl=False)


def _end_json(report: "Report") -> None:
    totals: dict[str, Any] = dataclasses.asdict(report.tally)
    totals |= {"violations": report.violations, "kinds": dict(report.kinds)}
    begun = "\n" if report.violations else '{"violations": ['
    click.echo(f'{begun}], "totals": {json.dumps(totals)}}}')


def _fields(violation: "Violation") -> dict[str, Any]:
    fields = dataclasses.asdict(violation)
    for name in ("plan_time", "through"):
        if fields[name] is not None:
            fields[name] = iso(fields[name])
    return fields


def _print_table(report: "Report", kept: "list[Violation]", more: int, now: datetime) -> None:
    print_listing([dataclasses.asdict(violation) for violation in kept], LISTING, now)
    if more:
        click.echo(f"… and {more} more; --json prints them all", err=True)
    tally = report.tally
    click.echo(
        f"{report.violations} violations; {tally.schedules} schedules, {tally.plan_times} "
        f"plan_times, {tally.executions} executions, {tally.skips} skips",
        err=True,
    )
