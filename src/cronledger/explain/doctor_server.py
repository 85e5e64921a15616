"""Checks of the connection and the server. They need no schema of the ledger."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from ipaddress import ip_address
from secrets import token_hex
from statistics import median
from time import monotonic
from typing import Any

import psycopg
from psycopg import sql

from cronledger.explain.findings import Check, DoctorContext, Finding, otherwise_ok
from cronledger.ledger.access import connect
from cronledger.ledger.database_errors import PRIMARY
from cronledger.ledger.server_settings import ServerSettings
from cronledger.rules.problems import ConfigurationError

SLOW_MS = 20.0
REPLICA_CONNECTIONS = 7  # pool, heartbeats, LISTEN
ROUND_TRIPS = 5
ARRIVES_SECONDS = 5.0  # a notification arrives within milliseconds or never


def connection(context: DoctorContext) -> Iterator[Finding]:
    """Report the version of the server and the time of a round trip."""
    took = []
    for _ in range(ROUND_TRIPS):
        sent = monotonic()
        context.connection.execute("SELECT 1")
        took.append((monotonic() - sent) * 1000)
    yield latency(median(took), context.row("examine_server")["version"])


def latency(ms: float, version: str) -> Finding:
    """Return a warning if round trips are slow. Each start waits for three of them."""
    found = f"PostgreSQL {version}, a round trip takes {ms:.1f} ms"
    if ms <= SLOW_MS:
        return Finding("connection", "ok", found)
    remedy = "run replicas closer to the database, because each start waits for three round trips"
    return Finding("connection", "warning", found, remedy)


@otherwise_ok("the server is a primary")
def standby(context: DoctorContext) -> Iterator[Finding]:
    """Check that the server is not a standby, on which no replica can work."""
    if context.row("examine_server")["standby"]:
        found = "the server is a standby: it can be read, but no replica can work on it"
        yield Finding("standby", "warning", found, PRIMARY)


def encryption(context: DoctorContext) -> Iterator[Finding]:
    """Check that a connection over a network is encrypted."""
    info = context.connection.info
    yield encrypted(bool(context.connection.pgconn.ssl_in_use), info.host, info.hostaddr)


def encrypted(tls: bool, host: str, address: str) -> Finding:
    if tls:
        return Finding("encryption", "ok", "TLS")
    if not host or host.startswith(("/", "@")) or host == "localhost" or _loopback(address or host):
        return Finding("encryption", "ok", "none, but the connection stays on this host")
    remedy = "add sslmode=verify-full to the DSN (and ssl = on to the server)"
    return Finding("encryption", "warning", f"the connection to {host} is not encrypted", remedy)


def _loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


def pooler(context: DoctorContext) -> Iterator[Finding]:
    """Check that the setting `pgbouncer` is right: a pooler reports a process id of its own."""
    pooled = _pooled(context.connection)
    if pooled and not context.settings.pgbouncer:
        remedy = (
            "in transaction mode set CRONLEDGER_PGBOUNCER=true, and CRONLEDGER_LISTEN_URL to a "
            "direct DSN"
        )
        found = "the connection leads to a pooler, but CRONLEDGER_PGBOUNCER is not set"
        yield Finding("pooler", "problem", found, remedy)
    elif context.settings.pgbouncer and not pooled:
        remedy = "unset CRONLEDGER_PGBOUNCER, which disables prepared statements and LISTEN"
        found = "CRONLEDGER_PGBOUNCER is set, but there is no pooler"
        yield Finding("pooler", "warning", found, remedy)
    else:
        yield Finding("pooler", "ok", "a pooler, as configured" if pooled else "none")


def _pooled(connection: psycopg.Connection) -> bool:
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    return row is None or row[0] != connection.info.backend_pid


def listening(context: DoctorContext) -> Iterator[Finding]:
    """Check that notifications of the ledger's database arrive where replicas listen."""
    settings = context.settings
    if context.row("examine_server")["standby"]:
        yield Finding("listening", "unchecked", "a standby does not support LISTEN", PRIMARY)
    elif settings.listen_url is not None:
        yield _listening(context, settings.listen_url.get_secret_value(), "CRONLEDGER_LISTEN_URL")
    elif settings.pgbouncer:
        remedy = "set CRONLEDGER_LISTEN_URL to a direct DSN, so that triggers start at once"
        every = settings.poll_seconds(listening=False)
        found = f"without LISTEN behind a pooler, replicas poll every {every:g} s"
        yield Finding("listening", "warning", found, remedy)
    else:
        yield _listening(context, context.url, "CRONLEDGER_DATABASE_URL")


