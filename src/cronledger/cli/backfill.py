"""`cronledger backfill`: run past plan_times as ordinary executions."""

import io
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import click

from cronledger.cli import complete
from cronledger.cli.listing import Listing, print_listing
from cronledger.cli.parameters import scope_options
from cronledger.cli.session import Session, session
from cronledger.cli.show import echo, json_option, print_json, read_moment, require_order
from cronledger.rules.instants import iso
from cronledger.rules.model import ScopeKey
from cronledger.rules.problems import Exit
from cronledger.sources.backfill import past

BATCH = 1000
POLL_SECONDS = 0.2
COUNTS = ("made", "retried", "left_alone", "remaining")
DRY = Listing(
    {"plan_time": "PLAN TIME", "action": "ACTION", "id": "ID", "status": "STATUS"},
    drop=("status", "id"),
    none="the range contains no plan_time",
)


@click.command()
@click.argument("name", metavar="JOB", shell_complete=complete.jobs)
@click.option("--from", "start", required=True, metavar="ISO|DURATION", help="First plan_time.")
@click.option("--to", "end", required=True, metavar="ISO|DURATION", help="Last plan_time.")
@scope_options
@click.option(
    "--reprocess",
    type=click.Choice(["none", "failed", "all"]),
    default="none",
    show_default=True,
    help="Ended executions to run again.",
)
@click.option(
    "--order",
    type=click.Choice(["oldest", "newest"]),
    default="oldest",
    show_default=True,
    help="Start with the oldest or the newest plan_time.",
)
@click.option(
    "--cap",
    type=click.IntRange(1, 2**31 - 1),
    help="Maximum number of unfinished executions at once.",
)
@click.option(
    "--ended-before", metavar="ISO", help="Reprocess only executions that ended before this time."
)
@click.option("--dry-run", is_flag=True, help="Show what would be done, without doing it.")
@click.option(
    "--wait", is_flag=True, help="Wait until all have ended; exit 1 unless all succeeded."
)
@json_option
def backfill(
    *,
    name: str,
    start: str,
    end: str,
    scope: str | None,
    scope_kind: str | None,
    reprocess: str,
    order: str,
    cap: int | None,
    ended_before: str | None,
    dry_run: bool,
    wait: bool,
    as_json: bool,
) -> None:
    """Run past plan_times: create an execution for each one in [from, to] that has none.

    The history of the job decides which plan_times exist, and its current schedule decides for the
    time before the job existed. The command does not change executions that are PENDING, RUNNING or
    waiting for a retry, so the same command continues an interrupted backfill.

    With --reprocess failed, executions that ended as FAILED or CANCELLED are retried. With
    --reprocess all, each SUCCESS is also repeated, as an additional execution.
    """
    with session() as ledger:
        now = ledger.reports.now()
        key = ledger.scope(name, scope_kind, scope)
        plan_times = _plan_times(ledger, key, start, end, now)
        before = read_moment(ended_before, "--ended-before", now) if ended_before else now
        if order == "newest":
            plan_times = plan_times[::-1]
        work = _Work(ledger, key, plan_times, reprocess, before, now, cap)
        if dry_run:
            _dry(work, as_json)
            return
        _announce(work)
        work.run(wait)
    _report(work, as_json)
    if work.ends.keys() - {"SUCCESS"}:
        raise click.exceptions.Exit(Exit.FAILED)


def _plan_times(
    ledger: Session, key: ScopeKey, start: str, end: str, now: datetime
) -> Sequence[datetime]:
    """Return the planned plan_times of the range, with a note if it reaches beyond them."""
    first, last = read_moment(start, "--from", now), read_moment(end, "--to", now)
    require_order(first, last)
    found = past(ledger.reports, key, first, last)
    if found.through < last:
        echo(
            f"Note: {key.job_name} is planned through {iso(found.through)}; later plan_times are "
            "left to its schedule",
            err=True,
        )
    return found.plan_times


@dataclass(slots=True)
class _Work:
    """One backfill: its `plan_times` in the order in which they start, and counts of its work."""

    ledger: Session
    key: ScopeKey
    plan_times: Sequence[datetime]
    reprocess: str
    ended_before: datetime
    began: datetime
    cap: int | None
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    ends: dict[str, int] = field(default_factory=dict)

    def run(self, wait: bool) -> None:
        """Create the executions, as many as `cap` allows; with `wait`, wait until all have ended.

        Raises psycopg.Error. What was created until then stays, and another run continues there.
        """
        done, total = 0, len(self.plan_times)
        terminal = sys.stderr if sys.stderr.isatty() else io.StringIO()
        with click.progressbar(length=total, label=self.key.job_name, file=terminal) as bar:
            while True:
                unfinished = self._unfinished() if wait or self.cap else 0
                room = None if self.cap is None else max(0, self.cap - unfinished)
                while done < total and room != 0:
                    processed, created = self._create_batch(done, room)
                    done += processed
                    unfinished += created
                    room = None if room is None else room - created
                bar.update(max(0, done - (unfinished if wait else 0) - bar.pos))
                if not wait or (done == total and not unfinished):
                    break
                time.sleep(POLL_SECONDS)
        self.counts["remaining"] = total - done
        if wait and total:
            self.ends = self.ledger.reports.ends_since(self.key, *self._range(), self.began)

    def _create_batch(self, done: int, room: int | None) -> tuple[int, int]:
        """Process one batch after the first `done` plan_times.

        Return how many plan_times were processed, and how many of them are to run.
        """
        batch = self.plan_times[done : done + BATCH]
        result = self.ledger.call_row(
            "backfill",
            job=self.key.job_name,
            plan_times=list(batch),
            scope_kind=self.key.scope_kind,
            scope_id=self.key.scope_id,
            reprocess=self.reprocess,
            cap=room,
            ended_before=self.ended_before,
        )
        for count in COUNTS:
            self.counts[count] += result[count]
        return len(batch) - result["remaining"], result["made"] + result["retried"]

    def _unfinished(self) -> int:
        return self.ledger.reports.unfinished(self.key, *self._range()) if self.plan_times else 0

    def _range(self) -> tuple[datetime, datetime]:
        ends = (self.plan_times[0], self.plan_times[-1])
        return min(ends), max(ends) + timedelta(seconds=1)


def _announce(work: _Work) -> None:
    if work.reprocess != "none":
        since = iso(work.ended_before)
        echo(
            f"Note: executions that ended before {since} are reprocessed; if this command is "
            f"interrupted, repeat it with --ended-before {since} to continue",
            err=True,
        )


def _dry(work: _Work, as_json: bool) -> None:
    rows: list[dict[str, Any]] = []
    for at in range(0, len(work.plan_times), BATCH):
        batch = work.plan_times[at : at + BATCH]
        rows += work.ledger.reports.backfill_actions(
            work.key, batch, work.reprocess, work.ended_before
        )
    for row in rows:
        row["action"] = row["action"] or "leave"
    if as_json:
        print_json(rows)
    else:
        print_listing(rows, DRY, work.ledger.reports.now())


def _report(work: _Work, as_json: bool) -> None:
    if as_json:
        print_json({**work.counts, "ends": work.ends})
        return
    if not work.plan_times:
        echo("the range contains no plan_time", err=True)
    for count in COUNTS:
        echo(f"{count.replace('_', ' ')}: {work.counts[count]}")
    for status, number in work.ends.items():
        echo(f"{status}: {number}")
    if work.counts["remaining"]:
        echo("Note: --cap is reached; repeat the command later to continue", err=True)
