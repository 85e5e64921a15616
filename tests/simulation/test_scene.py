"""What there is besides replicas and clients really happens in the seeds that draw it."""

from collections.abc import Iterator
from itertools import count

import pytest

from tests.marks import first_fast
from tests.simulation.support.backend import Database
from tests.simulation.support.run import Verdict, simulate
from tests.simulation.support.scene import Scene

pytestmark = pytest.mark.tools


def drawn(part: str) -> Iterator[int]:
    """The seeds that have it."""
    return (seed for seed in count() if getattr(Scene.draw(seed), part))


@pytest.mark.parametrize(
    ("part", "share"),
    [
        ("workers", 0.34),
        ("transactions", 0.34),
        ("providers", 0.34),
        ("moves", 1 / 12),
        ("crowd", 0.25),
        ("flapping", 0.25),
    ],
)
def test_each_part_is_in_so_many_seeds(part: str, share: float) -> None:
    have = sum(getattr(Scene.draw(seed), part) for seed in range(1000))
    assert have == pytest.approx(1000 * share, rel=0.15)


def happened(part: str, database: Database, verdict: Verdict) -> bool:
    """Whether that part did what it is there for."""
    match part:
        case "workers":
            query = (
                "SELECT count(*) FROM executions WHERE runner_id LIKE 'w%' AND status = 'SUCCESS'"
            )
        case "crowd":
            query = (
                "SELECT count(*) FROM executions WHERE job_name = 'crowd' AND trigger = 'manual'"
            )
        case "flapping":
            query = (
                "SELECT count(*) FROM (SELECT FROM scope_retirements WHERE job_name LIKE 'flaps%'"
                " GROUP BY job_name, scope_kind, scope_id HAVING count(*) > 2) r"
            )
        case "transactions":
            query = "SELECT count(*) FROM sim_effects"
        case "providers":
            return all(verdict.events[x] for x in ("scopes_changed", "scope_provider_failed"))
        case _:
            return all(verdict.events[x] for x in ("other_database_found", "database_accepted"))
    row = database.eye.execute(query.encode()).fetchone()
    return row is not None and row[0] > 0


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "part", first_fast(["workers", "transactions", "providers", "moves", "crowd", "flapping"])
)
def test_each_part_of_the_scene_happens(simulated: Database, part: str) -> None:
    for _, seed in zip(range(6), drawn(part), strict=False):
        verdict = simulate(seed, simulated)
        assert not verdict.violations, str(verdict)
        if happened(part, simulated, verdict):
            return
    pytest.fail(f"six seeds with {part}, and in none of them did it happen")
