"""The boot of the host of this process: its id, and how long ago it was."""

import time
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

_KERNEL = Path("/proc/sys/kernel/random/boot_id")


class Boot(NamedTuple):
    """A boot that was at `since`, by the clock `clock`."""

    id: str
    clock: int
    since: float

    @property
    def uptime(self) -> timedelta:
        """The time since the boot."""
        return timedelta(seconds=time.clock_gettime(self.clock) - self.since)


def boot_of(configured: str | None) -> Boot | None:
    """Return the boot with this id, which is now, or that of the kernel; None: it is unknown.

    Only Linux has an id.
    """
    if configured is not None:
        return Boot(configured, time.CLOCK_MONOTONIC, time.monotonic())
    try:
        return Boot(_KERNEL.read_text("ascii").strip(), time.CLOCK_BOOTTIME, 0.0)
    except OSError:
        return None
