"""`cronledger observe`: run a command that another scheduler starts, and report its run."""

import os
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import click

from cronledger.observing import process
from cronledger.observing.delivery import Target, deliver_all, deliver_own, runs_here
from cronledger.observing.sides import Side
from cronledger.observing.spool import Run, Spool, boot_id, default_directory, wall_clock

ASK_SECONDS = 3.0
"""How long the wrapper of a job that replicas may adopt waits for the ledger before it decides."""
LAST_SECONDS = 5.0
"""How long the wrapper waits for the delivery after the end of the command."""
_WARNED: set[str] = set()
"""The warnings of this process."""


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--deliver", is_flag=True, help="Deliver the reports in the spool, and run no command."
)
@click.option(
    "--refused",
    is_flag=True,
    help="With --deliver: also deliver reports that the ledger has refused.",
)
@click.option(
    "--scope", metavar="KIND/ID", default="global/global", help="Scope of the job.",
    show_default=True,
)  # fmt: skip
@click.argument("job", required=False)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def observe(
    context: click.Context,
    *,
    deliver: bool,
    refused: bool,
    scope: str,
    job: str | None,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND for the observed job JOB, and report when it starts and how it ends.

    Write it before the command of a crontab line, a timer or a pod:

      cronledger observe nightly-backup -- /usr/local/bin/backup --full

    The command has the input, the output, the signals and the environment of the caller, and its
    exit status is that of this command. It starts at once, whether or not the database can be
    reached. Only if replicas may adopt the job, the wrapper first asks the ledger which side runs
    it, and waits at most 3 s for the reply. If replicas run the job, the wrapper does not start the
    command, and exits with 0. Reports that cannot be delivered stay in the spool
    (CRONLEDGER_SPOOL_DIR). The next `observe` of any job delivers them with their original times,
    and so does --deliver. After the end of the command, the delivery takes at most 5 s.

    It reads CRONLEDGER_DATABASE_URL, CRONLEDGER_SCHEMA, CRONLEDGER_SPOOL_DIR and CRONLEDGER_HOST
    from the environment. `cronledger --ledger NAME observe` reports to the ledger NAME of the
    file that CRONLEDGER_LEDGERS_FILE or --ledgers-file names. Each report in the spool is delivered
    to its own ledger.

    Exit status: that of the command; 127 or 126 if it cannot be started. With --deliver: 1 if
    something is left.
    """
    _WARNED.clear()
    spool = Spool(Path(os.environ.get("CRONLEDGER_SPOOL_DIR") or default_directory()))
    options = context.find_root().params
    ledger = options.get("ledger") or ""
    ledgers = _Ledgers(options.get("ledgers_file") or os.environ.get("CRONLEDGER_LEDGERS_FILE"))
    if deliver:
        if job is not None:
            raise click.UsageError("--deliver takes no job; omit it")
        if ledger:
            raise click.UsageError("--deliver sends the reports of all ledgers; omit --ledger")
        sys.exit(_deliver(spool, ledgers, refused=refused))
    if refused:
        raise click.UsageError("--refused is for --deliver; add it, or omit both")
    if command and command[0] != "--" and command[0].startswith("-"):
        raise click.UsageError(f"{command[0]} stands after the job; write options before it")
    command = command[1:] if command[:1] == ("--",) else command
    kind, slash, ident = scope.partition("/")
    if job is None or not command:
        raise click.UsageError("name a job and a command: cronledger observe JOB -- COMMAND …")
    if not (kind and slash and ident):
        raise click.UsageError(f"--scope {scope!r} is not KIND/ID, such as tenant/acme")
    begun, started = time.monotonic(), wall_clock()
    host = os.environ.get("CRONLEDGER_HOST") or socket.gethostname()
    key = uuid.uuid4().hex
    run = Run(job, kind, ident, key, host, started, os.getpid(), boot_id(), ledger=ledger)
    side = Side.read(spool, job, ledger)
    if side is not None and not _runs_here(spool, run, ledgers, side):
        if sys.stderr.isatty():
            _warn(f"replicas run the job {job} now, so the command was not started")
        _attempt(lambda: deliver_all(ledgers.target, spool), LAST_SECONDS)  # of earlier runs
        return
    running: process.Command | None = None
    try:
        running = process.Command(command)
    except OSError as error:
        _warn(f"{command[0]}: {error.strerror}")
        status = process.status_of(error)
    reporter = _Reporter(spool, run, ledgers)
    reporter.begin()
    if running is not None:
        status = running.wait()
    reporter.end(started + time.monotonic() - begun, status)
    if running is not None:
        running.release()
    sys.exit(status)  # a delivery that is still in progress ends here


def _runs_here(spool: Spool, run: Run, ledgers: "_Ledgers", side: Side) -> bool:
    """Return whether this scheduler runs a job that replicas may have adopted.

    If the ledger does not reply in time, its last reply, `side`, decides.
    """
    replies: list[bool] = []

    def ask() -> None:
        target = ledgers.target(run.ledger)
        if target is not None:
            runs_here(target, run, spool, replies)

    _attempt(ask, ASK_SECONDS)
    return replies[0] if replies else side.runs(run.started)


def _attempt(work: Callable[[], object], seconds: float) -> None:
    """Do what may fail, because the command is what counts, and wait at most this long for it."""

    def attempt() -> None:
        # The process waits for signals in its main thread.
        signal.pthread_sigmask(signal.SIG_BLOCK, process.WAITED)
        with suppress(Exception):
            work()

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(seconds)


class _Reporter:
    """Writes the reports of one run to the spool, and delivers them in the background."""

    def __init__(self, spool: Spool, run: Run, ledgers: "_Ledgers") -> None:
        self._spool: Spool | None = spool
        self._run = run
        self._ledgers = ledgers
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Write the start, and begin to deliver it."""
        self._write(self._run)
        self._start()

    def end(self, ended: float, status: int) -> None:
        """Write the end, and wait a moment for its delivery."""
        self._run = replace(self._run, ended=ended, exit_status=status)
        self._write(self._run)
        self._ended.set()
        if self._thread is not None:
            self._thread.join(LAST_SECONDS)

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._report, daemon=True)
        self._thread.start()

    def _write(self, run: Run) -> None:
        """Only the main thread writes, so that a start never replaces an end."""
        if self._spool is None:
            return
        try:
            self._spool.write(run)
        except OSError as error:
            _warn(f"the spool {self._spool.directory} cannot be written: {error}")
            self._spool = None

    def _report(self) -> None:
        """Deliver the start, then what else the spool has, and the end. Runs in a thread."""
        while True:
            run, spool = self._run, self._spool
            problem = self._deliver(run, spool)
            if run.ended is not None:
                if problem is not None:
                    kept = "lost" if spool is None else "kept in the spool"
                    _warn(f"reports cannot be delivered and are {kept}: {_short(problem)}")
                return
            self._ended.wait()

    def _deliver(self, run: Run, spool: Spool | None) -> Exception | None:
        """Return why something cannot be delivered: the command is what counts."""
        target = self._ledgers.target(run.ledger)
        problem = None
        try:
            if target is not None:
                deliver_own(target, run, spool)
        except Exception as error:  # noqa: BLE001
            problem = error

        def reachable(name: str) -> Target | None:
            return None if problem and name == run.ledger else self._ledgers.target(name)

        try:
            if spool is not None:
                deliver_all(reachable, spool)
        except Exception as error:  # noqa: BLE001
            problem = problem or error
        return problem


