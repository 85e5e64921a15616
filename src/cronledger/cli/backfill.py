"""`cronledger backfill`: run past plan_times as ordinary executions."""

import io
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import click

from cronledger.cli import complete
from cronledger.cli.listing import Listing, print_listing
from cronledger.cli.parameters import moment_option, scope_options
from cronledger.cli.session import Session, session
from cronledger.cli.show import echo, json_option, print_json, read_moment, require_order
from cronledger.rules.instants import iso
from cronledger.rules.model import HOST, ScopeKey
from cronledger.rules.problems import Exit
from cronledger.sources.backfill import past

BATCH = 1000
POLL_SECONDS = 0.2
COUNTS = ("made", "retried", "left_alone", "remaining")
COLUMNS = {"plan_time": "PLAN TIME", "action": "ACTION", "id": "ID", "status": "STATUS"}
EMPTY = "the range contains no plan_time"
DRY = Listing(COLUMNS, drop=("status", "id"), none=EMPTY)
DRY_OF_HOSTS = Listing({"host": "HOST", **COLUMNS}, drop=("status", "id"), none=EMPTY)


@click.command()
@click.argument("name", metavar="JOB", shell_complete=complete.jobs)
@moment_option("--from", "start", required=True, help="First plan_time.")
@moment_option("--to", "end", required=True, help="Last plan_time.")
@scope_options
@click.option(
    "--host",
    metavar="NAME",
    shell_complete=complete.scopes,
    help="Host of a job with `every` or a list of hosts [default: each of its hosts].",
)
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
    help="Maximum number of unfinished executions at once, for each host.",
)
@moment_option(
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
    host: str | None,
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

    A job that runs on several hosts is backfilled on each host that is not retired, including the
    time before the first check-in of the host. --host or --scope selects one host.
    """
    with session() as ledger:
        now = ledger.reports.now()
        before = read_moment(ended_before, "--ended-before", now) if ended_before else now
        works = []
        keys = _scopes(ledger, name, scope_kind, scope, host)
        first, last = read_moment(start, "--from", now), read_moment(end, "--to", now)
        require_order(first, last)
        for key in keys:
            plan_times = _plan_times(ledger, key, first, last)
            if order == "newest":
                plan_times = plan_times[::-1]
            works.append(_Work(ledger, key, plan_times, reprocess, before, now, cap))
        if dry_run:
            _dry(works, as_json)
            return
        _announce(reprocess, before)
        _run(works, wait)
    ends = _report(works, as_json)
    if ends.keys() - {"SUCCESS"}:
        raise click.exceptions.Exit(Exit.FAILED)


def _scopes(
    ledger: Session, name: str, kind: str | None, scope: str | None, host: str | None
) -> list[ScopeKey]:
    """Return the scope that the options select, or all hosts of a job that runs on hosts."""
    if host is not None and (scope, kind) != (None, None):
        raise click.UsageError("--host excludes --scope and --scope-kind; omit them")
    hosts = [] if scope is not None or kind not in (None, HOST) else ledger.reports.job_hosts(name)
    if host is None and not hosts:
        return [ledger.scope(name, kind, scope)]
    if host is None:
        return [ScopeKey(name, HOST, each) for each in hosts]
    ledger.require_job(name)
    if not hosts:
        raise click.UsageError(
            f"--host {host!r}: job {name!r} has no hosts; omit --host, or add `every` to the "
            "job and start a replica with its labels"
        )
    if host not in hosts:
        some = ", ".join(hosts[:5]) + (f" and {len(hosts) - 5} more" if len(hosts) > 5 else "")
        raise click.UsageError(
            f"--host {host!r}: job {name!r} does not run on this host; use one of {some}"
        )
    return [ScopeKey(name, HOST, host)]


def _plan_times(
    ledger: Session, key: ScopeKey, first: datetime, last: datetime
) -> Sequence[datetime]:
    """Return the planned plan_times of the range, with a note if it reaches beyond them."""
    found = past(ledger.reports, key, first, last)
    if found.through < last:
        where = "" if key.host is None else f" on {key.host}"
        echo(
            f"Note: {key.job_name}{where} is planned through {iso(found.through)}; later "
            "plan_times are left to its schedule",
            err=True,
        )
    return found.plan_times


@dataclass(slots=True)
class _Work:
    """The backfill of one scope: its `plan_times` in the order in which they start, and counts.

    `done`: the number of processed plan_times. `unfinished`: the number of unfinished executions,
    if it is known.
    """

    ledger: Session
    key: ScopeKey
    plan_times: Sequence[datetime]
    reprocess: str
    ended_before: datetime
    began: datetime
    cap: int | None
    done: int = 0
    unfinished: int = 0
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    ends: dict[str, int] = field(default_factory=dict)

    def create(self, wait: bool) -> None:
        """Create as many executions as `cap` allows now.

        Raises psycopg.Error. What was created until then stays, and another run continues there.
        """
        total = len(self.plan_times)
        self.unfinished = self._count_unfinished() if wait or self.cap else 0
        room = None if self.cap is None else max(0, self.cap - self.unfinished)
        while self.done < total and room != 0:
            processed, created = self._create_batch(room)
            self.done += processed
            self.unfinished += created
            room = None if room is None else room - created
        self.counts["remaining"] = total - self.done

    def is_over(self) -> bool:
        """Return whether all executions exist and have ended, as of the last `create`."""
        return self.done == len(self.plan_times) and not self.unfinished

    def read_ends(self) -> dict[str, int]:
        """Return the number of executions that ended since the backfill began, by status."""
        if not self.plan_times:
            return {}
        return self.ledger.reports.ends_since(self.key, *self._range(), self.began)

    def _create_batch(self, room: int | None) -> tuple[int, int]:
        """Process the next batch.

        Return how many plan_times were processed, and how many of them are to run.
        """
        batch = self.plan_times[self.done : self.done + BATCH]
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

    def _count_unfinished(self) -> int:
        return self.ledger.reports.unfinished(self.key, *self._range()) if self.plan_times else 0

    def _range(self) -> tuple[datetime, datetime]:
        ends = (self.plan_times[0], self.plan_times[-1])
        return min(ends), max(ends) + timedelta(seconds=1)


def _run(works: Sequence[_Work], wait: bool) -> None:
    """Create the executions of all scopes; with `wait`, wait until all have ended."""
    total = sum(len(work.plan_times) for work in works)
    terminal = sys.stderr if sys.stderr.isatty() else io.StringIO()
    with click.progressbar(length=total, label=works[0].key.job_name, file=terminal) as bar:
        while True:
            for work in works:
                work.create(wait)
            done = sum(work.done - (work.unfinished if wait else 0) for work in works)
            bar.update(max(0, done - bar.pos))
            if not wait or all(work.is_over() for work in works):
                break
            time.sleep(POLL_SECONDS)
    if wait:
        for work in works:
            work.ends = work.read_ends()


def _announce(reprocess: str, ended_before: datetime) -> None:
    if reprocess != "none":
        since = iso(ended_before)
        echo(
            f"Note: executions that ended before {since} are reprocessed; if this command is "
            f"interrupted, repeat it with --ended-before {since} to continue",
            err=True,
        )


def _dry(works: Sequence[_Work], as_json: bool) -> None:
    rows = [row for work in works for row in _actions(work)]
    if as_json:
        print_json(rows)
    else:
        listing = DRY if works[0].key.host is None else DRY_OF_HOSTS
        print_listing(rows, listing, works[0].ledger.reports.now())


def _actions(work: _Work) -> Iterator[dict[str, Any]]:
    """Yield the action for each plan_time. A row of a host contains its name."""
    host = {} if work.key.host is None else {"host": work.key.host}
    for at in range(0, len(work.plan_times), BATCH):
        batch = work.plan_times[at : at + BATCH]
        for row in work.ledger.reports.backfill_actions(
            work.key, batch, work.reprocess, work.ended_before
        ):
            yield {**host, **row, "action": row["action"] or "leave"}


def _report(works: Sequence[_Work], as_json: bool) -> dict[str, int]:
    """Print the counts of all scopes, and return the number of ended executions by status."""
    counts, ends = dict.fromkeys(COUNTS, 0), Counter[str]()
    for work in works:
        counts = {count: number + work.counts[count] for count, number in counts.items()}
        ends.update(work.ends)
    hosts = [work.key.host for work in works if work.key.host is not None]
    if as_json:
        print_json({**({"hosts": hosts} if hosts else {}), **counts, "ends": ends})
        return ends
    if not any(work.plan_times for work in works):
        echo(EMPTY, err=True)
    if hosts:
        echo(f"hosts: {', '.join(hosts)}")
    for count, number in counts.items():
        echo(f"{count.replace('_', ' ')}: {number}")
    for status, number in sorted(ends.items()):
        echo(f"{status}: {number}")
    if counts["remaining"]:
        echo("Note: --cap is reached; repeat the command later to continue", err=True)
    return ends
