"""`cronledger dev`: run jobs on a temporary database, and restart when a file changes."""

import json
import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from cronledger.cli import complete
from cronledger.cli.check import read_start
from cronledger.cli.check_report import print_report
from cronledger.cli.show import echo, read_instant
from cronledger.rules.instants import iso

if TYPE_CHECKING:
    from cronledger.ledger.time_travel import Travel
    from cronledger.process.reload import Children

LIBRARY = "watchfiles"
DRAIN_TIMEOUT = "5s"


@click.command()
@click.argument("source", metavar="[APP|FILE]", required=False, shell_complete=complete.sources)
@click.option(
    "--at", metavar="ISO", help="Time at which the clock of the ledger starts [default: now]."
)
@click.option(
    "--count", type=click.IntRange(0, 1000), default=3, show_default=True,
    help="Number of firings to show of each job.",
)  # fmt: skip
@click.option("--no-reload", is_flag=True, help="Do not restart when a file changes.")
def dev(*, source: str | None, at: str | None, count: int, no_reload: bool) -> None:
    """Run jobs on a temporary database, and restart when a file changes.

    FILE ends with .toml, and APP is package.module:app [default: ./cronledger.toml]. The database
    is an embedded PostgreSQL in a temporary directory, which is removed at the end. The first line
    of the output is the variable by which other commands reach it.

    When FILE, or a Python or iCalendar file below the working directory, changes, dev checks the
    jobs as `check` does. If they are valid, dev shows their next firings, and a new replica runs
    them. Otherwise dev shows the errors, and the replica continues with the jobs that it has. If
    FILE or the package of APP does not exist at the start, dev exits with 2.

    With --at, the clock of the ledger starts at that time, when the first replica starts. A time
    without an offset is read in the time zone of the jobs.

    Restarts need the extra `cronledger[reload]`. The first SIGTERM or Ctrl-C waits for running
    work, and the second stops it.
    """
    from cronledger.cli.session import HERE

    if at is not None:
        read_instant(at, "--at")
    if not no_reload and find_spec(LIBRARY) is None:
        raise click.UsageError(
            f"the library {LIBRARY}, which notices changes, is not installed; run "
            "`pip install 'cronledger[reload]'`, or add --no-reload"
        )
    raise click.exceptions.Exit(_run(source or HERE, at, count, reload=not no_reload))


def _run(source: str, at: str | None, count: int, *, reload: bool) -> int:
    from cronledger.cli.session import HERE
    from cronledger.cli.source import require_found
    from cronledger.embedded.server import Embedded
    from cronledger.process.guard import guarded
    from cronledger.process.reload import Children, run_and_reload
    from cronledger.rules.problems import Exit
    from cronledger.settings import OfflineSettings

    require_found(source)  # no change would repair a mistyped name
    binaries = OfflineSettings.load().embedded_binaries
    with ExitStack() as stack:
        directory = stack.enter_context(
            TemporaryDirectory(prefix="cronledger-dev-", ignore_cleanup_errors=True)
        )
        children = stack.enter_context(Children(stack.enter_context(guarded(Path(directory)))))
        url = stack.enter_context(Embedded(Path(directory), binaries)).start()
        stack.callback(children.end)  # before the database ends
        echo(f"export CRONLEDGER_DATABASE_URL='{url}'", err=True)
        children.environ |= _variables(url)
        jobs = _Jobs(source, children, url, at, count)
        stack.callback(jobs.close)
        replica = ("run", source, "--no-migrate")
        if reload:
            file = Path(source if source.endswith(".toml") else HERE)
            return run_and_reload(children, replica, jobs.check, file, _report)
        if not children.stopped.is_set() and jobs.check():
            children.replace_replica(*replica)
            return children.wait()
        return Exit.FINE if children.stopped.is_set() else Exit.USAGE


def _report(text: str) -> None:
    echo(f"cronledger dev: {text}", err=True)


def _variables(url: str) -> Mapping[str, str]:
    """Return the variables of the children. They override what names another database."""
    return {
        "CRONLEDGER_DATABASE_URL": url,
        "CRONLEDGER_LISTEN_URL": url,
        "CRONLEDGER_PGBOUNCER": "false",
        "CRONLEDGER_SCHEMA": "cronledger",
        "CRONLEDGER_DRAIN_TIMEOUT": os.environ.get("CRONLEDGER_DRAIN_TIMEOUT") or DRAIN_TIMEOUT,
        # A job that fails while it is written alerts nobody.
        "CRONLEDGER_ALERT_SLOTS": os.environ.get("CRONLEDGER_ALERT_SLOTS") or "0",
    }


class _Jobs:
    """The jobs of `source`, and the ledger for them, which is made when they are valid at first."""

    def __init__(
        self, source: str, children: "Children", url: str, at: str | None, count: int
    ) -> None:
        self._source = source
        self._children = children
        self._url = url
        self._at = at
        self._count = count
        self._ready = False
        self._clock: Travel | None = None

    def check(self) -> bool:
        """Print the errors of the jobs, or their next firings, and return whether they are valid.

        It runs in a child, because a module can be imported anew only in another process.
        """
        report = self._checked(None if self._clock is None else iso(self._clock.now()))
        if report is not None and report["valid"] and self._at is not None and not self._ready:
            timezones = [(job["schedule"], job["timezone"]) for job in report["jobs"]]
            self._at = iso(read_start(self._at, "--at", timezones))
            report = self._checked(self._at)
        if report is None:
            return False
        print_report(report, "text")
        sys.stdout.flush()  # before the lines of the replica
        if report["valid"]:
            self._prepare()
        return bool(report["valid"])

    def _checked(self, start: str | None) -> Mapping[str, Any] | None:
        """Return the report of `check`; None if the check was stopped, or printed why it failed."""
        since = () if start is None else ("--from", start)
        printed = self._children.call(
            "check", "--format", "json", "--count", str(self._count), *since, self._source
        )
        try:
            found: Mapping[str, Any] = json.loads(printed)
        except ValueError:
            return None
        return found

    def _prepare(self) -> None:
        """Migrate the database, and set its clock."""
        from datetime import datetime

        from cronledger.ledger.migrate import migrate
        from cronledger.ledger.time_travel import Travel

        if self._ready:
            return
        migrate(self._url)
        if self._at is not None:
            self._clock = Travel(self._url)
            self._clock.travel(to=datetime.fromisoformat(self._at))
        self._ready = True

    def close(self) -> None:
        if self._clock is not None:
            self._clock.close()