def _listening(context: DoctorContext, url: str, name: str) -> Finding:
    remedy = f"point {name} at the server and the database of the ledger itself, not at a pooler"
    channel = f"cronledger_doctor_{token_hex(8)}"
    with ExitStack() as stack:
        try:
            listener = stack.enter_context(connect(url, "cronledger doctor"))
            if _pooled(listener):
                found = f"{name} leads to a pooler, which does not support LISTEN"
                return Finding("listening", "problem", found, remedy)
            listener.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        except psycopg.Error as error:
            found = f"{name} cannot LISTEN: {str(error).strip().splitlines()[0]}"
            return Finding("listening", "problem", found, remedy)
        # Only a notification proves that both are in one database, because names and ports recur.
        context.connection.execute("SELECT pg_notify(%s, '')", [channel])
        if any(True for _ in listener.notifies(timeout=ARRIVES_SECONDS, stop_after=1)):
            return Finding("listening", "ok", "notifications arrive")
        found = (
            f"{name} leads to a different database than the ledger's, because a notification did "
            f"not arrive in database {listener.info.dbname} within {ARRIVES_SECONDS:g} s"
        )
    return Finding("listening", "problem", found, remedy)


def connections(context: DoctorContext) -> Iterator[Finding]:
    """Check that the server has connections for more replicas."""
    server = context.row("examine_server")
    left = server["connections_left"]
    found = f"{left} connections are free, and {server['connections']} are in use"
    remedy = (
        "raise max_connections (or CONNECTION LIMIT of the database or role), or use PgBouncer; a "
        f"replica needs {REPLICA_CONNECTIONS}"
    )
    if left < REPLICA_CONNECTIONS:
        yield Finding("connections", "problem", found, remedy)
    elif left < 2 * REPLICA_CONNECTIONS:
        yield Finding("connections", "warning", found, remedy)
    else:
        yield Finding("connections", "ok", found)


def autovacuum(context: DoctorContext) -> Iterator[Finding]:
    """Check that dead rows are removed."""
    yield vacuuming(context.row("examine_server"))


def vacuuming(server: dict[str, Any]) -> Finding:
    off = [name for name in ("autovacuum", "track_counts") if not server[name]]
    if not off:
        return Finding("autovacuum", "ok", "on")
    remedy = f"set {' and '.join(off)} = on, because claims become slower without it"
    return Finding("autovacuum", "problem", f"{' and '.join(off)} = off", remedy)


def durability(context: DoctorContext) -> Iterator[Finding]:
    """Check that a crash of the server cannot lose commits, which its owner may have allowed."""
    yield durable(context.row("read_server_settings")["not_durable"])


def durable(off: Sequence[str]) -> Finding:
    if not off:
        return Finding("durability", "ok", "fsync and full_page_writes are on")
    found = f"{' and '.join(off)} = off, so a crash of the host may lose or corrupt the ledger"
    return Finding("durability", "warning", found, f"set {' and '.join(off)} = on")


@otherwise_ok("PostgreSQL is new enough, the encoding is UTF8, and triggers fire")
def settings(context: DoctorContext) -> Iterator[Finding]:
    """Check the product and the settings without which no replica starts."""
    try:
        ServerSettings(**context.row("read_server_settings")).require()
    except ConfigurationError as error:
        for problem in error.problems:
            found = f"{problem.field} = {problem.value}: {problem.message}"
            yield Finding("settings", "problem", found, problem.remedy)


CHECKS: tuple[Check, ...] = (
    connection, standby, encryption, pooler, listening, connections, autovacuum, durability,
    settings,
)  # fmt: skip