def _deliver(spool: Spool, ledgers: "_Ledgers", *, refused: bool) -> int:
    if not ledgers.are_known:
        return 2
    try:
        if refused:
            spool.restore()
        return min(1, deliver_all(ledgers.target, spool))
    except OSError as error:
        _warn(f"the spool {spool.directory} cannot be read: {error}")
        return 1
    except Exception as error:
        import psycopg

        if not isinstance(error, psycopg.Error):
            raise
        _warn(f"the database cannot be reached: {_short(error)}")
        return 3


class _Ledgers:
    """The ledgers that this process knows. `file`: the ledgers file, which has the named ones."""

    def __init__(self, file: str | None) -> None:
        self._file = file
        self._targets: dict[str, Target | None] = {}

    @property
    def are_known(self) -> bool:
        """Return whether any ledger is configured. Warn if none is."""
        return self._file is not None or self.target("") is not None

    def target(self, name: str) -> Target | None:
        """Return the ledger of a name, or None with a warning.

        Empty name: the ledger of CRONLEDGER_DATABASE_URL.
        """
        if name not in self._targets:
            self._targets[name] = self._named(name) if name else _of_environment()
        return self._targets[name]

    def _named(self, name: str) -> Target | None:
        if self._file is None:
            _warn(
                f"no ledgers file is given, so reports of the ledger {name} stay in the spool; set "
                "CRONLEDGER_LEDGERS_FILE"
            )
            return None
        from cronledger.rules.problems import ConfigurationError
        from cronledger.sources.ledgers import database_of

        try:
            return Target(*database_of(Path(self._file), name), _warn)
        except ConfigurationError as error:
            _warn(f"reports of the ledger {name} stay in the spool: {_short(error)}")
            return None


def _of_environment() -> Target | None:
    url = os.environ.get("CRONLEDGER_DATABASE_URL")
    if not url or url == "embedded":
        value = "`embedded`, which `observe` does not start" if url else "not set"
        _warn(
            f"CRONLEDGER_DATABASE_URL is {value}, so reports stay in the spool; set it to a "
            "connection string"
        )
        return None
    return Target(url, os.environ.get("CRONLEDGER_SCHEMA") or "cronledger", _warn)


def _short(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _warn(text: str) -> None:
    """Print a warning once, because the start and the end of a run meet the same obstacles."""
    if text not in _WARNED:
        _WARNED.add(text)
        click.echo(f"cronledger observe: {text}", err=True)
