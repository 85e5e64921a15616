"""Which scheduler runs a job: what the ledger last replied, in a file of the spool.

The file exists while replicas may adopt the job. The instants are those of the clock of this host.
"""

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Self

from cronledger.observing.spool import Spool

SUFFIX = ".side"


@dataclass(frozen=True, slots=True)
class Side:
    """Replicas run what starts in [replicas_from, replicas_until). None: never; without end."""

    replicas_from: float | None
    replicas_until: float | None

    def runs(self, started: float) -> bool:
        """Return whether the other scheduler runs what started then."""
        first, until = self.replicas_from, self.replicas_until
        return first is None or started < first or (until is not None and started >= until)

    @classmethod
    def read(cls, spool: Spool, job: str, ledger: str) -> Self | None:
        """Return what is remembered about a job of a ledger; None: replicas do not run it."""
        with suppress(OSError, ValueError, TypeError):
            return cls(**json.loads(_path(spool, job, ledger).read_text("utf-8")))
        return None


def remember(spool: Spool, job: str, ledger: str, side: Side | None) -> None:
    """Write the file of a job, or remove it. Raises OSError."""
    path = _path(spool, job, ledger)
    if side is None:
        path.unlink(missing_ok=True)
    else:
        spool.replace(path, asdict(side))


def _path(spool: Spool, job: str, ledger: str) -> Path:
    name = sha256(f"{ledger}\0{job}".encode()).hexdigest()[:32]
    return spool.directory / f"{name}{SUFFIX}"
