"""A cluster under every fault there is, seed by seed. `make chaos` runs as many as fit."""

import pytest

from tests.simulation.backend import Database
from tests.simulation.run import Verdict, simulate

SEEDS = 300
CHUNK = 10


@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_nothing_is_wrong_whatever_happens(simulated: Database, first: int) -> None:
    for seed in range(first, first + CHUNK):
        verdict = simulate(seed, simulated)
        assert not verdict.violations, str(verdict)


@pytest.mark.parametrize("seed", [3, 17])
def test_a_seed_says_the_same_each_time(simulated: Database, seed: int) -> None:
    # What is due at the same instant is claimed as it lies in its table, and when PostgreSQL clears
    # away a dead row there is its own affair: one seed in ten has two ways to go.
    digests = [simulate(seed, simulated).digest for _ in range(3)]
    assert len(set(digests)) < 3
    assert simulate(seed + 1, simulated).digest not in digests


def test_a_failing_seed_names_the_command_that_replays_it() -> None:
    from collections import Counter

    none: Counter[str] = Counter()
    verdict = Verdict(7, ("[1.0] I7: both",), "", 1, 1, none, none, none, 0, 0, 1.0, 1.0)
    assert "python -m tests.simulation 7 --trace" in str(verdict)
