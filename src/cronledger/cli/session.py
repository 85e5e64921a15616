"""What every command that needs the ledger begins with: settings, a connection, the listings."""

import getpass
import os
import socket
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from cronledger.cli.denied import OPERATOR, explained
from cronledger.cli.show import echo
from cronledger.ledger.database import Access
from cronledger.ledger.embedded import Embedded
from cronledger.ledger.reports import Reports
from cronledger.rules.errors import ConfigurationError, Problem
from cronledger.settings import EMBEDDED, TABLE, Settings

HERE = "cronledger.toml"


@dataclass(frozen=True, slots=True)
class Session:
    """One command at work on the ledger."""

    settings: Settings
    url: str = field(repr=False)
    connection: psycopg.Connection
    reports: Reports

    def call(self, function: str, **arguments: object) -> Any:
        """Answer what the SQL function of that name answers. Raises psycopg.Error."""
        (value,) = self.call_row(function, **arguments).values()
        return value

    def call_row(self, function: str, **arguments: object) -> dict[str, Any]:
        """Answer the only row of what that SQL function answers. Raises psycopg.Error."""
        given = sql.SQL(", ").join(
            sql.SQL("{} => {}").format(sql.Identifier(name), sql.Placeholder(name))
            for name in arguments
        )
        name = sql.Identifier(self.settings.schema_name, function)
        with self.connection.cursor(row_factory=dict_row) as cursor:
            row = cursor.execute(
                sql.SQL("SELECT * FROM {}({})").format(name, given), arguments
            ).fetchone()
        assert row is not None
        return row


def _say_once() -> Callable[[psycopg.errors.Diagnostic], None]:
    """A handler of notices: a warning goes to standard error, the same one only once."""
    said: set[str | None] = set()

    def say(notice: psycopg.errors.Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING" and notice.message_primary not in said:
            said.add(notice.message_primary)
            echo(f"Warning: {notice.message_primary}", err=True)

    return say


@contextmanager
def session(settings: Settings | None = None) -> Iterator[Session]:
    """A connected session; an embedded server is started, or shared, for as long as it lasts.

    Raises ConfigurationError, EmbeddedError, psycopg.OperationalError.
    """
    settings = settings or settings_here()
    with database(settings) as url, access(settings, url).connect("cronledger cli") as connection:
        connection.add_notice_handler(_say_once())
        reports = Reports(connection, settings.schema_name)
        yield Session(settings, url, connection, reports)
    if reports.withheld:
        echo(f"Note: payloads and targets are shown to members of {OPERATOR} only", err=True)


@contextmanager
def database(settings: Settings) -> Iterator[str]:
    """The DSN of the ledger's database. Raises ConfigurationError, EmbeddedError, and DeniedError
    for what the database denies meanwhile.
    """
    url = settings.require_database()
    with ExitStack() as stack:
        if url == EMBEDDED:
            embedded = Embedded(settings.embedded_dir, settings.embedded_binaries)
            url = stack.enter_context(embedded).start()
        with denials(settings, url):
            yield url


@contextmanager
def denials(settings: Settings, url: str) -> Iterator[None]:
    """What the database denies to the current command names the role and what it needs."""
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        raise explained(error, access(settings, url)) from error


def access(settings: Settings, url: str) -> Access:
    """How this process reaches the database at `url`."""
    return Access(
        url,
        prepare=not settings.pgbouncer,
        connect_timeout=settings.connect_timeout,
        lock_timeout=settings.lock_timeout,
        tcp_user_timeout=settings.tcp_user_timeout,
    )


def settings_here() -> Settings:
    """The settings of a command that was given no file: those of ./cronledger.toml, if it is there.

    Only its `[cronledger]` table is looked at. Raises ConfigurationError.
    """
    path = Path(HERE)
    return Settings.load(_table(path), where=HERE) if path.is_file() else Settings.load()


def _table(path: Path) -> Mapping[str, Any]:
    try:
        table = tomllib.loads(path.read_text("utf-8-sig")).get(TABLE, {})
    except (OSError, ValueError) as exc:
        raise _refused(f"cannot be read: {exc}", "put that right") from None
    if not isinstance(table, dict):
        raise _refused(f"`{TABLE}` is not a table", f"write [{TABLE}]")
    return table


def _refused(message: str, remedy: str) -> ConfigurationError:
    return ConfigurationError([Problem(HERE, None, None, None, message, remedy)])


def requester() -> str:
    """Who asks, for the ledger: `user@host`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as containers have
        user = str(os.geteuid())
    return f"{user}@{socket.gethostname()}"
