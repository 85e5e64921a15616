"""The low-water mark: from where a claim searches for due schedules."""

from datetime import UTC, datetime

from cronledger.engine.claiming.low_water import LowWater

NOON = datetime(2026, 11, 26, 12, tzinfo=UTC)


def test_a_claim_that_was_overtaken_by_news_does_not_raise_it() -> None:
    mark = LowWater()
    mark.begin([])
    mark.forget()
    mark.rise(NOON, [])
    assert mark.begin([]) is None
    mark.rise(NOON, [])
    assert mark.begin([]) == NOON
    mark.rise(None, [])
    assert mark.begin([]) is None


def test_it_does_not_hold_for_a_job_that_the_last_claim_left_out() -> None:
    mark = LowWater()
    mark.begin(["a"])
    mark.rise(NOON, ["a"])
    assert mark.instant(["a", "b"]) == NOON
    assert mark.begin(["b"]) is None
    assert mark.begin(["a"]) == NOON
