"""`cronledger verify`: check the ledger against the schedule history, and accept violations."""

import dataclasses
import io
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import islice
from typing import Any, NamedTuple

import click
from psycopg import errors

from cronledger.audit import verify as audit
from cronledger.audit.accepted import ACCEPTABLE, Acceptance
from cronledger.audit.compare import Violation
from cronledger.audit.recording import Recording
from cronledger.audit.verify import Report
from cronledger.cli import complete
from cronledger.cli.denied import OPERATOR
from cronledger.cli.listing import Listing, print_listing
from cronledger.cli.parameters import moment_option
from cronledger.cli.session import Session, requester, session
from cronledger.cli.show import (
    counted,
    echo,
    json_option,
    json_text,
    read_moment,
    require_order,
    unknown_job,
)
from cronledger.ledger.audits import Audits
from cronledger.rules.instants import iso
from cronledger.rules.problems import Exit

MOST_ROWS = 1000
COLUMNS = {
    "kind": "VIOLATION",
    "job_name": "JOB",
    "scope_id": "SCOPE",
    "plan_time": "PLAN TIME",
    "execution_id": "ID",
    "detail": "DETAIL",
}
LISTING = Listing(COLUMNS, drop=("execution_id", "scope_id"), none="no violations")
LISTING_WITH_ACCEPTED = Listing(
    COLUMNS | {"accepted": "ACCEPTED"}, drop=LISTING.drop, none=LISTING.none
)


@click.command()
@click.argument("job", metavar="[JOB]", required=False, shell_complete=complete.jobs)
@moment_option("--from", "start", help="First plan_time to check.")
@moment_option("--to", "end", help="Last plan_time to check.")
@click.option("--accept", metavar="REASON", help="Accept the violations found, for this reason.")
@click.option(
    "--kind", "kinds", multiple=True, help="With --accept: accept only this kind; repeatable."
)
@json_option
def verify(
    *,
    job: str | None,
    start: str | None,
    end: str | None,
    accept: str | None,
    kinds: Sequence[str],
    as_json: bool,
) -> None:
    """Check the ledger against the schedule history.

    Every plan_time in the history of a job must have an execution, or lie in a skip whose reason is
    true. No execution may have started early, overlapped another, or exceeded a limit. By default,
    the range begins where the schedule was created or where pruned history ends, and reaches to the
    planning cursor.

    The command may run beside live replicas. It only reads, unless --accept is given, and records
    the run in the view `verifications` if its role is a member of cronledger_operator or
    cronledger_runner.

    Exit status: 1 if there are violations that were not accepted.
    """
    _check(accept, kinds)
    with session() as ledger:
        now = ledger.reports.now()
        requested = _Requested.read(ledger, job, start, end, now)
        with _progress() as progress, _recorded(ledger, requested) as run:
            report = run.report = _audit(ledger, requested, progress)
            if accept is not None:
                report = run.report = _accepted(ledger, report, accept, kinds)
            if as_json:
                _print_json(report)
            else:
                kept = list(islice(report, MOST_ROWS))
                more = sum(1 for _ in report)
        if not as_json:
            _print_table(report, kept, more, now)
    if report.violations:
        raise click.exceptions.Exit(Exit.FAILED)


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """Show a bar if standard error is a terminal, and yield the function that moves it."""
    terminal = sys.stderr if sys.stderr.isatty() else io.StringIO()
    with click.progressbar(length=0, label="schedules", file=terminal) as bar:

        def moved(done: int, of: int) -> None:
            bar.length = of
            bar.update(done - bar.pos)

        yield moved


class _Requested(NamedTuple):
    """The job (None: all) and the range of plan_times (None: not limited) to check."""

    job: str | None
    first: datetime | None
    last: datetime | None

    @classmethod
    def read(
        cls, ledger: Session, job: str | None, start: str | None, end: str | None, now: datetime
    ) -> "_Requested":
        """Return the values of the options. Raises UsageError, also for an unknown job."""
        audits = Audits(ledger.connection, ledger.settings.schema_name)
        if job is not None and not audits.extent([job])["schedules"]:
            raise unknown_job(job, ledger.reports)
        first = read_moment(start, "--from", now) if start else None
        last = read_moment(end, "--to", now) if end else None
        require_order(first, last)
        return cls(job, first, last)


def _audit(ledger: Session, requested: _Requested, progress: Callable[[int, int], None]) -> Report:
    job, first, last = requested
    return audit.verify(
        ledger.connection,
        schema=ledger.settings.schema_name,
        jobs=None if job is None else [job],
        from_=first,
        to=last,
        progress=progress,
    )


@dataclasses.dataclass(slots=True)
class _Run:
    """The report of a run, as soon as there is one."""

    report: Report | None = None


