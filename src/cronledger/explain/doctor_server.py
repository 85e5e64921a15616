"""Checks of `doctor` on the connection and the server; none needs the ledger's schema."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from ipaddress import ip_address
from secrets import token_hex
from statistics import median
from time import monotonic
from typing import Any

import psycopg
from psycopg import sql

from cronledger.explain.findings import Check, DoctorContext, Finding
from cronledger.ledger.database import connect
from cronledger.ledger.server_settings import ServerSettings
from cronledger.rules.problems import ConfigurationError

SLOW_MS = 20.0
REPLICA_CONNECTIONS = 7  # its pool, heartbeats, LISTEN
ROUND_TRIPS = 5
ARRIVES_SECONDS = 5.0  # a notification arrives within milliseconds, or never


def connection(patient: DoctorContext) -> Iterator[Finding]:
    """Which server answers, and how fast."""
    took = []
    for _ in range(ROUND_TRIPS):
        sent = monotonic()
        patient.connection.execute("SELECT 1")
        took.append((monotonic() - sent) * 1000)
    yield latency(median(took), patient.row("examine_server")["version"])


def latency(ms: float, version: str) -> Finding:
    """A claim is three round trips, and a start waits for them."""
    found = f"PostgreSQL {version}, a round trip takes {ms:.1f} ms"
    if ms <= SLOW_MS:
        return Finding("connection", "ok", found)
    remedy = "run replicas nearer to the database: every start waits for three round trips"
    return Finding("connection", "warning", found, remedy)


def encryption(patient: DoctorContext) -> Iterator[Finding]:
    """Whether what goes over a network is encrypted."""
    info = patient.connection.info
    yield encrypted(bool(patient.connection.pgconn.ssl_in_use), info.host, info.hostaddr)


def encrypted(tls: bool, host: str, address: str) -> Finding:
    if tls:
        return Finding("encryption", "ok", "TLS")
    if not host or host.startswith(("/", "@")) or host == "localhost" or _loopback(address or host):
        return Finding("encryption", "ok", "none, and the connection does not leave this host")
    remedy = "add sslmode=verify-full to the DSN (and ssl = on to the server)"
    return Finding("encryption", "warning", f"none on the way to {host}", remedy)


def _loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


def pooler(patient: DoctorContext) -> Iterator[Finding]:
    """A pooler answers with a process id of its own; what it is told has to fit what it is."""
    pooled = _pooled(patient.connection)
    if pooled and not patient.settings.pgbouncer:
        remedy = (
            "in transaction mode set CRONLEDGER_PGBOUNCER=true, and CRONLEDGER_LISTEN_URL to a "
            "direct DSN"
        )
        yield Finding("pooler", "problem", "a pooler, which the settings do not know", remedy)
    elif patient.settings.pgbouncer and not pooled:
        remedy = "unset CRONLEDGER_PGBOUNCER: it costs prepared statements, and LISTEN"
        yield Finding("pooler", "warning", "none, though CRONLEDGER_PGBOUNCER is set", remedy)
    else:
        yield Finding("pooler", "ok", "as the settings say" if pooled else "none")


def _pooled(connection: psycopg.Connection) -> bool:
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    return row is None or row[0] != connection.info.backend_pid


def listening(patient: DoctorContext) -> Iterator[Finding]:
    """Whether what is notified in the ledger's database arrives where replicas listen."""
    settings = patient.settings
    if settings.listen_url is not None:
        yield _listening(patient, settings.listen_url.get_secret_value(), "CRONLEDGER_LISTEN_URL")
    elif settings.pgbouncer:
        remedy = "set CRONLEDGER_LISTEN_URL to a direct DSN, and triggers start at once"
        found = f"a pooler and no LISTEN: polling every {settings.poll_interval}"
        yield Finding("listening", "warning", found, remedy)
    else:
        yield _listening(patient, patient.url, "CRONLEDGER_DATABASE_URL")


def _listening(patient: DoctorContext, url: str, name: str) -> Finding:
    remedy = f"point {name} at the server and the database of the ledger itself, not at a pooler"
    channel = f"cronledger_doctor_{token_hex(8)}"
    with ExitStack() as stack:
        try:
            listener = stack.enter_context(connect(url, "cronledger doctor"))
            if _pooled(listener):
                found = f"{name} leads to a pooler, which carries no LISTEN"
                return Finding("listening", "problem", found, remedy)
            listener.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        except psycopg.Error as error:
            found = f"{name} cannot LISTEN: {str(error).strip().splitlines()[0]}"
            return Finding("listening", "problem", found, remedy)
        # Nothing else tells for certain that both are in one database: names and ports recur.
        patient.connection.execute("SELECT pg_notify(%s, '')", [channel])
        if any(True for _ in listener.notifies(timeout=ARRIVES_SECONDS, stop_after=1)):
            return Finding("listening", "ok", "notifications arrive")
        found = (
            f"{name} leads to another database than the ledger's: a notification of the ledger did "
            f"not arrive in database {listener.info.dbname} within {ARRIVES_SECONDS:g} s"
        )
    return Finding("listening", "problem", found, remedy)


def connections(patient: DoctorContext) -> Iterator[Finding]:
    """Room for more replicas."""
    server = patient.row("examine_server")
    left = server["connections_left"]
    found = f"{left} connections are left, {server['connections']} are in use"
    remedy = (
        "raise max_connections (or CONNECTION LIMIT of the database or role), or put PgBouncer in "
        f"between: a replica takes {REPLICA_CONNECTIONS}"
    )
    if left < REPLICA_CONNECTIONS:
        yield Finding("connections", "problem", found, remedy)
    elif left < 2 * REPLICA_CONNECTIONS:
        yield Finding("connections", "warning", found, remedy)
    else:
        yield Finding("connections", "ok", found)


def autovacuum(patient: DoctorContext) -> Iterator[Finding]:
    """Whether dead rows are removed at all."""
    yield vacuuming(patient.row("examine_server"))


def vacuuming(server: dict[str, Any]) -> Finding:
    off = [name for name in ("autovacuum", "track_counts") if not server[name]]
    if not off:
        return Finding("autovacuum", "ok", "on")
    remedy = f"set {' and '.join(off)} = on: without it every claim gets slower by the hour"
    return Finding("autovacuum", "problem", f"{' and '.join(off)} = off", remedy)


def durability(patient: DoctorContext) -> Iterator[Finding]:
    """Whether a crash of the server may lose what was committed. That is its owner's decision."""
    yield durable(patient.row("read_server_settings")["not_durable"])


def durable(off: Sequence[str]) -> Finding:
    if not off:
        return Finding("durability", "ok", "fsync and full_page_writes are on")
    found = f"{' and '.join(off)} = off: a crash of the host may lose or corrupt the ledger"
    return Finding("durability", "warning", found, f"set {' and '.join(off)} = on")


def settings(patient: DoctorContext) -> Iterator[Finding]:
    """Settings that no replica would start with."""
    try:
        ServerSettings(**patient.row("read_server_settings")).require()
    except ConfigurationError as error:
        for problem in error.problems:
            found = f"{problem.field} = {problem.value}: {problem.message}"
            yield Finding("settings", "problem", found, problem.remedy)
    else:
        yield Finding("settings", "ok", "the encoding is UTF8, and triggers fire")


CHECKS: tuple[Check, ...] = (
    connection, encryption, pooler, listening, connections, autovacuum, durability, settings,
)  # fmt: skip
