"""An event loop in virtual time, and processes on it that stop, go on and die as real ones do.

Nothing sleeps: when nothing is ready, the clock jumps to the next timer. Every callback belongs to
the lane in whose context it was scheduled. A lane is one thread of one simulated process; while it
is stopped its callbacks gather; once its process is dead none of them runs: no `finally`, no
`except`, just as after kill -9. (They run when all is over and judged, so that no task is left.)
"""

import asyncio
import contextlib
import contextvars
import selectors
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

CPU_SECONDS = 20.0
"""A seed that takes more than this of the processor has got stuck."""


class StuckError(Exception):
    """The simulation cannot go on: nothing is scheduled, or it goes on for ever."""


@dataclass(eq=False)
class Lane:
    """One thread of a process: what it was about to do while it was stopped."""

    process: "Process"
    stopped: bool = False
    backlog: list[Callable[[], None]] = field(default_factory=list)


@dataclass(eq=False)
class Process:
    """A simulated operating-system process with a main thread and one for heartbeats."""

    name: str
    runner: str
    born_at: float = 0.0
    alive: bool = True
    is_replica: bool = False
    died_at: float = float("inf")
    main: Lane = field(init=False)
    beat: Lane = field(init=False)
    resumed_at: float = -1.0

    def __post_init__(self) -> None:
        self.main, self.beat = Lane(self), Lane(self)

    @property
    def frozen(self) -> bool:
        """Stopped as a whole (SIGSTOP): not even its heartbeats run."""
        return self.beat.stopped

    def stop(self, *lanes: Lane) -> None:
        for lane in lanes or (self.main, self.beat):
            lane.stopped = True

    def resume(self, now: float) -> None:
        self.resumed_at = now
        for lane in (self.main, self.beat):
            lane.stopped = False
            backlog, lane.backlog = lane.backlog, []
            for callback in backlog:
                callback()

    def kill(self, now: float) -> None:
        """Nothing of it runs any more. What it was about to do waits for `bury`."""
        self.alive = False
        self.died_at = now


LANE: contextvars.ContextVar[Lane | None] = contextvars.ContextVar("LANE", default=None)
NOBODY = contextvars.copy_context()
"""A context of no process: the server, the network and the simulator."""


class Timeless(selectors.BaseSelector):
    """Instead of waiting the clock of the loop is put forward."""

    def __init__(self) -> None:
        self.now = 0.0
        self.give_up_at = float("inf")

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise StuckError("nothing is scheduled, and not everything has ended")
        if time.process_time() > self.give_up_at:
            raise StuckError(f"not over after {CPU_SECONDS} s; virtual time is {self.now:.3f}")
        self.now += timeout
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> Any:
        return None

    def unregister(self, fileobj: Any) -> Any:
        return None

    def get_map(self) -> Any:
        return {}


class SimLoop(asyncio.SelectorEventLoop):
    """Runs callbacks in the order of their instants; deterministic."""

    def __init__(self) -> None:
        self._timeless = Timeless()
        super().__init__(self._timeless)
        self._timeless.give_up_at = time.process_time() + CPU_SECONDS
        self.broke: list[BaseException] = []
        self.set_exception_handler(self._note)

    def _note(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None and "callback" in context.get("message", ""):
            self.broke.append(error)  # a mistake of the simulator itself
            self.stop()

    def time(self) -> float:
        return self._timeless.now

    def call_soon(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        context = contextvars.copy_context() if context is None else context
        lane = context.get(LANE)
        if lane is None:
            return super().call_soon(callback, *args, context=context)
        cell: list[asyncio.Handle] = []
        handle = super().call_soon(self._gate, cell, lane, callback, args, context, context=context)
        cell.append(handle)
        return handle

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        context = contextvars.copy_context() if context is None else context
        lane = context.get(LANE)
        if lane is None:
            return super().call_at(when, callback, *args, context=context)
        cell: list[asyncio.Handle] = []
        handle = super().call_at(
            when, self._gate, cell, lane, callback, args, context, context=context
        )
        cell.append(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """In the main thread of the process, whichever of its threads asks."""
        context = contextvars.copy_context() if context is None else context.copy()
        lane = context.get(LANE)
        if lane is not None:
            context.run(LANE.set, lane.process.main)
        return self.call_soon(callback, *args, context=context)

    def _gate(
        self,
        cell: list[asyncio.Handle],
        lane: Lane,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context,
    ) -> None:
        if lane.stopped or not lane.process.alive:
            lane.backlog.append(lambda: self._again(cell, lane, callback, args, context))
        elif not cell[0].cancelled():  # perhaps while it waited in the backlog
            callback(*args)

    def _again(
        self,
        cell: list[asyncio.Handle],
        lane: Lane,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context,
    ) -> None:
        super().call_soon(self._gate, cell, lane, callback, args, context, context=context)

    def after(self, seconds: float, callback: Callable[..., object], *args: Any) -> None:
        """Outside of all processes: it happens whatever becomes of them."""
        self.call_at(self.time() + seconds, callback, *args, context=NOBODY.copy())

    def spawn(self, lane: Lane | None, work: Any, name: str) -> "asyncio.Task[Any]":
        """A task whose every callback belongs to `lane`."""
        context = NOBODY.copy()
        context.run(LANE.set, lane)
        return self.create_task(work, name=name, context=context)

    def bury(self, processes: Iterable[Process]) -> None:
        """Everything that is left ends, quietly; afterwards no task is pending. What these
        processes ask of the database fails by now. It has its own limit of CPU time, because a
        simulation that was stuck has used up the first one."""
        self._timeless.give_up_at = time.process_time() + CPU_SECONDS
        for _ in range(20):
            left = asyncio.all_tasks(self)
            if not left:
                return
            for task in left:
                task.cancel()
            for process in processes:
                process.alive = True
                process.resume(self.time())
            self.run_until_complete(asyncio.sleep(30))
        raise StuckError(
            f"tasks that do not end: {[t.get_name() for t in asyncio.all_tasks(self)]}"
        )


@contextlib.contextmanager
def virtual_loop() -> Iterator[SimLoop]:
    """A fresh loop at virtual time 0; closed afterwards."""
    loop = SimLoop()
    try:
        yield loop
    finally:
        loop.close()
