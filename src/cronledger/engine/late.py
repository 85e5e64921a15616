"""A value that is made when it is first needed, because its libraries take long to import."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Late(Generic[T]):
    """A value that `make` returns. It is made once, in a thread, so that the event loop goes on.

    A replica without HTTP jobs, pings and webhooks does not need the library for requests.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self.made: T | None = None

    async def get(self) -> T:
        """Return the value. Raises what `make` raises."""
        if self.made is None:
            made = await asyncio.to_thread(self._make)
            if self.made is None:  # otherwise another task has made it in the meantime
                self.made = made
        return self.made
