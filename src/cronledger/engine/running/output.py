"""The output of running executions: collected in memory, and written in chunks.

A handler that prints nothing causes no work here. Chunks are written every two seconds, and only
for executions that last as long. While somebody follows an execution, they are written at once.
"""

import asyncio
import threading
from contextlib import suppress
from dataclasses import replace
from time import monotonic
from uuid import UUID

from cronledger.engine.awaited import FOLLOW_SECONDS, Awaited
from cronledger.engine.event import Event
from cronledger.engine.lease import NEVER, Lease
from cronledger.ledger.connections import AsyncPool
from cronledger.ledger.rows import OutputChunk
from cronledger.ledger.statements import Statements
from cronledger.ledger.transactions import step_transaction
from cronledger.rules.long_text import LongText, left_out
from cronledger.rules.model import Handler, Job
from cronledger.rules.outcome import Outcome

CAPTURED = (Handler.PYTHON, Handler.COMMAND)
"""The handlers whose output is collected."""
EVERY = 2.0
"""Seconds between two chunks of an execution that nobody follows."""
FOLLOWED_EVERY = 0.1
BUSY_SECONDS = 0.25
"""The wait after another transaction had locked the row of an execution."""
LARGEST_BATCH = 100
"""Chunks of one statement, because each may have the size of a whole output."""


class Capture:
    """The output of one attempt. Every thread may `write`.

    `written`: a chunk was sent, so that the end of the attempt has to delete chunks. `due`: when
    the next chunk is due, if there is something to write. `over`: the attempt has ended. `_sizes`:
    the bytes of the text of each stored chunk, and of the output that it stands for.
    """

    written = over = _noted = False
    due = NEVER
    stored: LongText | None = None
    _pending: LongText | None = None
    _chunk: OutputChunk | None = None
    _number = _dropped = _size = 0
    _sizes: dict[int, tuple[int, int]]

    def __init__(self, lease: Lease, live: "LiveOutput") -> None:
        self.lease = lease
        self._live = live

    @property
    def execution_id(self) -> int:
        return self.lease.claimed.id

    @property
    def is_followed(self) -> bool:
        """Return whether somebody follows the execution."""
        return bool(self._live.followed.among([self.execution_id]))

    def write(self, text: str, missing: int = 0) -> None:
        """Add to the output, in which so many bytes before `text` are missing.

        Nothing is added after the end of the attempt.
        """
        if not (text or missing) or self.over:
            return
        with self._live.lock:
            if self._pending is None:
                self._pending = LongText(self._live.limit)
            self._pending.add(text, missing)
            if self.stored is None:
                self.stored = LongText(self._live.limit)
            self.stored.add(text, missing)
            noted, self._noted = self._noted, True
        if not noted:
            self._live.note(self)

    def end(self, ended: Outcome) -> Outcome:
        """Return the outcome with the output, to which nothing is added any more.

        The end of a command brings its output, unless its supervisor has died.
        """
        self.over = True
        if self.stored is None or ended.output:
            return ended
        with self._live.lock:
            return replace(ended, output=self.stored.text())

    def chunk(self) -> OutputChunk | None:
        """Return the next chunk to write, the same one until it is `settled`; None: none."""
        with self._live.lock:
            if self._chunk is None and self._pending is not None:
                text, missing = self._pending.text(), self._pending.missing
                self._pending = None
                self._number += 1
                self.written = True
                self._chunk = OutputChunk(
                    self.lease.claimed.key,
                    self.lease.token,
                    self._number,
                    text,
                    *self._gap(text, missing),
                )
            return self._chunk

    def _gap(self, text: str, missing: int) -> tuple[int | None, int | None, str | None]:
        """Drop chunks from the middle of what is written, until it is not too long."""
        limit = self._live.limit
        if self._number == 1:
            self._sizes = {}
        size = len(text.encode())
        whole = size - len(left_out(missing)) + missing if missing else size
        self._sizes[self._number] = size, whole
        self._size += size
        first = 2 if self._sizes.get(1, (limit, 0))[0] <= limit // 4 else 1
        through = None
        while self._size > limit:
            oldest = next((one for one in self._sizes if first <= one < self._number), None)
            if oldest is None:
                break
            size, whole = self._sizes.pop(oldest)
            self._size -= size
            self._dropped += whole
            through = oldest
        return (None, None, None) if through is None else (first, through, left_out(self._dropped))

    def free(self) -> None:
        """Keep no text any more: threads of the handler may keep the capture for long."""
        with self._live.lock:
            self.stored = self._pending = None

    def settled(self) -> bool:
        """Note that the chunk is written. Return whether there is another one."""
        with self._live.lock:
            self._chunk = None
            self._noted = self._pending is not None
            return self._noted


class LiveOutput:
    """Writes the chunks of all executions of a runner: `step` is the step of a loop.

    Event `due_within`: a step is due in so many seconds. `followed`: the executions that somebody
    follows. `limit`: the bytes that are kept of one output. `lock` guards all captures.
    """

    def __init__(self, pool: AsyncPool, statements: Statements, limit: int) -> None:
        self._pool = pool
        self._statements = statements
        self.limit = limit
        self.lock = threading.RLock()  # a finaliser may print while a thread holds it
        self._loop = asyncio.get_running_loop()
        self._noted: dict[UUID, Capture] = {}
        self.due_within = Event[[float]]()
        self.followed = Awaited("follow", FOLLOW_SECONDS)

    def collects(self, job: Job) -> bool:
        """Return whether the output of this job's executions is collected."""
        return job.capture_output and self.limit > 0 and job.handler in CAPTURED

    def forget(self, capture: Capture) -> None:
        """Write no further chunk of an attempt that has ended."""
        if capture.stored is not None:
            self._drop(capture)
            capture.free()

    def hurry(self, capture: Capture) -> None:
        """Write now what the execution has to write, because somebody follows it."""
        if capture.lease.token in self._noted:
            capture.due = min(capture.due, monotonic())
            self.due_within(0.0)

    def note(self, capture: Capture) -> None:
        """Note that the capture has something to write. Any thread may call this."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._plan, capture)

    def _plan(self, capture: Capture) -> None:
        if capture.over:
            return
        every = FOLLOWED_EVERY if capture.is_followed else EVERY
        capture.due = monotonic() + every
        self._noted[capture.lease.token] = capture
        self.due_within(every)

    async def step(self) -> float | None:
        """Write the chunks that are due. Return the seconds until the next ones; None: none."""
        now = monotonic()
        due = [one for one in self._noted.values() if one.due <= now]
        due.sort(key=lambda one: one.lease.claimed.key.plan_time)  # for few partitions in each
        for first in range(0, len(due), LARGEST_BATCH):
            await self._write(due[first : first + LARGEST_BATCH])
        following = min((one.due for one in self._noted.values()), default=None)
        return None if following is None else max(0.0, following - monotonic())

    def _drop(self, capture: Capture) -> None:
        self._noted.pop(capture.lease.token, None)

    async def _write(self, captures: list[Capture]) -> None:
        for one in captures:
            if one.over:
                self._drop(one)
        captures = [one for one in captures if not one.over]
        chunks = [chunk for one in captures if (chunk := one.chunk()) is not None]
        if not chunks:
            return
        async with self._pool.connection() as c, step_transaction(c):
            result = await self._statements.write_output(c, chunks)
        written = set(await result.fetchall())
        for one in captures:
            if one.over or not one.lease.held:
                self._drop(one)
            elif one.lease.token not in written:  # busy
                one.due = monotonic() + BUSY_SECONDS
            elif one.settled():
                self._plan(one)
            else:
                self._drop(one)
