"""The start of every command that needs the ledger: settings, a connection, the reports."""

import getpass
import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import psycopg
from psycopg.types.json import set_json_loads

from cronledger.cli.denied import OPERATOR, denied
from cronledger.cli.ledgers import chosen
from cronledger.cli.show import echo, unknown_job
from cronledger.ledger import calls
from cronledger.ledger.access import Access
from cronledger.ledger.reports import Reports
from cronledger.ledger.senders import CommandTransactions, Sender
from cronledger.ledger.values import Execution
from cronledger.rules import storable
from cronledger.rules.model import ScopeKey
from cronledger.rules.problems import ConfigurationError, Problem
from cronledger.settings import EMBEDDED, TABLE, Settings
from cronledger.sources.toml import read_document
from cronledger.tracing.interface import tracing_of

if TYPE_CHECKING:
    from cronledger.embedded.server import Embedded

T = TypeVar("T")

HERE = "cronledger.toml"


@dataclass(frozen=True, slots=True)
class Session:
    """The connection of one command to the ledger, and how to make another one."""

    settings: Settings
    access: Access
    connection: psycopg.Connection
    reports: Reports

    def call(self, function: str, **arguments: object) -> Any:
        """Call an operator function, and return its result. Raises psycopg.Error."""
        (value,) = self.call_row(function, **arguments).values()
        return value

    def call_row(self, function: str, **arguments: object) -> dict[str, Any]:
        """Call an operator function, and return its only row. Raises psycopg.Error."""
        try:
            return self.send(calls.function(function, **arguments))
        except psycopg.errors.NoDataFound:
            if isinstance(job := arguments.get("job"), str):
                self.require_job(job)
            raise

    def send(self, call: calls.Call[T]) -> T:
        """Return the value of a call. Raises psycopg.Error.

        This user is its `requested_by`. A refusal is recorded in the audit trail.
        """
        tracing = tracing_of(self.settings) if call.enqueues else None
        schema, lock_timeout = self.settings.schema_name, self.settings.lock_timeout
        transactions = CommandTransactions(self.connection, lock_timeout)
        sender = Sender(transactions, schema, tracing)
        sender.actor, sender.surface = requester(), None
        with nullcontext() if tracing is None else tracing.continuing(os.environ):
            return sender.send(call)

    def wait(
        self, execution_id: int, seconds: float | None, seen: Callable[[Execution], bool]
    ) -> Execution:
        """Poll as `Client(url).wait` does, until `seen` returns True for what was read.

        A second connection receives the notification of the end. Raises TimeoutError.
        """
        from cronledger.client import Client
        from cronledger.client.waiting import poll
        from cronledger.ledger.blocking import completed
        from cronledger.ledger.ends import EndListener

        client = Client(connection=self.connection, settings=self.settings)
        if (listens := self.access.for_listening(self.settings)) is not None:
            client.sender.listener = EndListener(listens, self.settings.schema_name)
        return completed(poll(client.sender, execution_id, seconds, seen))

    def require_job(self, name: str) -> None:
        """Raise UsageError unless the job is in the history, in which a deleted job still is."""
        if not self.reports.revisions(name, 1):
            raise unknown_job(name, self.reports)

    def scope(self, job: str, kind: str | None, scope: str | None) -> ScopeKey:
        """Return this scope of the job; None stands for the kind and the only scope of the job.

        The database refuses an unknown scope. Raises UsageError for an unknown job.
        """
        row = self.reports.job(job)
        if row is None:
            raise unknown_job(job, self.reports)
        kind = kind or row["scope_kind"]
        if scope is not None:
            return ScopeKey(job, kind, scope)
        known = [found for found in self.reports.scopes(job, 20) if found["scope_kind"] == kind]
        if not known:
            raise click.UsageError(
                f"job {job!r} has no scope of the kind {kind!r} yet; use --scope ID"
            )
        if len(known) > 1:
            some = ", ".join(found["scope_id"] for found in known[:5])
            raise click.UsageError(
                f"job {job!r} has several scopes of the kind {kind!r} ({some}); use --scope ID"
            )
        return ScopeKey(job, kind, known[0]["scope_id"])


