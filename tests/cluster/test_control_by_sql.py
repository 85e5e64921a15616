"""A live replica is steered by another process that has nothing but SQL."""

import time
from collections import Counter
from typing import Any, LiteralString

import pytest
from psycopg import errors

from cronledger.settings import POLL
from tests.cluster.support.harness import Cluster
from tests.marks import first_fast
from tests.waiting import until

# Nothing looks for work by itself within the patience of a test: what is noticed was notified.
LISTENING: dict[str, Any] = {"poll_interval": "60s"}
POLLING: dict[str, Any] = {"pgbouncer": True, "poll_interval": "300ms"}
BOTH = pytest.mark.parametrize("how", first_fast([LISTENING, POLLING]), ids=["listen", "poll"])


def ended(cluster: Cluster, execution_id: int) -> dict[str, Any]:
    """The execution once it has ended for good."""

    def look() -> dict[str, Any] | None:
        (row,) = cluster.rows(
            "SELECT to_jsonb(e) FROM cronledger.executions e WHERE id = %s", execution_id
        )
        over = row["status"] not in ("PENDING", "RUNNING") and row["next_attempt_at"] is None
        return row if over else None

    return until(f"the end of {execution_id}", look)


def success_of(cluster: Cluster, job: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        return next((r for r in cluster.executions("SUCCESS") if r["job_name"] == job), None)

    return until(f"a success of {job}", look)


def write_job(cluster: Cluster, name: str, schedule: str | None) -> None:
    """What runs as `told` runs as `name` too."""
    cluster.rows(
        "INSERT INTO cronledger.jobs (name, schedule, handler, target)"
        " SELECT %s, %s, handler, target FROM cronledger.jobs WHERE name = 'told' RETURNING name",
        name, schedule,
    )  # fmt: skip


def spec_error(cluster: Cluster, job: str) -> str:
    def look() -> str | None:
        (said,) = cluster.rows("SELECT spec_error FROM cronledger.jobs WHERE name = %s", job)
        found: str | None = said
        return found

    return until(f"spec_error of {job}", look)


def test_a_live_replica_is_steered_from_sql(cluster: Cluster) -> None:
    cluster.start("control", **LISTENING)
    (made,) = cluster.rows("SELECT cronledger.trigger('told', payload => '[1]')")
    assert ended(cluster, made)["result"] == {"trigger": "manual", "payload": [1]}
    (made,) = cluster.rows("SELECT cronledger.enqueue('told', payload => '[2]', key => 'k')")
    assert ended(cluster, made)["result"] == {"trigger": "enqueue", "payload": [2]}

    assert cluster.rows("SELECT cronledger.pause('told', 'why', requested_by => 'me')") == [True]
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="it is paused since") as refused:
        cluster.rows("SELECT cronledger.trigger('told')")
    assert refused.value.diag.message_detail == "why"
    (waits,) = cluster.rows("SELECT cronledger.enqueue('told', payload => '[3]')")
    (forced,) = cluster.rows("SELECT cronledger.trigger('told', force => true)")
    assert ended(cluster, forced)["status"] == "SUCCESS"
    (status,) = cluster.rows("SELECT status FROM cronledger.executions WHERE id = %s", waits)
    assert status == "PENDING"
    assert cluster.rows("SELECT cronledger.cancel(%s, 'me')", waits) == ["cancelled"]
    assert cluster.rows("SELECT cronledger.retry(%s, requested_by => 'you')", waits) == ["retried"]
    assert cluster.rows("SELECT cronledger.resume('told')") == [True]
    row = ended(cluster, waits)
    assert row["status"] == "SUCCESS"
    retried = "SELECT requested_by FROM cronledger.audit WHERE verb = 'retry'"
    assert cluster.rows(retried) == ["you"]


@pytest.mark.slow
def test_a_pause_ends_by_itself(cluster: Cluster) -> None:
    cluster.start("control", **POLLING)
    cluster.rows(
        "SELECT cronledger.pause('told', until => cronledger.db_now() + interval '1 second')"
    )
    (waits,) = cluster.rows("SELECT cronledger.enqueue('told')")
    assert ended(cluster, waits)["status"] == "SUCCESS"
    (late,) = cluster.rows(
        "SELECT e.started_at >= r.paused_until FROM cronledger.executions e,"
        " cronledger.job_revisions r WHERE e.id = %s AND r.state = 'paused'", waits
    )  # fmt: skip
    assert late


@pytest.mark.slow
def test_the_handler_is_told_its_trigger(cluster: Cluster) -> None:
    cluster.start("control", **LISTENING)
    cluster.rows("SELECT cronledger.trigger('told')")
    cluster.rows(
        "SELECT cronledger.backfill('told',"
        " ARRAY[date_trunc('second', cronledger.db_now()) - interval '1 hour'])"
    )
    write_job(cluster, "each_second", "* * * * * *")
    success_of(cluster, "each_second")
    until("three", lambda: len({r["trigger"] for r in cluster.executions("SUCCESS")}) == 3)
    told = {r["trigger"]: r["result"]["trigger"] for r in cluster.executions("SUCCESS")}
    assert told == {t: t for t in ("manual", "backfill", "schedule")}


