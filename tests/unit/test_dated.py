"""The instants at which `make dates` runs the tests."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.dated import ALL, YEARS, drawn, instants

pytestmark = pytest.mark.tools

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)


def test_all_has_each_weekday_both_ends_of_a_month_and_a_leap_day() -> None:
    found = instants("all", NOW)
    assert len(found) == len(ALL)
    assert {at.weekday() for at in found} == set(range(7))
    assert any(at.day == 1 for at in found)
    assert any((at + timedelta(days=1)).day == 1 for at in found)
    assert any((at.month, at.day) == (2, 29) for at in found)


def test_a_commit_draws_one_instant_of_the_next_two_years() -> None:
    commits = [f"{number:040x}" for number in range(200)]
    found = [drawn(commit, NOW) for commit in commits]
    assert found == [drawn(commit, NOW) for commit in commits]
    assert all(NOW <= at < NOW + YEARS for at in found)
    assert {at.weekday() for at in found} == set(range(7))


def test_an_argument_that_names_no_instant_is_refused() -> None:
    with pytest.raises(ValueError, match="tomorrow"):
        instants("tomorrow", NOW)
