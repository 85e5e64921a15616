"""Claims the deliveries of alerts and carries them out, in slots of their own."""

import asyncio
from functools import partial
from time import monotonic
from uuid import uuid4

import psycopg
from pydantic import ValidationError

from cronledger.engine.alerting.senders import DeliveryError, Sender
from cronledger.engine.commands.client import Supervisor
from cronledger.engine.threads import Threads
from cronledger.ledger.connections import AsyncPool
from cronledger.ledger.rows import Delivery, DeliveryEnd
from cronledger.ledger.statements import Statements
from cronledger.ledger.transactions import step_transaction
from cronledger.logs.loggers import get_logger
from cronledger.rules import channels
from cronledger.rules.error_codes import ErrorCode
from cronledger.rules.masks import redacted
from cronledger.rules.outcome import clean_text

log = get_logger(__name__)

DELIVERY_SECONDS = 20.0
"""The longest time that one delivery takes."""
WRITE_SECONDS = 30.0
"""The time for which the end of a delivery is sent again while the database is away. With
DELIVERY_SECONDS, it is less than the lease of claim_deliveries.sql."""
AGAIN_SECONDS = 1.0
IDLE_SECONDS = 180.0
"""The longest time between two claims. Notifications and the step of the alerts wake the loop."""


class Deliveries:
    """Each step claims at most as many deliveries as there are free slots, and starts them.

    No statement is sent while the ledger has no alerts.
    """

    def __init__(
        self,
        pool: AsyncPool,
        statements: Statements,
        supervisor: Supervisor,
        *,
        runner: str,
        slots: int,
    ) -> None:
        self._pool = pool
        self._statements = statements
        self._supervisor = supervisor
        self._runner = runner
        self._slots = slots
        self.wake = asyncio.Event()
        self._threads = Threads("cronledger alerts")
        self._watching = False
        self._requested = False
        self._stopping = False
        self._tasks: set[asyncio.Task[None]] = set()

    def note(self, *, watching: bool) -> None:
        """Note whether the ledger has alerts, as a check-in has found."""
        begins = watching and not self._watching
        self._watching = watching
        if begins:
            self.wake.set()

    def request(self) -> None:
        """Claim now, because a delivery may wait, whatever a check-in that began before found."""
        self._watching = self._requested = True
        self.wake.set()

    async def step(self) -> float:
        """Claim, and start what was claimed. Return the seconds until the next step.

        Raises psycopg.Error.
        """
        free = self._slots - len(self._tasks)
        if not (self._watching or self._requested) or self._stopping or free <= 0:
            return IDLE_SECONDS
        self._requested = False
        try:
            claimed = await self._claim(free)
        except psycopg.Error:
            self._requested = True
            raise
        for delivery in claimed:
            task = asyncio.create_task(self._deliver(delivery), name="cronledger delivery")
            self._tasks.add(task)
            task.add_done_callback(self._ended)
        return IDLE_SECONDS

    async def run_all(self) -> None:
        """Deliver everything that is due, and wait for the ends. Raises psycopg.Error."""
        while self._watching and self._slots > 0:
            await self.step()
            if not self._tasks:
                return
            await asyncio.wait(set(self._tasks))

    def stop_claiming(self) -> None:
        """Claim nothing more."""
        self._stopping = True

    async def close(self, seconds: float) -> None:
        """Wait for the running deliveries. What does not end in time returns to PENDING."""
        self._stopping = True
        if self._tasks:
            _, running = await asyncio.wait(set(self._tasks), timeout=max(0.0, seconds))
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        self._threads.close()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("delivery_unwritten", error=f"{type(error).__name__}: {error}")
        self.wake.set()  # another one may wait for the slot

    async def _claim(self, most: int) -> list[Delivery]:
        tokens = [uuid4() for _ in range(most)]
        async with self._pool.connection() as c, step_transaction(c):
            await self._statements.require_own_database(c)
            found = await self._statements.claim_deliveries(c, self._runner, tokens)
            return list(await found.fetchall())

    async def _deliver(self, delivery: Delivery) -> None:
        """Send one message and write the end of its delivery. Raises psycopg.Error."""
        try:
            ended = await self._sent(delivery)
        except asyncio.CancelledError:
            async with self._pool.connection() as c, step_transaction(c):
                await self._statements.release_delivery(c, delivery.id, delivery.token)
            raise
        if ended.code is not None:
            log.warning(
                "delivery_failed", channel=delivery.channel, delivery_id=delivery.id,
                attempt=delivery.attempt, error=ended.message,
            )  # fmt: skip
        await self._write(ended)

    async def _sent(self, delivery: Delivery) -> DeliveryEnd:
        """Send the message of a delivery, and return how that has ended."""
        failed = partial(DeliveryEnd, delivery.id, delivery.token)
        if (refused := _refusal(delivery)) is not None:
            return failed(*refused, final=True)
        try:
            channel = channels.read(delivery.settings)
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, ("settings", *found["loc"])))
            return failed(ErrorCode.CHANNEL_INVALID, f"{where}: {found['msg']}", final=True)
        sender = Sender(self._supervisor, self._threads, delivery, DELIVERY_SECONDS)
        try:
            async with asyncio.timeout(DELIVERY_SECONDS):
                await sender.send(channel, delivery.message)
        except TimeoutError:
            return failed(ErrorCode.TIMEOUT, f"it did not end within {DELIVERY_SECONDS:.0f} s")
        except DeliveryError as error:
            reason = str(error)
        except Exception as error:  # noqa: BLE001 - of any library, or of a function
            reason = f"{type(error).__name__}: {error}"
        else:
            return DeliveryEnd(delivery.id, delivery.token)
        return failed(ErrorCode.DELIVERY_FAILED, clean_text(redacted(reason, tuple(sender.hidden))))

    async def _write(self, ended: DeliveryEnd) -> None:
        """Write the end of a delivery. Raises psycopg.Error if that is impossible for too long.

        A repeated write of an end that was written already has no effect.
        """
        until = monotonic() + WRITE_SECONDS
        while True:
            try:
                async with self._pool.connection() as c, step_transaction(c):
                    await self._statements.end_delivery(c, ended)
            except psycopg.Error:
                if monotonic() >= until:
                    raise
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                return


def _refusal(delivery: Delivery) -> tuple[ErrorCode, str] | None:
    """Return the error of a delivery that is not sent, or None if it is."""
    if delivery.settings is None:
        return ErrorCode.CHANNEL_INVALID, "the channel no longer exists"
    if delivery.expired:
        return ErrorCode.NOT_STARTED, "no replica has started the test in time"
    if delivery.attempt > delivery.max_attempts:
        return ErrorCode.STALE_TIMEOUT, "its runner was lost in the last attempt"
    if not delivery.message["alerts"]:
        return ErrorCode.NOT_STARTED, "its alerts are older than the retention"
    return None
