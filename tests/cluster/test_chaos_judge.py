"""The chaos run's judges find what they are there to find."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.chaos.judge import LEDGER, OVERLAPPING, alive_at_once
from tests.chaos.watch import Sample, flatness
from tests.cluster.support.marks import Mark
from tests.db.support import rows

pytestmark = pytest.mark.tools


def _mark(
    at: float, execution: int, attempt: int = 1, *, job: str = "steady", pid: int = 1
) -> Mark:
    return Mark(at, "alive", job, "s0", attempt, execution, pid, "2026-01-01T00:00:00+00:00")


STILL = [_mark(1, 1), _mark(1.5, 1), _mark(9, 1), _mark(9.5, 1)]
"""The signs of a process that stood still from 1.5 to 9."""
THIEF = [_mark(8, 1, 2, pid=2), _mark(9.9, 1, 2, pid=2)]


@pytest.mark.parametrize(
    ("marks", "found"),
    [
        pytest.param([_mark(1, 1), _mark(2, 1), _mark(2, 2), _mark(3, 2)], 0, id="one by one"),
        pytest.param([_mark(1, 1), _mark(3, 1), _mark(2, 2), _mark(4, 2)], 1, id="beside another"),
        pytest.param([_mark(1, 1), _mark(3, 1), _mark(2, 1, 2, pid=2)], 1, id="beside a thief"),
        pytest.param([_mark(at, n, job="allowed") for at, n in ((1, 1), (3, 1), (2, 2))], 0,
                     id="may lap"),
        pytest.param([_mark(1, 3), _mark(3, 3), _mark(2, 4)._replace(scope="s1")], 0,
                     id="of another scope"),
        pytest.param([*STILL, *THIEF], 0, id="a second to see what it lost"),
        pytest.param([*STILL, *THIEF, _mark(10.5, 1)], 1, id="more than a second"),
        pytest.param([_mark(5.5, 1), _mark(8.2, 1), *THIEF], 1, id="never stood still"),
    ],
)  # fmt: skip
def test_lives_of_one_scope_that_overlap_are_found(marks: list[Mark], found: int) -> None:
    overlaps = alive_at_once(marks)
    assert len(overlaps) == found
    assert all(text.startswith("steady/s0: 1#1 lived ") for text in overlaps)


def test_executions_of_one_scope_that_overlap_in_the_ledger_are_named(database_url: str) -> None:
    """Each runs for 2 s. The third one begins at the end of the second one."""
    with rows.connected(database_url) as db:
        for name in ("job", "allowed"):
            rows.job(db, name, overlap="allow" if name == "allowed" else "skip")
            at = rows.now(db) - timedelta(minutes=1)
            found = [
                rows.execution(db, job=name, plan_time=at + timedelta(seconds=second))
                for second in (0, 1, 3)
            ]
            if name == "job":
                first, second, _ = found
        (text,) = [text for row in db.execute(OVERLAPPING) for text in row.values()]
    assert text.startswith(f"job/global: {first['id']} (SUCCESS, ")
    assert f" beside {second['id']} (SUCCESS, " in text


@pytest.mark.parametrize(("skipped", "missing"), [(11, 0), (10, 1), (12, 1)])
def test_a_second_is_accounted_for_until_the_edit_that_set_the_end_is_made(
    database_url: str, skipped: int, missing: int
) -> None:
    """The end was asked for after 10 s, and waited for a lock until after 11.5 s."""
    begun = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=0.2)
    revised = "UPDATE cronledger.job_revisions SET effective_from = %s WHERE revision = %s"
    with rows.connected(database_url) as db:
        rows.job(db, "steady", schedule="* * * * * *")
        db.execute("UPDATE cronledger.jobs SET ends_at = %s", [begun + timedelta(seconds=10)])
        db.execute(revised, [begun, 1])
        db.execute(revised, [begun + timedelta(seconds=11.5), 2])
        db.execute(
            "UPDATE cronledger.schedules SET created_at = %s, planned_through = %s",
            [begun, begun + timedelta(seconds=13)],
        )
        first = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
        rows.skip(db, first, first + timedelta(seconds=skipped - 1), skipped, job="steady")
        query = LEDGER["missing: unaccounted seconds of unedited jobs"]
        (found,) = rows.one(db.execute(query)).values()
    assert found == missing


def test_growth_is_seen_and_a_plateau_is_none() -> None:
    def life(memory: list[int]) -> list[str]:
        found = flatness([Sample(n, kib, 20, 10) for n, kib in enumerate(memory)])
        return [x.what for x in found if x.grew]

    assert life([60_000, *[75_000] * 40]) == []
    assert life([75_000 + 1500 * n for n in range(40)]) == ["memory (KiB)"]
