"""Eight processes, 2,000 executions, 200 (job, scope): two witnesses say that none overlapped."""

import json
import signal
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cronledger.sources.apply import apply
from cronledger.testing import Travel
from tests.cluster.support.harness import Process
from tests.cluster.support.marks import VARIABLE, read
from tests.cluster.support.overlap_jobs import FIRINGS, SCOPES, app
from tests.processes import clean_environ
from tests.waiting import until

pytestmark = pytest.mark.slow


PROCESSES = 8
ALL = len(app.jobs) * len(SCOPES) * FIRINGS


@pytest.fixture
def backlog(database_url: str) -> Iterator[psycopg.Connection]:
    """An outage of ten minutes has just ended: each (job, scope) has ten plan_times to catch up."""
    clock = Travel(database_url)
    start = (clock.now() + timedelta(days=1)).replace(hour=12, minute=0, second=5, microsecond=0)
    clock.travel(to=start)
    end = start + timedelta(minutes=FIRINGS)
    bounded = [job.model_copy(update={"ends_at": end}) for job in app.jobs.values()]
    apply(database_url, bounded, source="verdict")
    clock.travel(to=end)
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection
    clock.close()


@pytest.fixture
def replicas(database_url: str, tmp_path: Path) -> Iterator[list[Process]]:
    environ = clean_environ() | {VARIABLE: str(tmp_path / "marks")}
    settings = json.dumps({"apply": False, "slots": 10})
    arguments = [database_url, "tests.cluster.support.overlap_jobs:app", settings]
    started = [Process(arguments, tmp_path / f"replica-{n}.log", environ) for n in range(PROCESSES)]
    yield started
    for process in started:
        process.kill()


def test_i7_two_thousand_executions_of_eight_processes_never_overlap(
    backlog: psycopg.Connection, replicas: list[Process], tmp_path: Path
) -> None:
    def ended() -> bool:
        assert all(process.popen.poll() is None for process in replicas), "a replica has died"
        done = "SELECT count(*) FROM cronledger.executions WHERE status = 'SUCCESS'"
        return bool(_rows(backlog, done) == [(ALL,)])

    until("everything has run", ended, 300)  # the machine has other work, too
    for process in replicas:
        process.signal(signal.SIGTERM)
    assert [process.wait() for process in replicas] == [0] * PROCESSES
    _judge_the_ledger(backlog)
    _judge_the_marks((tmp_path / "marks").read_text())
    workers = _rows(backlog, "SELECT count(DISTINCT runner_id) FROM cronledger.executions")
    assert workers[0][0] > 1, "one process did it all: this says nothing about many"
    for process in replicas:
        assert not process.events("lease_lost")
        assert not process.events("step_failed")


def _judge_the_ledger(connection: psycopg.Connection) -> None:
    runs: defaultdict[object, list[Any]] = defaultdict(list)
    for job, scope, *run in _rows(
        connection,
        "SELECT job_name, scope_id, started_at, finished_at, plan_time, attempt, status"
        " FROM cronledger.executions",
    ):
        runs[job, scope].append(run)
    assert len(runs) == len(app.jobs) * len(SCOPES)
    for of_scope in runs.values():
        assert {(attempt, status) for *_, attempt, status in of_scope} == {(1, "SUCCESS")}
        assert len({plan_time for _, _, plan_time, _, _ in of_scope}) == FIRINGS
        _assert_apart((started, finished) for started, finished, *_ in of_scope)
    assert _rows(connection, "SELECT count(*) FROM cronledger.skips") == [(0,)]


def _judge_the_marks(text: str) -> None:
    marks = read(text)
    spans: defaultdict[object, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for mark in marks:
        spans[mark.job, mark.scope][mark.plan_time].append(mark.at)
        assert mark.what == ("start", "end")[len(spans[mark.job, mark.scope][mark.plan_time]) - 1]
    assert len(marks) == 2 * ALL
    assert len(spans) == len(app.jobs) * len(SCOPES)
    for of_scope in spans.values():
        assert len(of_scope) == FIRINGS
        _assert_apart((start, end) for start, end in of_scope.values())


def _assert_apart(intervals: Iterable[tuple[Any, Any]]) -> None:
    """No two of [start, end) overlap."""
    for (_, end), (start, _) in pairwise(sorted(intervals)):
        assert end <= start


def _rows(connection: psycopg.Connection, statement: str) -> Sequence[Any]:
    return connection.execute(statement.encode()).fetchall()
