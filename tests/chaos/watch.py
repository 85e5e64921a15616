"""Memory and handles of processes over time."""

import statistics
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

PAGE_KIB = 4
EVERY_SECONDS = 2.0


class Sample(NamedTuple):
    at: float
    rss_kib: int
    handles: int
    threads: int


class Watch:
    """Samples the processes that `pids` answers, by name, until it is stopped."""

    def __init__(self, pids: Callable[[], dict[str, int]]) -> None:
        self._pids = pids
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self.samples: dict[tuple[str, int], list[Sample]] = {}

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(EVERY_SECONDS):
            for name, pid in self._pids().items():
                with suppress(OSError, IndexError):
                    self.samples.setdefault((name, pid), []).append(_sample(pid))

    def longest(self) -> tuple[str, list[Sample]]:
        """The process that was seen most often: its name and samples."""
        (name, _), samples = max(self.samples.items(), key=lambda item: len(item[1]))
        return name, samples


def _sample(pid: int) -> Sample:
    status = Path(f"/proc/{pid}/statm").read_text().split()
    handles = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    threads = len(list(Path(f"/proc/{pid}/task").iterdir()))
    return Sample(time.monotonic(), int(status[1]) * PAGE_KIB, handles, threads)


class Flatness(NamedTuple):
    """Medians of the first and the last quarter of a life, less its first tenth (caches fill)."""

    what: str
    first: float
    last: float
    peak: float

    @property
    def grew(self) -> bool:
        """By more than a quarter and more than a little."""
        little = 12 * 1024 if self.what.startswith("memory") else 8
        return self.last > self.first * 1.25 and self.last > self.first + little


def flatness(samples: list[Sample]) -> list[Flatness]:
    """Of memory, handles and threads; needs eight samples."""
    settled = samples[len(samples) // 10 :]
    quarter = max(1, len(settled) // 4)
    found = []
    for what, index in (("memory (KiB)", 1), ("open handles", 2), ("threads", 3)):
        values = [sample[index] for sample in settled]
        first, last = statistics.median(values[:quarter]), statistics.median(values[-quarter:])
        found.append(Flatness(what, first, last, max(values)))
    return found