def _warn_once() -> Callable[[psycopg.errors.Diagnostic], None]:
    """Return a notice handler that prints each different warning once, on standard error."""
    printed: set[str | None] = set()

    def warn(notice: psycopg.errors.Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING" and notice.message_primary not in printed:
            printed.add(notice.message_primary)
            echo(f"Warning: {notice.message_primary}", err=True)

    return warn


def _readable(text: str | bytes) -> Any:
    """Return the value of JSON from the ledger, or its text if Python cannot represent it.

    Only rows from before the limits of `storable` hold such values.
    """
    plain = text.decode() if isinstance(text, bytes) else text
    try:
        value = json.loads(plain)
    except (ValueError, RecursionError):
        return plain
    return plain if storable.beyond_readers(value) else value


@contextmanager
def session() -> Iterator[Session]:
    """Open a session. An embedded server is started, or shared, for the time of the session.

    Raises ConfigurationError, EmbeddedError, psycopg.OperationalError.
    """
    settings = settings_here()
    with ExitStack() as stack:
        access = Access.from_settings(settings, stack.enter_context(database(settings)))
        connection = stack.enter_context(access.connect("cronledger cli"))
        connection.add_notice_handler(_warn_once())
        set_json_loads(_readable, connection)
        reports = Reports.over(connection, settings.schema_name)
        yield Session(settings, access, connection, reports)
    if reports.withheld:
        echo(f"Note: payloads and targets are shown only to members of {OPERATOR}", err=True)


@contextmanager
def reports_of_running(context: click.Context) -> Iterator[Reports]:
    """Open the reports of a database that is running. An embedded server is not started.

    `context`: that of the command line which the shell completes. Raises what `session` raises, and
    EmbeddedError if the embedded server is not running.
    """
    settings = settings_here(context=context)
    url = settings.require_database()
    if url == EMBEDDED:
        url = _embedded(settings).running()
    with Access.from_settings(settings, url).connect("cronledger completion") as connection:
        yield Reports.over(connection, settings.schema_name)


@contextmanager
def database(settings: Settings) -> Iterator[str]:
    """Yield the DSN of the ledger's database.

    Raises ConfigurationError, EmbeddedError, and DeniedError if the database denies the command.
    """
    url = settings.require_database()
    with ExitStack() as stack:
        if url == EMBEDDED:
            url = stack.enter_context(_embedded(settings)).start()
        with denials(settings, url):
            yield url


def _embedded(settings: Settings) -> "Embedded":
    from cronledger.embedded.server import Embedded

    return Embedded(settings.embedded_dir, settings.embedded_binaries)


@contextmanager
def denials(settings: Settings, url: str) -> Iterator[None]:
    """Raise DeniedError, which names the role and its missing membership, for a denied command."""
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        raise denied(error, Access.from_settings(settings, url)) from error


def settings_here(
    kind: type[Settings] = Settings, context: click.Context | None = None
) -> Settings:
    """Return the settings of a command without a file argument, of the ledger that it names.

    They include the `[cronledger]` table of ./cronledger.toml, if that file exists. `context`: by
    default that of the command. Raises ConfigurationError, and UsageError for an unknown ledger.
    """
    path = Path(HERE)
    found = kind.load(_table(path), where=HERE) if path.exists() else kind.load()
    return chosen(found, context)


def _table(path: Path) -> Mapping[str, Any]:
    table = read_document(path).get(TABLE, {})
    if not isinstance(table, dict):
        message, remedy = f"`{TABLE}` is not a table", f"write it as [{TABLE}]"
        raise ConfigurationError([Problem(where=HERE, message=message, remedy=remedy)])
    return table


def requester() -> str:
    """Return `user@host`, which the ledger records as the requester."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in containers
        user = str(os.geteuid())
    # The names may contain bytes that are not UTF-8, which the ledger cannot store.
    return f"{user}@{socket.gethostname()}".encode("utf-8", "replace").decode()
