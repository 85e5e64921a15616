"""Which signals count as the first and the second one."""

import asyncio
import signal

import pytest

from cronledger.process import signals
from cronledger.process.signals import Signals, Watchdog
from cronledger.rules.problems import Exit


class Unwatched(Watchdog):
    """A watchdog that never ends the process of the tests."""

    def __init__(self) -> None:
        pass

    def end_within(self, seconds: float, code: Exit) -> None:
        pass


TERM, INT = signal.SIGTERM, signal.SIGINT


@pytest.mark.parametrize(
    ("received", "is_aborted"),
    [
        ([(INT, 0.0), (TERM, 0.4)], False),
        ([(TERM, 0.0), (TERM, 1.0)], True),
        ([(TERM, 0.0), (TERM, 0.9), (TERM, 1.1)], True),
        # The third one would end this process.
        ([(TERM, 0.0), (INT, 0.1), (TERM, 0.2)], True),
    ],
)
async def test_a_second_sigterm_counts_after_a_second_and_a_ctrl_c_at_once(
    received: list[tuple[signal.Signals, float]], is_aborted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = 100.0
    monkeypatch.setattr(signals, "monotonic", lambda: clock)
    with Signals(Unwatched(), 60, lambda: None) as events:
        for number, at in received:
            clock = 100.0 + at
            signal.raise_signal(number)
        await asyncio.wait_for(events.first.wait(), 60)
        await asyncio.sleep(0)  # the events were requested in this order
        assert events.second.is_set() is is_aborted