def noticed_after(cluster: Cluster, name: str) -> float:
    """How long it took until a job that was inserted now was planned, in seconds."""
    began = time.monotonic()
    write_job(cluster, name, "0 0 1 1 *")
    until(
        f"{name} is planned",
        lambda: cluster.rows(
            "SELECT next_plan_time FROM cronledger.schedules WHERE job_name = %s"
            " AND next_plan_time IS NOT NULL", name,
        ),
    )  # fmt: skip
    return time.monotonic() - began


@BOTH
def test_jobs_that_sql_writes_are_noticed(cluster: Cluster, how: dict[str, Any]) -> None:
    cluster.start("control", **how)
    write_job(cluster, "written", None)
    cluster.rows(
        "UPDATE cronledger.jobs SET schedule = '@every 1s' WHERE name = 'written' RETURNING name"
    )
    success_of(cluster, "written")
    # Sooner than a replica polls that is told nothing of that.
    assert min(noticed_after(cluster, name) for name in ("a", "b", "c")) < POLL


def test_a_bad_job_shows_its_error_and_hurts_nobody(cluster: Cluster) -> None:
    cluster.start("control", **LISTENING)
    cluster.rows(
        "INSERT INTO cronledger.jobs (name, schedule, handler, target)"
        " VALUES ('bad', '61 * * * *', 'python', '{\"python\": \"x:y\"}'),"
        "        ('shell', '@every 1s', 'command', '{\"command\": \"exit 0\"}') RETURNING name"
    )
    write_job(cluster, "good", "@every 1s")
    success_of(cluster, "good")
    assert "61" in spec_error(cluster, "bad")
    assert "CRONLEDGER_ALLOW_SQL_COMMANDS" in spec_error(cluster, "shell")
    assert {row["job_name"] for row in cluster.executions()} == {"good"}
    cluster.rows(
        "UPDATE cronledger.jobs SET schedule = '@every 1s', target = (SELECT target FROM"
        " cronledger.jobs WHERE name = 'told') WHERE name = 'bad' RETURNING name"
    )
    success_of(cluster, "bad")
    assert cluster.rows("SELECT spec_error FROM cronledger.jobs WHERE name = 'bad'") == [None]


@pytest.mark.slow
def test_commands_from_sql_run_where_they_are_allowed(cluster: Cluster) -> None:
    cluster.start("control", allow_sql_commands=True, **LISTENING)
    cluster.rows(
        "INSERT INTO cronledger.jobs (name, schedule, handler, target)"
        " VALUES ('shell', '@every 1s', 'command', '{\"command\": \"echo hello\"}') RETURNING name"
    )
    assert success_of(cluster, "shell")["output"] == "hello\n"


@pytest.mark.parametrize(
    ("job", "how"),
    first_fast([("long", LISTENING), ("renewed", POLLING)]),
    ids=["notify", "heartbeat"],
)
def test_cancel_reaches_a_running_handler(cluster: Cluster, job: str, how: dict[str, Any]) -> None:
    """`long` is renewed every 20 s, so that only the notification can be in time; the other replica
    hears of none, and renews `renewed` every 5 s."""
    cluster.start("control", **how)
    (made,) = cluster.rows("SELECT cronledger.trigger(%s)", job)
    until("it runs", lambda: cluster.marks("start"))
    # While a heartbeat has the row, the answer is `busy`.
    until("its end is requested", lambda: (
        cluster.rows("SELECT cronledger.cancel(%s, 'me')", made) == ["requested"]
    ))  # fmt: skip

    def look() -> bool:
        return bool(cluster.executions("CANCELLED"))

    until("its end", look)
    (row,) = cluster.executions()
    assert row["cancel_requested_by"] == "me"
    assert not cluster.marks("end")
    at = len(cluster.marks("alive"))
    (again,) = cluster.rows("SELECT cronledger.trigger('told')")
    ended(cluster, again)
    assert len(cluster.marks("alive")) == at


@pytest.mark.slow
def test_live_replicas_run_each_backfilled_plan_time_once(cluster: Cluster) -> None:
    for name in ("one", "two"):
        cluster.start("control", runner_id=name, **LISTENING)
    ask: LiteralString = (
        "SELECT made, left_alone FROM cronledger.backfill('told', ARRAY("
        " SELECT date_trunc('second', s.created_at) - n * interval '1 minute'"
        " FROM cronledger.schedules s, generate_series(1, 40) n WHERE s.job_name = 'told'))"
    )
    assert cluster.rows(ask) == [(40, 0)]
    assert cluster.rows(ask) == [(0, 40)]
    until("all have run", lambda: len(cluster.executions("SUCCESS")) == 40)
    ran = Counter(mark.plan_time for mark in cluster.marks("start"))
    assert (len(ran), set(ran.values())) == (40, {1})
    assert {row["attempt"] for row in cluster.executions()} == {1}
