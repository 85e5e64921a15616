"""The state of a replica in the messages that systemd expects of a unit with `Type=notify`."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from cronledger.process.service_manager import ServiceManager
from cronledger.replica import Health

INTERVAL_SECONDS = 5.0
START_SECONDS = 30.0
"""The additional time that a starting replica requests with each message."""
LONGEST_STATUS = 200


class StateReporter:
    """Reports the state of a replica to its service manager.

    It sends READY=1 once the replica takes work, WATCHDOG=1 while no loop is stuck, and STOPPING=1
    when `run` is requested to stop. `stop_seconds`: the time within which the process then ends.
    """

    def __init__(
        self, manager: ServiceManager, read: Callable[[], Health], stop_seconds: float
    ) -> None:
        self._manager = manager
        self._read = read
        self._stop_seconds = stop_seconds
        self._ready = False
        self._stopping = False
        self._status: str | None = None
        watchdog = manager.watchdog_seconds
        self._interval = (
            INTERVAL_SECONDS if watchdog is None else min(INTERVAL_SECONDS, watchdog / 2)
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Report the state until this task is cancelled, also during the drain after `stop`.

        Return at once if there is no service manager.
        """
        if self._manager.address is None:
            return
        while not stop.is_set():
            self.report()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._interval):
                    await stop.wait()
        while True:
            self.report(stopping=True)
            await asyncio.sleep(self._interval)

    def report(self, *, stopping: bool = False) -> None:
        """Send the changes of the state, and the messages that are expected regularly."""
        if self._manager.address is None:
            return
        health = self._read()
        fields = self._states(health, stopping)
        if health.stuck is None:
            fields.append("WATCHDOG=1")
        status = describe(health)
        if status != self._status:
            fields.append(f"STATUS={status}")
        if fields and self._manager.send(*fields):
            self._status = status
            self._ready |= "READY=1" in fields
            self._stopping |= "STOPPING=1" in fields

    def _states(self, health: Health, stopping: bool) -> list[str]:
        if self._stopping:
            return []
        if stopping:
            return ["STOPPING=1", _extend(self._stop_seconds)]
        if self._ready:
            return []
        if health.ready:
            return ["READY=1"]
        return [_extend(START_SECONDS)] if health.stuck is None else []


def describe(health: Health) -> str:
    """Return the state as one line for `systemctl status`."""
    used = f"{health.running} of {health.slots} slots are in use"
    if health.stuck is not None:
        text = f"the loop {health.stuck} is stuck; {used}"
    elif health.database == "away":
        text = f"{health.state}, but the database is unreachable; {used}"
    elif health.database == "other":
        text = f"{health.state}, but the database is not the ledger's own; {used}"
    else:
        text = f"{health.state}; {used}"
    failing = "".join(f"; {name}: {error}" for name, error in health.failing.items())
    return " ".join((text + failing).split())[:LONGEST_STATUS]


def _extend(seconds: float) -> str:
    return f"EXTEND_TIMEOUT_USEC={round(seconds * 1e6)}"
