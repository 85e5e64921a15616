"""Wait for a condition of the product. The limit is for defects: a busy machine stays below it."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE = 120.0
T = TypeVar("T")


def until(what: str, look: Callable[[], T | None], seconds: float = PATIENCE) -> T:
    """Return what `look` returns as soon as it is true; fail with `what` after `seconds`."""
    give_up_at = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < give_up_at, f"not within {seconds} s: {what}"
        time.sleep(0.01)
    return found


async def eventually(what: str, look: Callable[[], T | None], seconds: float = PATIENCE) -> T:
    """Do the same beside other tasks of the event loop.

    `look` is called in a thread, because a replica on this loop may hold a lock for which it waits.
    """
    give_up_at = time.monotonic() + seconds
    while not (found := await asyncio.to_thread(look)):
        assert time.monotonic() < give_up_at, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.01)
    return found
