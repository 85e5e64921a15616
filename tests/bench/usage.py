"""CPU time and WAL, which other work on the machine hardly changes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import psutil
import psycopg
from psycopg.rows import scalar_row


@dataclass(frozen=True, slots=True)
class Usage:
    """Seconds of CPU time of the client processes and of the processes of the server, and the bytes
    of WAL that the server wrote."""

    client: float
    server: float
    wal: float

    @classmethod
    def until_now(cls, clients: Sequence[int], c: psycopg.Connection[Any]) -> Self:
        """Return the usage so far of the processes `clients` and of the server of `c`.

        `clients`: pids. The server is the parent of the connection's backend and all its children.
        """
        postmaster = psutil.Process(c.info.backend_pid).parent()
        assert postmaster is not None, "a backend is a child of its server"
        server = [postmaster, *postmaster.children(recursive=True)]
        with c.cursor(row_factory=scalar_row) as cursor:
            cursor.execute("SELECT pg_current_wal_insert_lsn() - '0/0'")
            wal = cursor.fetchone()
        return cls(processor_seconds(clients), sum(map(_seconds, server)), float(wal or 0))

    def since(self, before: "Usage") -> "Usage":
        return Usage(
            self.client - before.client, self.server - before.server, self.wal - before.wal
        )


def processor_seconds(pids: Sequence[int]) -> float:
    """Return the CPU time of these processes so far; a process that has ended counts nothing."""
    return sum(_seconds(psutil.Process(pid)) for pid in pids if psutil.pid_exists(pid))


def _seconds(process: psutil.Process) -> float:
    """Return the time of a process and of its children that have ended."""
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:  # its parent has its time now
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)
