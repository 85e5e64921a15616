"""A cluster under every fault there is, seed by seed. `make chaos` runs as many as fit."""

from collections import Counter

import pytest

from tests.database import Databases
from tests.marks import first_fast
from tests.simulation.__main__ import printing
from tests.simulation.replay import differences, parted
from tests.simulation.support.backend import Database
from tests.simulation.support.run import Verdict, simulate

SEEDS = 300
CHUNK = 5
REPLAYED = range(6)


CHUNKS = [range(1), *(range(n, min(n + CHUNK, SEEDS)) for n in range(1, SEEDS, CHUNK))]


@pytest.mark.timeout(1800)  # a busy machine is slow
@pytest.mark.parametrize("seeds", first_fast(CHUNKS), ids=str)
def test_no_invariant_is_violated_under_faults(simulated: Database, seeds: range) -> None:
    for seed in seeds:
        verdict = simulate(seed, simulated)
        assert not verdict.violations, str(verdict)


@pytest.mark.tools
@pytest.mark.timeout(1800)
def test_a_seed_does_the_same_each_time(databases: Databases) -> None:
    assert differences(REPLAYED, databases._dsn) == {}


@pytest.mark.tools
def test_a_seed_does_the_same_when_its_trace_is_printed(simulated: Database) -> None:
    assert simulate(0, simulated, printing()).digest == simulate(0, simulated).digest


@pytest.mark.tools
def test_two_seeds_have_different_traces(simulated: Database) -> None:
    traces: list[list[str]] = [[], []]
    digests = {simulate(seed, simulated, traces[seed].append).digest for seed in (0, 1)}
    assert len(digests) == 2
    assert list(parted(*traces))


@pytest.mark.tools
def test_a_failing_seed_names_the_command_that_replays_it() -> None:
    none: Counter[str] = Counter()
    verdict = Verdict(7, ("[1.0] I7: both",), "", 1, 1, none, none, none, 0, 0, 1.0, 1.0)
    assert "python -m tests.simulation 7 --trace" in str(verdict)
