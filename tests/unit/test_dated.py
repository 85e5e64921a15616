"""The instants at which `make dates` runs the tests."""

from datetime import UTC, datetime

import pytest

from tests.dated import YEARS, drawn

pytestmark = pytest.mark.tools

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)


def test_a_commit_draws_one_instant_of_the_next_two_years() -> None:
    commits = [f"{number:040x}" for number in range(200)]
    found = [drawn(commit, NOW) for commit in commits]
    assert found == [drawn(commit, NOW) for commit in commits]
    assert all(NOW <= at < NOW + YEARS for at in found)
    assert {at.weekday() for at in found} == set(range(7))
