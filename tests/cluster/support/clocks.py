"""Processes whose host clock is wrong: libfaketime, preloaded into the process."""

import importlib.util
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psycopg

FILE_VARIABLE = "FAKETIME_TIMESTAMP_FILE"


def library() -> Path | None:
    """Return the path of libfaketime's shared object, from the pip package of that name."""
    spec = importlib.util.find_spec("libfaketime") if sys.platform == "linux" else None
    roots = (spec.submodule_search_locations if spec is not None else None) or []
    return next((x for root in roots for x in Path(root).glob("**/libfaketime.so.1")), None)


def inherited_offset() -> float:
    """Return by how many seconds the host clock of this process is off: 0 unless the run is dated
    (`tests.dated`)."""
    file = os.environ.get(FILE_VARIABLE)
    return 0.0 if file is None else float(Path(file).read_text())


def monotonic_offset(c: psycopg.Connection[Any]) -> float:
    """Return CLOCK_MONOTONIC of this host minus the database's clock, in seconds since 1970.

    The error is less than half of the fastest of many round trips.
    """
    best = (float("inf"), 0.0)
    for _ in range(50):
        sent = time.monotonic()
        row = c.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
        received = time.monotonic()
        assert row is not None
        best = min(best, (received - sent, (sent + received) / 2 - row[0]))
    return best[1]


class FakeClock:
    """A process with `environ` sees its host clock `seconds` beside that of the tests.

    CLOCK_MONOTONIC is not changed.
    """

    def __init__(self, file: Path, seconds: float) -> None:
        found = library()
        assert found is not None, "libfaketime is missing: pip install libfaketime"
        self._library = found
        self._file = file
        self._base = inherited_offset()
        self.jump(seconds)

    @property
    def environ(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": str(self._library), FILE_VARIABLE: str(self._file),
            "FAKETIME_CACHE_DURATION": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_RESET": "1", "NO_FAKE_STAT": "1",
        }  # fmt: skip

    def jump(self, seconds: float) -> None:
        """Move the clock; the processes follow within a second."""
        self.offset = round(self._base + seconds)
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{self.offset:+d}\n")
        fresh.replace(self._file)


def forget(pids: Iterable[int]) -> None:
    """Remove the shared memory that libfaketime left behind for processes that were killed."""
    for pid in pids:
        for name in (f"faketime_shm_{pid}", f"sem.faketime_sem_{pid}"):
            (Path("/dev/shm") / name).unlink(missing_ok=True)


def forget_dead() -> None:
    """Remove the shared memory of every process that no longer exists."""
    files = [*Path("/dev/shm").glob("faketime_shm_*"), *Path("/dev/shm").glob("sem.faketime_sem_*")]
    pids = {name for file in files if (name := file.name.rpartition("_")[2]).isdigit()}
    forget(int(pid) for pid in pids if not Path(f"/proc/{pid}").exists())
