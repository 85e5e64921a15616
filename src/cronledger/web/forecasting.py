"""Forecasts for the page, each computed in a thread while people have the last one."""

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from markupsafe import Markup

from cronledger.explain.forecast import Basis, running_of, series_of
from cronledger.rules import forecast as rules
from cronledger.rules.forecast import Forecast
from cronledger.web.drawing.forecast import draw_forecast

MOST_FIRINGS = 100_000
"""They take seconds of a processor."""
PATIENCE = 0.5
"""The longest time in seconds that a page waits for a forecast. Then it shows the last one."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A forecast of so many days, and its picture. `basis`: what it was computed from."""

    basis: Basis
    days: int
    found: Forecast
    figure: Markup


class Forecasts:
    """The forecasts of one process, by their length in days."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "cronledger-forecast")
        self._begun: dict[int, tuple[Basis, Future[Drawn]]] = {}
        self._last: dict[int, Drawn] = {}

    async def of(self, basis: Basis, days: int) -> Drawn | None:
        """Return the forecast of this basis, or else the last one, or None if there is none yet."""
        begun, future = self._begun.get(days, (None, None))
        if future is None or (begun is not basis and future.done()):
            future = self._pool.submit(_drawn, basis, days)
            future.add_done_callback(self._ended)
            self._begun[days] = basis, future
        with suppress(TimeoutError):
            self._keep(await asyncio.wait_for(_shielded(future), PATIENCE))
        return self._last.get(days)

    def _ended(self, future: "Future[Drawn]") -> None:
        if not future.cancelled() and future.exception() is None:
            self._keep(future.result())

    def _keep(self, drawn: Drawn) -> None:
        self._last[drawn.days] = drawn

    def close(self) -> None:
        """Begin no more forecasts."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _shielded(future: "Future[Drawn]") -> "asyncio.Future[Drawn]":
    """Return the future for the event loop. Who no longer waits does not cancel it."""
    return asyncio.shield(asyncio.wrap_future(future))


def slots_of(basis: Basis) -> int:
    """Return the slots of all live runners."""
    return sum(pool.slots for pool in basis.capacity.pools)


def _drawn(basis: Basis, days: int) -> Drawn:
    found = rules.forecast(
        series_of(basis), basis.capacity, running_of(basis), basis.now, timedelta(days=days),
        most=MOST_FIRINGS,
    )  # fmt: skip
    return Drawn(basis, days, found, Markup(draw_forecast(found, slots_of(basis))))
