"""CPU time of replicas and of their server, which other work on the machine hardly changes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import psutil


@dataclass(frozen=True, slots=True)
class Cpu:
    """Seconds of CPU time of the client processes, and of the processes of the server."""

    client: float
    server: float

    @classmethod
    def spent(cls, clients: Sequence[int], backend: int) -> Self:
        """Return the time spent so far by the processes `clients` and by the server of `backend`.

        `clients`, `backend`: pids. The server is the parent of the backend and all its children.
        """
        postmaster = psutil.Process(backend).parent()
        assert postmaster is not None, "a backend is a child of its server"
        server = [postmaster, *postmaster.children(recursive=True)]
        return cls(
            sum(_seconds(psutil.Process(pid)) for pid in clients), sum(map(_seconds, server))
        )

    def since(self, before: "Cpu") -> "Cpu":
        """Return the time spent after `before`."""
        return Cpu(self.client - before.client, self.server - before.server)


def _seconds(process: psutil.Process) -> float:
    """Return the time of a process and of its children that have ended."""
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:  # its parent has its time now
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)
