"""Eight processes, 2,000 executions, 200 (job, scope): two witnesses say that none overlapped."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from cronledger.sources.apply import apply
from cronledger.testing import Travel
from tests.cluster.support.harness import Cluster
from tests.cluster.support.jobs import FIRINGS, SHARDS, verdict
from tests.cluster.support.marks import Mark
from tests.waiting import until

pytestmark = pytest.mark.slow


PROCESSES = 8
ALL = len(verdict.jobs) * len(SHARDS) * FIRINGS


@pytest.fixture
def backlog(cluster: Cluster) -> Cluster:
    """An outage of ten minutes has just ended: each (job, scope) has ten plan_times to catch up."""
    clock = Travel(cluster.url)
    start = (clock.now() + timedelta(days=1)).replace(hour=12, minute=0, second=5, microsecond=0)
    clock.travel(to=start)
    end = start + timedelta(minutes=FIRINGS)
    bounded = [job.model_copy(update={"ends_at": end}) for job in verdict.jobs.values()]
    apply(cluster.url, bounded, source="verdict")
    clock.travel(to=end)
    clock.close()
    return cluster


def test_i7_two_thousand_executions_of_eight_processes_never_overlap(backlog: Cluster) -> None:
    replicas = [
        backlog.start("verdict", wait=False, apply=False, slots=10) for _ in range(PROCESSES)
    ]
    done = "SELECT count(*) FROM cronledger.executions WHERE status = 'SUCCESS'"
    until("everything has run", lambda: backlog.rows(done) == [ALL], 300)  # the machine may be busy
    for process in replicas:
        process.event("runner_started")
    backlog.drain()
    _judge_the_ledger(backlog)
    _judge_the_marks(backlog.marks())
    assert len(backlog.runners()) > 1, "one process did it all: this says nothing about many"
    for process in replicas:
        assert not process.events("lease_lost")
        assert not process.events("step_failed")


def _judge_the_ledger(cluster: Cluster) -> None:
    runs: defaultdict[object, list[Any]] = defaultdict(list)
    for job, scope, *run in cluster.rows(
        "SELECT job_name, scope_id, started_at, finished_at, plan_time, attempt, status"
        " FROM cronledger.executions",
    ):
        runs[job, scope].append(run)
    assert len(runs) == len(verdict.jobs) * len(SHARDS)
    for of_scope in runs.values():
        assert {(attempt, status) for *_, attempt, status in of_scope} == {(1, "SUCCESS")}
        assert len({plan_time for _, _, plan_time, _, _ in of_scope}) == FIRINGS
        _assert_apart((started, finished) for started, finished, *_ in of_scope)
    assert cluster.rows("SELECT count(*) FROM cronledger.skips") == [0]


def _judge_the_marks(marks: list[Mark]) -> None:
    spans: defaultdict[object, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for mark in marks:
        spans[mark.job, mark.scope][mark.plan_time].append(mark.at)
        assert mark.what == ("start", "end")[len(spans[mark.job, mark.scope][mark.plan_time]) - 1]
    assert len(marks) == 2 * ALL
    assert len(spans) == len(verdict.jobs) * len(SHARDS)
    for of_scope in spans.values():
        assert len(of_scope) == FIRINGS
        _assert_apart((start, end) for start, end in of_scope.values())


def _assert_apart(intervals: Iterable[tuple[Any, Any]]) -> None:
    """No two of [start, end) overlap."""
    for (_, end), (start, _) in pairwise(sorted(intervals)):
        assert end <= start
