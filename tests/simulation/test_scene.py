"""What there is besides replicas and clients really happens in the seeds that draw it."""

from collections.abc import Iterator
from itertools import count

import pytest

from tests.marks import first_fast
from tests.simulation.support.backend import Database
from tests.simulation.support.run import Verdict, simulate
from tests.simulation.support.scene import Scene

pytestmark = pytest.mark.tools


SHARES = {
    "workers": 0.34, "transactions": 0.34, "providers": 0.34, "moves": 1 / 12, "crowd": 0.25,
    "flapping": 0.25, "gated": 0.4, "calendars": 0.34, "hosts": 0.25,
    "observed": 0.255,
}  # fmt: skip
EVENTS = {
    "providers": ("scopes_changed", "scope_provider_failed"),
    "moves": ("other_database_found", "database_accepted"),
}
ROWS = {
    "workers": "FROM executions WHERE runner_id LIKE 'w%' AND status = 'SUCCESS'",
    "crowd": "FROM executions WHERE job_name = 'crowd' AND trigger = 'manual'",
    "flapping": "FROM scope_retirements WHERE job_name LIKE 'flaps%'"
    " GROUP BY job_name, scope_kind, scope_id HAVING count(*) > 2",
    "transactions": "FROM sim_effects",
    "gated": "FROM executions WHERE gated_at IS NOT NULL AND status = 'SUCCESS'",
    "hosts": "FROM skips WHERE reason = 'host_absent' AND EXISTS ("
    "SELECT FROM executions WHERE job_name = 'everywhere' AND status = 'SUCCESS') AND EXISTS ("
    "SELECT FROM executions WHERE job_name = 'behind' AND status = 'SUCCESS') AND EXISTS ("
    "SELECT FROM executions WHERE job_name = 'at_boot' AND status = 'SUCCESS') AND EXISTS ("
    "SELECT FROM executions WHERE job_name = 'somewhere' AND status = 'SUCCESS')",
    "observed": "FROM skips WHERE reason = 'not_reported' AND EXISTS ("
    "SELECT FROM executions WHERE trigger = 'observed' AND status = 'SUCCESS') AND EXISTS ("
    "SELECT FROM executions WHERE trigger = 'schedule' AND runner_id = 'observed') AND EXISTS ("
    "SELECT FROM executions WHERE job_name = 'moved' AND runner_id <> 'observed')",
    "calendars": "FROM skips WHERE reason = 'calendar' AND EXISTS ("
    "SELECT FROM executions WHERE job_name = 'dated_next' AND status = 'SUCCESS')",
}


def drawn(part: str) -> Iterator[int]:
    """The seeds that have it."""
    return (seed for seed in count() if getattr(Scene.draw(seed), part))


def test_each_part_is_in_so_many_seeds() -> None:
    scenes = [Scene.draw(seed) for seed in range(1000)]
    found = {part: sum(getattr(scene, part) for scene in scenes) for part in SHARES}
    assert found == pytest.approx({part: 1000 * SHARES[part] for part in SHARES}, rel=0.15)


def happened(part: str, database: Database, verdict: Verdict) -> bool:
    """Whether that part did what it is there for."""
    if part in EVENTS:
        return all(verdict.events[event] for event in EVENTS[part])
    query = f"SELECT 1 {ROWS[part]} LIMIT 1"
    return database.eye.execute(query.encode()).fetchone() is not None


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", first_fast(SHARES))
def test_each_part_of_the_scene_happens(simulated: Database, part: str) -> None:
    for _, seed in zip(range(6), drawn(part), strict=False):
        verdict = simulate(seed, simulated)
        assert not verdict.violations, str(verdict)
        if happened(part, simulated, verdict):
            return
    pytest.fail(f"six seeds with {part}, and in none of them did it happen")
