"""Checks of `doctor` on the connection and the server; none needs the ledger's schema."""

from collections.abc import Iterator
from ipaddress import ip_address
from statistics import median
from time import monotonic
from typing import Any

import psycopg

from cronledger.audit.findings import Check, Finding, Patient
from cronledger.ledger.database import connect

SLOW_MS = 20.0
REPLICA_CONNECTIONS = 7  # its pool, heartbeats, LISTEN
ROUND_TRIPS = 5


def connection(patient: Patient) -> Iterator[Finding]:
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


def encryption(patient: Patient) -> Iterator[Finding]:
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


def pooler(patient: Patient) -> Iterator[Finding]:
    """A pooler answers with a process id of its own; what it is told has to fit what it is."""
    pooled = _pooled(patient.connection)
    listen = patient.settings.listen_url
    if not patient.settings.pgbouncer:
        if not pooled:
            yield Finding("pooler", "ok", "none")
            return
        remedy = (
            "in transaction mode set CRONLEDGER_PGBOUNCER=true, and CRONLEDGER_LISTEN_URL to a "
            "direct DSN"
        )
        yield Finding("pooler", "problem", "a pooler, which the settings do not know", remedy)
    elif not pooled:
        remedy = "unset CRONLEDGER_PGBOUNCER: it costs prepared statements, and LISTEN"
        yield Finding("pooler", "warning", "none, though CRONLEDGER_PGBOUNCER is set", remedy)
    elif listen is None:
        remedy = "set CRONLEDGER_LISTEN_URL to a direct DSN, and triggers start at once"
        found = f"a pooler and no LISTEN: polling every {patient.settings.poll_interval}"
        yield Finding("pooler", "warning", found, remedy)
    else:
        yield _listening(listen.get_secret_value())


def _pooled(connection: psycopg.Connection) -> bool:
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    return row is None or row[0] != connection.info.backend_pid


def _listening(url: str) -> Finding:
    remedy = "point CRONLEDGER_LISTEN_URL at the server itself"
    try:
        with connect(url, "cronledger doctor") as connection:
            if not _pooled(connection):
                return Finding("pooler", "ok", "a pooler, and LISTEN on a DSN of its own")
    except psycopg.OperationalError as error:
        said = str(error).partition("\n")[0]
        return Finding("pooler", "problem", f"the DSN for LISTEN does not answer: {said}", remedy)
    return Finding("pooler", "problem", "the DSN for LISTEN leads to a pooler as well", remedy)


def connections(patient: Patient) -> Iterator[Finding]:
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


def autovacuum(patient: Patient) -> Iterator[Finding]:
    """Whether dead rows are removed at all."""
    yield vacuuming(patient.row("examine_server"))


def vacuuming(server: dict[str, Any]) -> Finding:
    off = [name for name in ("autovacuum", "track_counts") if not server[name]]
    if not off:
        return Finding("autovacuum", "ok", "on")
    remedy = f"set {' and '.join(off)} = on: without it every claim gets slower by the hour"
    return Finding("autovacuum", "problem", f"{' and '.join(off)} = off", remedy)


CHECKS: tuple[Check, ...] = (connection, encryption, pooler, connections, autovacuum)
