"""What a replica remembers of the executions that programs wait for."""

import pytest

from cronledger.engine import awaited
from cronledger.engine.awaited import Awaited


def test_announced_executions_are_awaited_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    at = [100.0]
    monkeypatch.setattr(awaited, "monotonic", lambda: at[0])
    known = Awaited()
    assert known.among([1, 2, 3]) == []
    assert known.note("wait 2") and known.note("wait 3")
    assert known.among([1, 2, 3]) == [2, 3]
    at[0] += awaited.REMEMBERED_SECONDS / 2
    assert known.note("wait 3")
    at[0] += awaited.REMEMBERED_SECONDS / 2
    assert known.among([1, 2, 3]) == [3]
    at[0] += awaited.REMEMBERED_SECONDS
    assert known.among([1, 2, 3]) == []


def test_other_notifications_are_left_to_others() -> None:
    known = Awaited()
    assert not any(map(known.note, ("", "pending", "jobs", "connected", "waiting 1")))
    assert known.note("wait " + "9" * 5000)
    assert known.note("wait x")
    assert known.among([9, 1]) == []


def test_the_oldest_announcements_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(awaited, "MOST_REMEMBERED", 3)
    known = Awaited()
    for number in (1, 2, 3, 1, 4):
        known.note(f"wait {number}")
    assert known.among([1, 2, 3, 4]) == [1, 3, 4]
