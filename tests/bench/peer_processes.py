"""The peers: other tools on PostgreSQL, each in a process of its own environment, on our server."""

import json
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench.product import ROOT
from tests.bench.sample import Sample
from tests.bench.server import Server
from tests.processes import clean_environ

BATCH = 1000
"""Messages in one call that enqueues."""


class PeerProcess(NamedTuple):
    """MODULE:CLASS in tests/bench/peers, and the most messages that it works off in a few seconds.

    A peer that only fires schedules works off none."""

    name: str
    program: str
    most: int = 0


PGQUEUER = "PGQueuer (asyncpg)"
PEERS = (
    PeerProcess(PGQUEUER, "pgqueuer_peer:AsyncpgPeer", 100_000),
    PeerProcess("PGQueuer (psycopg)", "pgqueuer_peer:PsycopgPeer", 20_000),
    PeerProcess("Procrastinate", "procrastinate_peer:ProcrastinatePeer", 2_000),
    PeerProcess("APScheduler 4", "apscheduler_peer:ApschedulerPeer", 1_000),
)
PG_CRON = PeerProcess("pg_cron", "pg_cron_peer:PgCronPeer")
DISTRIBUTIONS = ("pgqueuer", "procrastinate", "apscheduler", "asyncpg", "psycopg", "uvloop")


def work(server: Server, python: Path, peer: PeerProcess, concurrency: int, rows: int) -> Sample:
    """Measure how its worker executes so many messages, or as many as it can in a few seconds."""
    with server.database() as dsn:
        return Sample(**run(python, peer, dsn, "work", concurrency, min(rows, peer.most)))


def enqueue(server: Server, python: Path, peer: PeerProcess, rows: int) -> Sample:
    """Measure how it enqueues so many messages in batches of 1000, or one by one if it has none."""
    with server.database() as dsn:
        return Sample(**run(python, peer, dsn, "enqueue", BATCH, min(rows, peer.most)))


def run(python: Path, peer: PeerProcess, dsn: str, task: str, *numbers: int) -> dict[str, Any]:
    """Return what `tests.bench.peers` prints about a task in this database."""
    module = (str(python), "-m", "tests.bench.peers")
    found: dict[str, Any] = json.loads(
        output([*module, peer.program, dsn, task, *map(str, numbers)])
    )
    return found


def versions(python: Path) -> dict[str, str]:
    code = (
        "import json, importlib.metadata as m;"
        f"print(json.dumps({{name: m.version(name) for name in {DISTRIBUTIONS!r}}}))"
    )
    found: dict[str, str] = json.loads(output([str(python), "-c", code]))
    return found


def output(command: list[str]) -> str:
    """Return what a command prints. Raises RuntimeError with its errors if it fails."""
    done = subprocess.run(
        command, cwd=ROOT, env=clean_environ(), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout
