"""The stop signals of the server that serves the page.

A server waits for open responses before it ends the lifespans of its programs, so a stream would
delay all of them. Only the signal comes sooner.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

NUMBERS: tuple[int, ...] = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def at_stop_signals(call: Callable[[], None]) -> Iterator[None]:
    """Within the block, call `call` at each stop signal, and then the handler of the server.

    A signal without a handler is left as it is. So are all signals if this is not the main thread,
    because a server in another thread receives none.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {
        int(number): found for number in NUMBERS if callable(found := signal.getsignal(number))
    }

    def received(number: int, frame: FrameType | None) -> None:
        call()
        before[number](number, frame)

    for number in before:
        signal.signal(number, received)
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is received:
                signal.signal(number, handler)