@contextmanager
def _recorded(ledger: Session, requested: _Requested) -> Iterator[_Run]:
    """Record the run within the block, if this role may write. Otherwise say that it is not."""
    run, recording = _Run(), None
    job, first, last = requested
    try:
        recording = Recording.begin(
            ledger.connection, ledger.settings.schema_name,
            job=job, from_=first, to=last, requested_by=requester(),
        )  # fmt: skip
    except errors.InsufficientPrivilege:
        role = ledger.connection.info.user
        echo(f"Note: this run is not recorded; {role} is not a member of {OPERATOR}", err=True)
    except errors.ReadOnlySqlTransaction:
        echo("Note: this run is not recorded, because the database is read-only", err=True)
    try:
        yield run
    except BaseException as error:
        if recording is not None:
            recording.interrupt(run.report, error)
        raise
    if recording is not None and run.report is not None:
        recording.finish(run.report)


def _check(accept: str | None, kinds: Sequence[str]) -> None:
    if accept is None and kinds:
        raise click.UsageError("--kind needs --accept REASON; add it, or omit --kind")
    if accept is not None and not accept.strip():
        raise click.UsageError("--accept needs a reason; describe the incident")
    for kind in kinds:
        if kind not in ACCEPTABLE:
            raise click.UsageError(
                f"violations of the kind {kind!r} cannot be accepted; use one of "
                f"{', '.join(ACCEPTABLE)}"
            )


def _accepted(ledger: Session, found: Report, reason: str, kinds: Sequence[str]) -> Report:
    """Accept the violations of `found`, and return a report that shows them as accepted."""
    violations, by, now = list(found), requester(), ledger.reports.now()
    with ledger.connection.transaction():
        for n, violation in enumerate(violations):
            if violation.accepted is None and violation.kind in (kinds or ACCEPTABLE):
                ident = _accept(ledger, violation, reason)
                if ident is not None:
                    acceptance = Acceptance(ident, reason, by, now)
                    violations[n] = dataclasses.replace(violation, accepted=acceptance)
    report = Report(lambda _: iter(violations))
    report.tally = found.tally
    return report


def _accept(ledger: Session, violation: Violation, reason: str) -> int | None:
    """Accept one violation. Return the id, or None for a queue, whose past is unknown."""
    if violation.job_name is None:
        return None
    ident: int = ledger.call(
        "accept_violation",
        kind=violation.kind,
        job=violation.job_name,
        plan_time=violation.plan_time,
        reason=reason,
        scope_kind=violation.scope_kind,
        scope_id=violation.scope_id,
        through_plan_time=violation.through,
        execution_id=violation.execution_id,
    )
    return ident


def _print_json(report: Report) -> None:
    """Print the violations while they are found, because there may be millions."""
    before = '{"violations": ['
    for violation in report:
        click.echo(before)
        click.echo("  " + json_text(dataclasses.asdict(violation)), nl=False)
        before = ","
    totals: dict[str, Any] = dataclasses.asdict(report.tally)
    totals |= {
        "violations": report.violations, "accepted": report.accepted, "kinds": dict(report.kinds),
    }  # fmt: skip
    begun = "\n" if before == "," else before
    click.echo(f'{begun}], "totals": {json_text(totals)}}}')


def _print_table(report: Report, kept: list[Violation], more: int, now: datetime) -> None:
    listing = LISTING_WITH_ACCEPTED if report.accepted else LISTING
    print_listing(list(_cells(kept)), listing, now)
    if more:
        click.echo(f"… and {more} more; --json prints all of them", err=True)
    tally = report.tally
    accepted = f" ({report.accepted} more are accepted)" if report.accepted else ""
    counts = ", ".join(
        counted(getattr(tally, f"{what}s"), what)
        for what in ("schedule", "plan_time", "execution", "skip")
    )
    click.echo(f"{counted(report.violations, 'violation')}{accepted}; {counts}", err=True)
    click.echo(_range(report), err=True)


def _cells(violations: list[Violation]) -> Iterator[dict[str, Any]]:
    for violation in violations:
        cells = dataclasses.asdict(violation)
        by = violation.accepted
        cells["accepted"] = None if by is None else f"{by.accepted_by}: {by.reason}"
        yield cells


def _range(report: Report) -> str:
    tally = report.tally
    if tally.after is None or tally.through is None:
        text = "no plan_times were checked, because no schedule has been planned in this range"
    else:
        text = f"plan_times after {iso(tally.after)} up to {iso(tally.through)} were checked"
    if tally.observed:
        text += (
            f"; {tally.observed} of them are run by other schedulers, and their proof rests on "
            "reports, not on leases"
        )
    if tally.behind:
        text += f"; planning is behind on {tally.behind} schedules"
    return text
