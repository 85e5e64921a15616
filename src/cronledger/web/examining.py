"""The checks of `doctor` for the page, made by the reading login."""

import asyncio
from contextlib import suppress
from dataclasses import asdict
from time import monotonic

import psycopg

from cronledger.explain.doctor import DoctorContext, examine
from cronledger.ledger.access import Access
from cronledger.ledger.database_errors import explained
from cronledger.ledger.reports import Row
from cronledger.logs.loggers import get_logger
from cronledger.rules import cron
from cronledger.rules.remedies import Surface
from cronledger.settings import Settings
from cronledger.web.reading import STATEMENT_SECONDS, Reading
from cronledger.web.stoppable import StoppableThread, StoppedError

log = get_logger(__name__)

NAME = "cronledger web examines"
FRESH_SECONDS = 60.0
PATIENCE = 2.0
"""The longest time in seconds that a page waits for the checks. Then it shows the last ones."""
UNDER_WAY = "The checks are running."


class Examiner:
    """Makes the checks at most once within FRESH_SECONDS, in a thread of its own."""

    def __init__(self, access: Access, settings: Settings) -> None:
        self._access = access
        self._settings = settings
        self._thread: StoppableThread | None = None
        self._ended = asyncio.Event()
        self._tried_at = float("-inf")
        self._read_at = float("-inf")
        self._rows: list[Row] | None = None
        self._problem: str | None = None

    async def read(self) -> Reading:
        """Return the last findings as rows, which are made again if they are not fresh.

        Raises nothing: what the checks raise is the `problem` of the reading.
        """
        is_busy = self._thread is not None and self._thread.is_alive
        if not is_busy and monotonic() - self._tried_at >= FRESH_SECONDS:
            self._ended.clear()
            loop = asyncio.get_running_loop()
            self._thread = StoppableThread(
                "cronledger-examine", lambda thread: self._work(thread, loop)
            )
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), PATIENCE)
        age = monotonic() - self._read_at if self._rows is not None else 0.0
        problem = self._problem if self._ended.is_set() else UNDER_WAY
        return Reading(self._rows, None, age, None, problem)

    async def close(self) -> None:
        """End the checks that are being made."""
        if self._thread is not None:
            await self._thread.stop()

    def _work(self, thread: StoppableThread, loop: asyncio.AbstractEventLoop) -> None:
        try:
            with self._access.connect(NAME) as connection, thread.cancellable(connection):
                connection.read_only = True
                context = DoctorContext(
                    connection, self._settings, self._access.url, cron.FINGERPRINT,
                    f"{STATEMENT_SECONDS}s",
                )  # fmt: skip
                found = examine(context, of_replicas=False)
            self._rows, self._problem = [asdict(one) for one in found], None
            self._read_at = monotonic()
        except StoppedError:
            return
        except Exception as error:
            if thread.is_stopping:
                return
            shown = (
                explained(error, Surface.PAGE) if isinstance(error, psycopg.Error) else repr(error)
            )
            if self._problem is None:
                log.warning("web_read_failed", statement="doctor", error=str(shown), exc_info=error)
            self._problem = str(shown)
        finally:
            self._tried_at = monotonic()
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(self._ended.set)
