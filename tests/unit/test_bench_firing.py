"""Which calls of a firing count in the benchmark of scheduling, and which are punctual."""

import pytest

from tests.bench import firing
from tests.bench.firing import PATIENCE_SECONDS, Calls, Firing, Outcome

pytestmark = pytest.mark.tools

FIRST = 1_764_150_000
EACH_SECOND = Firing(schedules=2, times=3, first=FIRST)


def called(clock: list[float], calls: list[tuple[int, float, float]]) -> Calls:
    """Return the calls of (schedule, due instant, time of the call), in seconds after the first."""
    found = Calls(EACH_SECOND)
    for schedule, due, at in calls:
        clock[:] = [FIRST + at]
        found.add(schedule, FIRST + due)
    return found


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    at = [float(FIRST)]
    monkeypatch.setattr(firing, "now", lambda: at[0])
    return at


def test_a_call_is_punctual_within_50_ms_of_its_own_instant(clock: list[float]) -> None:
    calls = called(clock, [(0, 0, 0.01), (1, 0, 0.06), (0, 1, 2.01), (1, 1, 1.05)])
    assert calls.outcome()[:3] == (6, 4, 2)
    assert calls.outcome().last == pytest.approx(2.01)


def test_calls_for_other_instants_and_later_than_the_patience_do_not_count(
    clock: list[float],
) -> None:
    calls = called(clock, [(0, -1, 0.0), (0, 3, 3.0), (0, 2, 2 + PATIENCE_SECONDS + 0.1)])
    assert calls.outcome() == Outcome(6, 0, 0, 0)
    assert calls.is_complete()


def test_a_second_call_for_one_instant_does_not_count(clock: list[float]) -> None:
    calls = called(clock, [(0, 0, 0.2), (0, 0, 0.3)])
    assert (len(calls.found), calls.is_complete()) == (1, False)
    assert calls.outcome().last == pytest.approx(0.2)


def test_a_schedule_that_is_due_once_has_its_minute_and_hour(clock: list[float]) -> None:
    once = Firing(1, 1, FIRST)
    assert (once.minute_cron(), once.cron()) == ("40 9 * * *", "40 9 * * * 0")
    clock[:] = [float(FIRST)]
    with pytest.raises(RuntimeError, match="1 schedules were not declared in time"):
        once.require_ahead()
