"""The peers: other tools on PostgreSQL, each in a process of its own environment, on our server."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.bench.product import ROOT
from tests.bench.sample import Sample
from tests.bench.server import Server
from tests.processes import clean_environ

BATCH = 1000
"""Messages in one call that enqueues."""


@dataclass(frozen=True, slots=True)
class PeerProcess:
    """A module of tests/bench/peers, and the most messages that it works off in a few seconds."""

    name: str
    module: str
    most: int


PGQUEUER = "PGQueuer (asyncpg)"
PEERS = (
    PeerProcess(PGQUEUER, "pgqueuer_asyncpg", 100_000),
    PeerProcess("PGQueuer (psycopg)", "pgqueuer_psycopg", 20_000),
    PeerProcess("Procrastinate", "procrastinate_peer", 2_000),
    PeerProcess("APScheduler 4", "apscheduler_peer", 1_000),
)
DISTRIBUTIONS = ("pgqueuer", "procrastinate", "apscheduler", "asyncpg", "psycopg", "uvloop")


def work(server: Server, python: Path, peer: PeerProcess, concurrency: int, rows: int) -> Sample:
    """Measure how its worker executes so many messages, or as many as it can in a few seconds."""
    return _measure(server, python, peer, ("work", concurrency), rows)


def enqueue(server: Server, python: Path, peer: PeerProcess, rows: int) -> Sample:
    """Measure how it enqueues so many messages in batches of 1000, or one by one if it has none."""
    return _measure(server, python, peer, ("enqueue", BATCH), rows)


def _measure(
    server: Server, python: Path, peer: PeerProcess, task: tuple[str, int], rows: int
) -> Sample:
    with server.database() as dsn:
        command = [
            str(python), "-m", "tests.bench.peers", peer.module, dsn, *map(str, task),
            str(min(rows, peer.most)),
        ]  # fmt: skip
        line = output(command)
    return Sample(**json.loads(line))


def versions(python: Path) -> dict[str, str]:
    """Return the versions of the peers and of their drivers."""
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
