"""`cronledger backfill`: plan_times of the past, as ordinary executions."""

import io
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from cronledger.cli.listing import Listing, print_listing
from cronledger.cli.show import echo, iso, json_option, print_json, read_moment

if TYPE_CHECKING:
    from cronledger.cli.session import Session
    from cronledger.rules.model import ScopeKey

BATCH = 1000
POLL_SECONDS = 0.2
COUNTS = ("made", "retried", "left_alone", "remaining")
DRY = Listing(
    {"plan_time": "PLAN TIME", "action": "ACTION", "id": "ID", "status": "STATUS"},
    drop=("status", "id"),
    none="there is no plan_time in that range",
)


@click.command()
@click.argument("name", metavar="JOB")
@click.option("--from", "start", required=True, metavar="ISO|DURATION", help="First plan_time.")
@click.option("--to", "end", required=True, metavar="ISO|DURATION", help="Last plan_time.")
@click.option("--scope", metavar="ID", help="For this scope [default: the job's only one].")
@click.option("--scope-kind", metavar="KIND", help="What the scope is [default: the job's].")
@click.option(
    "--reprocess",
    type=click.Choice(["none", "failed", "all"]),
    default="none",
    show_default=True,
    help="What has ended already and runs again.",
)
@click.option(
    "--order",
    type=click.Choice(["oldest", "newest"]),
    default="oldest",
    show_default=True,
    help="Which starts first.",
)
@click.option(
    "--cap", type=click.IntRange(1, 2**31 - 1), help="At most so many unfinished at once."
)
@click.option("--ended-before", metavar="ISO", help="Reprocess nothing that ended since then.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option("--wait", is_flag=True, help="Until all have ended; exit 1 unless all SUCCESS.")
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
    """Run plan_times of the past: every one in [from, to] that has no execution gets one.

    They are the plan_times of the job's history; before it was there, of its present schedule. What
    is PENDING, RUNNING or awaits a retry is left alone, so that running the same command again goes
    on where it stopped. --reprocess failed retries what FAILED or was CANCELLED for good; all also
    repeats each SUCCESS, beside it.
    """
    from cronledger.cli.session import session
    from cronledger.cli.trigger import scope_of
    from cronledger.rules.model import ScopeKey
    from cronledger.rules.problems import Exit
    from cronledger.sources.backfill import past

    with session() as ledger:
        now = ledger.reports.now()
        first = read_moment(start, "--from", now, -1)
        last = read_moment(end, "--to", now, -1)
        if last < first:
            raise click.UsageError(f"--to {iso(last)} lies before --from {iso(first)}")
        if ledger.reports.job(name) is None:
            raise click.UsageError(
                f"job {name!r}: there is no such job; see `cronledger jobs list`"
            )
        key = ScopeKey(name, *scope_of(ledger, name, scope_kind, scope))
        found = past(ledger.reports, key, first, last)
        if found.through < last:
            echo(
                f"Note: {name} is planned through {iso(found.through)}; what is later is left to "
                "its schedule",
                err=True,
            )
        before = read_moment(ended_before, "--ended-before", now, -1) if ended_before else now
        work = _Work(
            ledger,
            key,
            found.plan_times if order == "oldest" else found.plan_times[::-1],
            reprocess,
            before,
            now,
            cap,
        )
        if dry_run:
            _dry(work, as_json)
            return
        _announce(work)
        work.run(wait)
    _report(work, as_json)
    if wait and any(work.ends[status] for status in work.ends if status != "SUCCESS"):
        raise click.exceptions.Exit(Exit.FAILED)


@dataclass(slots=True)
class _Work:
    """One backfill: `plan_times` in the order in which they start; counts of what was done."""

    ledger: "Session"
    key: "ScopeKey"
    plan_times: Sequence[datetime]
    reprocess: str
    ended_before: datetime
    began: datetime
    cap: int | None
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    ends: dict[str, int] = field(default_factory=dict)

    def run(self, wait: bool) -> None:
        """Every plan_time is looked at, as far as `cap` lets; with `wait` all of them, to the end.

        Raises psycopg.Error; what was done until then stays, and another run goes on from there.
        """
        done, total = 0, len(self.plan_times)
        terminal = sys.stderr if sys.stderr.isatty() else io.StringIO()
        with click.progressbar(length=total, label=self.key.job_name, file=terminal) as bar:
            while True:
                unfinished = self._unfinished() if wait or self.cap else 0
                room = None if self.cap is None else max(0, self.cap - unfinished)
                while done < total and room != 0:
                    looked_at, worked = self._hand_over(done, room)
                    done += looked_at
                    unfinished += worked
                    room = None if room is None else room - worked
                    bar.update(max(0, done - (unfinished if wait else 0) - bar.pos))
                bar.update(max(0, done - (unfinished if wait else 0) - bar.pos))
                if not wait or (done == total and not unfinished):
                    break
                time.sleep(POLL_SECONDS)
        self.counts["remaining"] = total - done
        if wait and total:
            self.ends = self.ledger.reports.ends_since(self.key, *self._range(), self.began)

    def _hand_over(self, done: int, room: int | None) -> tuple[int, int]:
        """How many plan_times behind `done` were looked at, and how many of them are to run."""
        from cronledger.cli.session import requester

        batch = self.plan_times[done : done + BATCH]
        answer = self.ledger.call_row(
            "backfill",
            job=self.key.job_name,
            plan_times=list(batch),
            scope_kind=self.key.scope_kind,
            scope_id=self.key.scope_id,
            reprocess=self.reprocess,
            cap=room,
            ended_before=self.ended_before,
            retention=self.ledger.settings.retention,
            requested_by=requester(),
        )
        for count in COUNTS:
            self.counts[count] += answer[count]
        return len(batch) - answer["remaining"], answer["made"] + answer["retried"]

    def _unfinished(self) -> int:
        return self.ledger.reports.unfinished(self.key, *self._range()) if self.plan_times else 0

    def _range(self) -> tuple[datetime, datetime]:
        ends = (self.plan_times[0], self.plan_times[-1])
        return min(ends), max(ends) + timedelta(seconds=1)


def _announce(work: _Work) -> None:
    if work.reprocess != "none":
        since = iso(work.ended_before)
        echo(
            f"Note: what ended before {since} is reprocessed; should this be interrupted, the same "
            f"command with --ended-before {since} goes on",
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
        echo("there is no plan_time in that range", err=True)
    for count in COUNTS:
        echo(f"{count.replace('_', ' ')}: {work.counts[count]}")
    for status, number in work.ends.items():
        echo(f"{status}: {number}")
    if work.counts["remaining"]:
        echo("Note: --cap is reached; the same command goes on later", err=True)
