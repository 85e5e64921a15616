"""Alerts: which changes of state raise one, and that each change raises exactly one."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from psycopg import errors
from psycopg.types.json import Jsonb

from cronledger import App, Notify
from cronledger.cli import main
from cronledger.explain.doctor_alerts import alerts as check_alerts
from cronledger.explain.findings import DoctorContext
from cronledger.rules.problems import ConfigurationError
from cronledger.settings import Settings
from cronledger.sources.apply import apply
from tests.db.support.engine import Ledger, runners

STEP = timedelta(seconds=30)
STEPPED = "SELECT cronledger_internal.raise_alerts(1000)"


def channel(ledger: Ledger, name: str = "ops", **target: Any) -> None:
    """Add a channel as a row of `jobs`."""
    ledger.job(
        f"alerts.{name}",
        queue="alerts",
        handler="external",
        target={"channel": {"kind": "command", "command": ["true"], **target}},
    )


def rule(*on: str, **more: Any) -> Jsonb:
    return Jsonb([{"channel": "ops", "on": list(on) or ["failed", "recovered"], **more}])


def watched(ledger: Ledger, *on: str, name: str = "job", **more: Any) -> None:
    """Add the channel and an external job with this rule."""
    channel(ledger)
    ledger.job(name, handler="external", notify=rule(*on, **more))


def claimed(ledger: Ledger, job: str = "job") -> tuple[int, str]:
    """Trigger the job, and claim the execution as a worker does."""
    ledger.trigger(job)
    found: tuple[int, str] = ledger.one(
        "SELECT id, lease_token::text FROM claim_next('default', 'w')"
    )
    return found


def end(ledger: Ledger, *outcomes: bool, job: str = "job") -> list[int]:
    """Run the job once for each outcome. True: it succeeds."""
    ended = []
    for succeeds in outcomes:
        lease = claimed(ledger, job)
        call = (
            "finish(%s, %s::uuid)"
            if succeeds
            else "fail(%s, %s::uuid, 'failed', 'broken: no disk')"
        )
        ledger.values(f"SELECT {call}", *lease)
        ended.append(lease[0])
    return ended


def step(ledger: Ledger) -> None:
    """Let time pass until all events are searched for, and raise alerts until none are left."""
    ledger.travel(by=STEP)
    while ledger.one(STEPPED):
        pass


def raised(ledger: Ledger) -> list[tuple[str, str]]:
    return ledger.values("SELECT event, kind FROM alerts ORDER BY id")


def open_states(ledger: Ledger) -> list[str]:
    return ledger.values("SELECT event FROM alert_states ORDER BY event")


OPENED, RECOVERED = ("failed", "opened"), ("recovered", "closed")


def test_a_failure_opens_and_a_success_closes(ledger: Ledger) -> None:
    watched(ledger)
    end(ledger, True, False, False)
    step(ledger)
    assert (raised(ledger), open_states(ledger)) == ([OPENED], ["failed"])
    end(ledger, True, True)
    step(ledger)
    step(ledger)
    assert (raised(ledger), open_states(ledger)) == ([OPENED, RECOVERED], [])


def test_each_edge_between_two_steps_is_raised_in_its_order(ledger: Ledger) -> None:
    watched(ledger)
    ids = end(ledger, False, True, False, False, True, False)
    step(ledger)
    assert raised(ledger) == [OPENED, RECOVERED, OPENED, RECOVERED, OPENED]
    found = ledger.values("SELECT execution_id FROM alerts ORDER BY id")
    assert found == [ids[0], ids[1], ids[2], ids[4], ids[5]]


def test_an_end_is_observed_when_it_becomes_visible(ledger: Ledger) -> None:
    """An independent record that is sorted by finished_at may therefore have other edges."""
    watched(ledger)
    ledger.edit("job", overlap="allow")
    failing, succeeding = claimed(ledger), claimed(ledger)
    with psycopg.connect(ledger.url) as c:
        c.execute("SELECT cronledger.fail(%s, %s::uuid, 'failed', 'no disk')", failing)
        ledger.values("SELECT finish(%s, %s::uuid)", *succeeding)
        step(ledger)
        assert raised(ledger) == []
    step(ledger)
    ends = ledger.values(
        "SELECT status FROM execution_status WHERE job_name = 'job' ORDER BY finished_at"
    )
    assert ends == ["FAILED", "SUCCESS"]
    assert (raised(ledger), open_states(ledger)) == ([OPENED], ["failed"])


def test_failed_opens_after_as_many_failures_in_a_row(ledger: Ledger) -> None:
    watched(ledger, after=3)
    end(ledger, False, False, True, False, False)
    step(ledger)
    assert raised(ledger) == []
    end(ledger, False)
    step(ledger)
    assert raised(ledger) == [OPENED]
    assert ledger.one("SELECT count FROM alert_states") == 3


def test_a_cancellation_neither_counts_nor_resets(ledger: Ledger) -> None:
    watched(ledger, after=2)
    end(ledger, False)
    waiting = ledger.trigger("job")
    ledger.values("SELECT cancel(%s)", waiting)
    step(ledger)
    assert raised(ledger) == []
    end(ledger, False)
    step(ledger)
    assert raised(ledger) == [OPENED]


def test_a_failure_that_is_retried_raises_nothing(ledger: Ledger) -> None:
    watched(ledger)
    ledger.edit(max_attempts=2)
    end(ledger, False)
    step(ledger)
    assert raised(ledger) == []


def test_a_rule_raises_only_its_events(ledger: Ledger) -> None:
    watched(ledger, "failed", name="a")
    ledger.job("b", handler="external", notify=rule("recovered"))
    end(ledger, False, True, job="a")
    end(ledger, False, True, job="b")
    step(ledger)
    found = ledger.values("SELECT job_name, event, kind FROM alerts ORDER BY job_name, id")
    assert found == [("a", *OPENED), ("b", *RECOVERED)]


def test_of_several_rules_for_an_event_and_a_channel_the_first_one_holds(
    ledger: Ledger,
) -> None:
    channel(ledger)
    first = {"channel": "ops", "on": ["failed"], "after": 2}
    ledger.job("job", handler="external", notify=Jsonb([first, {"channel": "ops"}]))
    end(ledger, False)
    step(ledger)
    assert raised(ledger) == []
    end(ledger, False, True)
    step(ledger)
    assert raised(ledger) == [OPENED]


def test_what_failed_before_the_rule_raises_nothing(ledger: Ledger) -> None:
    ledger.job(handler="external")
    end(ledger, False)
    channel(ledger)
    ledger.edit(notify=rule())
    step(ledger)
    assert raised(ledger) == []


def test_a_paused_job_raises_nothing_until_its_resume(ledger: Ledger) -> None:
    watched(ledger, remind="1 minute")
    ledger.job("other", handler="external", notify=rule())
    first, second = claimed(ledger), claimed(ledger, "other")
    ledger.values("SELECT pause('job')")
    ledger.values("SELECT pause('other')")
    ledger.values("SELECT fail(%s, %s::uuid, 'failed', 'broken')", *first)
    ledger.values("SELECT fail(%s, %s::uuid, 'failed', 'broken')", *second)
    step(ledger)
    assert raised(ledger) == []
    ledger.values("SELECT resume('job')")
    step(ledger)
    assert ledger.values("SELECT event, kind, job_name FROM alerts") == [(*OPENED, "job")]
    ledger.values("SELECT pause('job')")
    ledger.travel(by=timedelta(hours=1))
    step(ledger)
    assert raised(ledger) == [OPENED]


def test_a_reminder_is_raised_each_time_remind_has_passed(ledger: Ledger) -> None:
    watched(ledger, remind="4 hours")
    end(ledger, False)
    step(ledger)
    for _ in range(2):
        ledger.travel(by=timedelta(hours=3))
        step(ledger)
        before = len(raised(ledger))
        ledger.travel(by=timedelta(hours=1))
        step(ledger)
        assert len(raised(ledger)) == before + 1
    assert raised(ledger) == [OPENED, ("failed", "reminder"), ("failed", "reminder")]


def test_the_end_of_a_rule_closes_its_states_silently(ledger: Ledger) -> None:
    channel(ledger)
    for name in ("retired", "deleted", "edited"):
        ledger.job(name, handler="external", notify=rule())
        end(ledger, False, job=name)
    step(ledger)
    assert open_states(ledger) == ["failed"] * 3
    ledger.values("SELECT retire('retired')")
    ledger.values("DELETE FROM jobs WHERE name = 'deleted'")
    ledger.edit("edited", notify=None)
    step(ledger)
    assert (raised(ledger), open_states(ledger)) == ([OPENED] * 3, [])


def test_an_overdue_execution_opens_and_its_start_closes(ledger: Ledger) -> None:
    watched(ledger, "overdue")
    ledger.trigger("job")
    step(ledger)
    assert raised(ledger) == []  # within grace
    ledger.travel(by=timedelta(minutes=2))
    step(ledger)
    step(ledger)
    assert raised(ledger) == [("overdue", "opened")]
    assert "no worker has claimed it yet" in ledger.one("SELECT summary FROM alerts")
    ledger.values("SELECT id FROM claim_next('default', 'w')")
    step(ledger)
    assert raised(ledger) == [("overdue", "opened"), ("overdue", "closed")]


def test_an_expired_lease_opens_overdue_and_the_end_closes(ledger: Ledger) -> None:
    watched(ledger, "overdue")
    ledger.edit("job", allow_stale_reentry=True)
    lease = claimed(ledger)
    step(ledger)
    ledger.travel(by=STEP)
    step(ledger)
    assert raised(ledger) == []  # the lease ended within grace
    ledger.travel(by=timedelta(minutes=1))
    step(ledger)
    (summary,) = ledger.values("SELECT summary FROM alerts")
    assert summary.startswith("job has not ended: its lease ended at ")
    assert summary.endswith("; no worker has claimed it again yet")
    ledger.values("SELECT finish(%s, %s::uuid)", *lease)
    step(ledger)
    assert raised(ledger) == [("overdue", "opened"), ("overdue", "closed")]


def started(ledger: Ledger, seconds: int, ago: str = "3 min") -> None:
    """Insert the SUCCESS of a scheduled execution that started so long after it was due."""
    ledger.travel(by=timedelta(minutes=5))
    ledger.values(
        "INSERT INTO executions (job_name, scope_kind, scope_id, plan_time, status, trigger,"
        " revision, queue, due_at, attempt, max_attempts, lease_token, started_at, finished_at,"
        " duration_ms, changed_xact) SELECT 'job', 'global', 'global', at, 'SUCCESS', 'schedule',"
        " 1, 'default', at, 1, 1, gen_random_uuid(), at + %s * interval '1 s',"
        " db_now(), 1, pg_current_xact_id() FROM (SELECT db_now() - %s::interval AS at) t",
        seconds, ago,
    )  # fmt: skip


def test_a_late_start_opens_and_a_start_in_time_closes(ledger: Ledger) -> None:
    watched(ledger, "late")
    for seconds in (60, 61, 90, 60):  # the last instant of grace is in time
        started(ledger, seconds)
        step(ledger)
    assert raised(ledger) == [("late", "opened"), ("late", "closed")]


def test_an_earlier_start_in_time_that_ends_later_closes_nothing(ledger: Ledger) -> None:
    watched(ledger, "late")
    started(ledger, 90)
    step(ledger)
    started(ledger, 0, ago="1 hour")
    step(ledger)
    assert raised(ledger) == [("late", "opened")]
    started(ledger, 0)
    step(ledger)
    assert raised(ledger) == [("late", "opened"), ("late", "closed")]


def skip(ledger: Ledger, reason: str, scope: str = "global") -> None:
    ledger.travel(by=timedelta(minutes=5))
    kind = "global" if scope == "global" else "shard"
    ledger.values(
        "INSERT INTO skips (job_name, scope_kind, scope_id, from_plan_time, through_plan_time,"
        " count, reason, revision)"
        " VALUES ('job', %s, %s, db_now(), db_now(), 1, %s, 1)", kind, scope, reason,
    )  # fmt: skip


GROWS = (
    "UPDATE skips SET through_plan_time = db_now(), count = count + 1,"
    " changed_xact = pg_current_xact_id()"
)


def test_a_skip_opens_and_the_next_run_closes(ledger: Ledger) -> None:
    watched(ledger, "skipped")
    skip(ledger, "missed")
    step(ledger)
    ledger.values(GROWS)
    step(ledger)
    assert raised(ledger) == [("skipped", "opened")]
    assert ledger.one("SELECT count FROM alert_states") == 2
    started(ledger, 0)
    step(ledger)
    step(ledger)
    assert raised(ledger) == [("skipped", "opened"), ("skipped", "closed")]
    skip(ledger, "overlap")
    step(ledger)
    assert raised(ledger)[2:] == [("skipped", "opened")]


def test_by_default_a_job_that_does_not_run_raises_an_alert(ledger: Ledger) -> None:
    channel(ledger)
    ledger.job("job", handler="external", notify=Jsonb([{"channel": "ops"}]))
    skip(ledger, "overlap")
    step(ledger)
    ledger.values(GROWS)
    step(ledger)
    assert raised(ledger) == []  # a single overlap or two are normal
    ledger.values(GROWS)
    step(ledger)
    assert raised(ledger) == [("skipped", "opened")]
    assert ledger.one("SELECT count FROM alert_states") == 3
    started(ledger, 0)
    step(ledger)
    skip(ledger, "missed")
    step(ledger)
    skipped = [("skipped", "opened"), ("skipped", "closed"), ("skipped", "opened")]
    assert raised(ledger) == skipped
    ledger.trigger("job")
    ledger.travel(by=timedelta(minutes=2))
    step(ledger)
    assert raised(ledger)[3:] == [("overdue", "opened")]


async def test_a_range_of_skips_that_a_replica_extends_is_observed_again(
    ledger: Ledger, database_url: str
) -> None:
    channel(ledger)
    ledger.job(
        "job", schedule="* * * * *", overlap="skip", stale_timeout="1 h",
        notify=Jsonb([{"channel": "ops"}]),
    )  # fmt: skip
    counts = [0]
    async with runners(database_url, {}) as (one,):
        while counts[-1] < 3:
            assert raised(ledger) == []
            ledger.travel(by=timedelta(minutes=1))
            await one.settle()
            step(ledger)
            counts.append(ledger.one("SELECT coalesce(sum(count), 0) FROM skips"))
    assert counts[-2] > 0
    assert ledger.one("SELECT count(*) FROM skips") == 1
    assert raised(ledger) == [("skipped", "opened")]
    assert ledger.one("SELECT count FROM alert_states") == counts[-1]


def test_a_step_reads_no_scope_without_a_new_skip(ledger: Ledger) -> None:
    """Each job with notify has the event, and a job may have 100,000 scopes."""
    channel(ledger)
    scopes = [f"s{number}" for number in range(200)]
    ledger.job(
        "job", handler="external", scope_kind="shard", scopes=scopes,
        notify=Jsonb([{"channel": "ops"}]),
    )  # fmt: skip
    skip(ledger, "missed", "s1")
    step(ledger)
    assert raised(ledger) == [("skipped", "opened")]
    # Without statistics, PostgreSQL 15 finds parked schedules by the key of a job.
    ledger.values("ANALYZE schedules")
    ledger.travel(by=STEP)
    with psycopg.connect(ledger.url) as c:
        c.execute(STEPPED)
        (read,) = (
            c.execute(
                "SELECT sum(seq_tup_read + idx_tup_fetch)::int FROM pg_stat_xact_user_tables"
                " WHERE relname IN ('schedules', 'skips', 'tracked_states')"
            ).fetchone()
            or ()
        )
    assert read < len(scopes) / 2


def test_skips_that_were_intended_raise_nothing(ledger: Ledger) -> None:
    watched(ledger, "skipped")
    for reason in ("paused", "retired", "superseded"):
        skip(ledger, reason)
        step(ledger)
        assert raised(ledger) == [], reason


def scopes(ledger: Ledger, *ids: str) -> None:
    """A scope provider has returned these scopes."""
    ledger.values("SELECT FROM cronledger_internal.set_scopes('job', 'shard', %s)", list(ids))


def test_a_skip_of_a_scope_that_retires_is_raised_once(ledger: Ledger) -> None:
    channel(ledger)
    ledger.job("job", handler="external", scope_kind="shard", notify=rule("skipped"))
    scopes(ledger, "a", "b")
    skip(ledger, "overlap", scope="a")
    step(ledger)
    assert raised(ledger) == [("skipped", "opened")]
    for wanted in ("b",), ("a", "b"):
        scopes(ledger, *wanted)
        for _ in range(3):
            step(ledger)
    assert raised(ledger) == [("skipped", "opened")]
    assert open_states(ledger) == []
    skip(ledger, "overlap", scope="a")
    step(ledger)
    assert raised(ledger) == [("skipped", "opened")] * 2


def test_an_execution_of_a_retired_scope_that_waits_raises_nothing_twice(
    ledger: Ledger,
) -> None:
    channel(ledger)
    ledger.job("job", handler="external", scope_kind="shard", notify=rule("overdue"))
    scopes(ledger, "a", "b")
    ledger.trigger("job", scope="a")
    ledger.travel(by=timedelta(minutes=5))
    step(ledger)
    scopes(ledger, "b")
    for _ in range(3):
        step(ledger)
    assert raised(ledger) == [("overdue", "opened")]


@pytest.mark.parametrize(
    ("event", "after_each"), [("overdue", [20, 40]), ("skipped", list(range(1, 45)))]
)
def test_many_scopes_are_observed_by_several_transactions(
    ledger: Ledger, event: str, after_each: list[int]
) -> None:
    channel(ledger)
    ledger.job("job", handler="external", scope_kind="shard", notify=rule(event))
    ids = [f"s{n}" for n in range(45)]
    scopes(ledger, *ids)
    for scope in ids:
        if event == "overdue":
            ledger.trigger("job", scope=scope)
        else:
            skip(ledger, "overlap", scope=scope)
    ledger.travel(by=timedelta(minutes=5))
    found = []
    while ledger.one("SELECT cronledger_internal.raise_alerts(1)"):
        found.append(ledger.one("SELECT count(*) FROM alerts"))
    assert found == after_each
    assert ledger.values("SELECT scope_id FROM alerts ORDER BY scope_id") == sorted(ids)


def many_open(ledger: Ledger, *on: str, **more: Any) -> list[str]:
    """Open a state of the job `job` in each of 45 scopes."""
    channel(ledger)
    ledger.job("job", handler="external", scope_kind="shard", notify=rule(*on, **more))
    ids = [f"s{n:02}" for n in range(45)]
    scopes(ledger, *ids)
    for scope in ids:
        ledger.trigger("job", scope=scope)
        lease = ledger.one("SELECT id, lease_token::text FROM claim_next('default', 'w')")
        ledger.values("SELECT fail(%s, %s::uuid, 'failed', 'no disk')", *lease)
    return ids


def growth(ledger: Ledger, counted: str) -> list[int]:
    """How much each transaction adds, which observes little more than one change."""
    before, grown = ledger.one(counted), []
    while ledger.one("SELECT cronledger_internal.raise_alerts(1)"):
        now = ledger.one(counted)
        grown.append(now - before)
        before = now
    return [*grown, ledger.one(counted) - before]


def test_many_reminders_are_written_by_several_transactions(ledger: Ledger) -> None:
    ids = many_open(ledger, remind="4 hours")
    step(ledger)
    assert open_states(ledger) == ["failed"] * 45
    ledger.travel(by=timedelta(hours=4, minutes=1))
    reminders = "SELECT count(*) FROM alerts WHERE kind = 'reminder'"
    assert growth(ledger, reminders) == [20, 20, 5]
    found = ledger.values("SELECT scope_id FROM alerts WHERE kind = 'reminder' ORDER BY 1")
    assert found == ids


def test_many_states_are_settled_after_a_resume_by_several_transactions(
    ledger: Ledger,
) -> None:
    ids = many_open(ledger)
    ledger.values("SELECT pause('job')")
    step(ledger)
    assert open_states(ledger) == []
    ledger.values("SELECT resume('job')")
    ledger.travel(by=STEP)
    assert growth(ledger, "SELECT count(*) FROM alerts") == [20, 20, 5]
    assert ledger.values("SELECT scope_id FROM alerts ORDER BY 1") == ids


def test_an_edit_loses_no_skip_that_was_not_observed(ledger: Ledger) -> None:
    watched(ledger, "skipped")
    skip(ledger, "overlap")
    ledger.travel(by=timedelta(seconds=1))
    ledger.edit(grace="2 min")
    ledger.values("SELECT pause('job')")
    ledger.values("SELECT resume('job')")
    step(ledger)
    assert raised(ledger) == [("skipped", "opened")]


def test_a_skip_from_before_its_rule_raises_nothing(ledger: Ledger) -> None:
    watched(ledger, "failed")
    skip(ledger, "overlap")
    ledger.travel(by=timedelta(seconds=1))
    ledger.edit(notify=rule("failed", "skipped"))
    step(ledger)
    assert raised(ledger) == []


def test_a_worker_that_claims_nothing_more_is_not_lost(ledger: Ledger) -> None:
    channel(ledger, on_ledger=["runner_lost"])
    ledger.job("job", handler="external")
    end(ledger, True)
    for _ in range(8):  # without a gap, after which each runner gets its whole time again
        ledger.travel(by=timedelta(seconds=15))
        assert not ledger.one(STEPPED)
    assert ledger.values("SELECT state FROM runner_status") == ["dead"]
    assert raised(ledger) == []


def test_a_runner_that_is_lost_opens_and_its_return_closes(ledger: Ledger) -> None:
    channel(ledger, on_ledger=["runner_lost"])
    soon = ledger.now() + timedelta(minutes=1)
    ledger.runner(stale_after=soon)
    ledger.runner("r2", state="stopped", stale_after=soon)
    for _ in range(3):
        ledger.travel(by=timedelta(seconds=15))
        assert not ledger.one(STEPPED)
    assert raised(ledger) == []
    for _ in range(2):
        ledger.travel(by=timedelta(seconds=15))
        assert not ledger.one(STEPPED)
    assert ledger.values("SELECT event, kind, runner_id FROM alerts") == [
        ("runner_lost", "opened", "r1")
    ]
    ledger.values("UPDATE runners SET stale_after = db_now() + interval '1 h' WHERE id = 'r1'")
    step(ledger)
    assert raised(ledger)[1:] == [("runner_lost", "closed")]


@pytest.mark.parametrize("outage", ["an hour", "a restart"])
def test_time_in_which_no_runner_could_check_in_loses_no_runner(
    ledger: Ledger, outage: str
) -> None:
    channel(ledger, on_ledger=["runner_lost"])
    for name in ("lost before", "lost", "returns"):
        ledger.runner(name, stale_after=ledger.now() + timedelta(seconds=45))
    seen = "UPDATE runners SET heartbeat_at = db_now(), stale_after = db_now() + interval '45 s'"

    def watch(seconds: int) -> list[str]:
        """The runners that were lost, or have returned, meanwhile."""
        before = ledger.one("SELECT count(*) FROM alerts")
        for _ in range(seconds // 15):
            ledger.travel(by=timedelta(seconds=15))
            assert not ledger.one(STEPPED)
        return ledger.values("SELECT runner_id FROM alerts ORDER BY id OFFSET %s", before)

    for _ in range(4):
        ledger.values(seen + " WHERE id <> 'lost before'")
        watch(15)
    assert ledger.values("SELECT runner_id FROM alerts") == ["lost before"]
    if outage == "a restart":
        ledger.travel(by=timedelta(seconds=15))
        ledger.values("UPDATE alert_progress SET server_start = '2001-01-01Z'")
        ledger.values("UPDATE runners SET stale_after = db_now() - interval '1 s'")
    else:
        ledger.travel(by=timedelta(hours=1))
    assert watch(30) == []
    ledger.values(seen + " WHERE id = 'returns'")
    assert watch(30) == ["lost"]


def test_a_leap_of_the_clock_that_is_taken_back_delays_no_delivery_and_no_reminder(
    ledger: Ledger,
) -> None:
    watched(ledger, remind="1 hour")
    deliveries = "SELECT count(*) FROM executions WHERE queue = 'alerts'"
    ledger.travel(by=timedelta(days=2))
    end(ledger, False)
    step(ledger)
    assert ledger.one(deliveries) == 1
    ledger.travel(by=timedelta(days=-2))
    end(ledger, True)
    step(ledger)
    assert (len(raised(ledger)), ledger.one(deliveries)) == (2, 2)
    ledger.travel(by=timedelta(days=2))
    end(ledger, False)
    step(ledger)
    ledger.travel(by=timedelta(days=-2))
    step(ledger)
    assert raised(ledger)[-1] == ("failed", "reminder")


def test_notify_that_was_declared_in_a_leap_of_the_clock_misses_nothing_after_it(
    ledger: Ledger,
) -> None:
    ledger.travel(by=timedelta(days=2))
    watched(ledger, "failed", "skipped")
    ledger.travel(by=timedelta(days=-2))
    end(ledger, False)
    skip(ledger, "missed")
    step(ledger)
    assert sorted(raised(ledger)) == [OPENED, ("skipped", "opened")]


def test_a_runner_that_fails_opens_and_its_recovery_closes(ledger: Ledger) -> None:
    channel(ledger, on_ledger=["runner_failing"])
    ledger.runner(diagnostics={"failing": {"check_in": "x"}, "failed": {}})
    step(ledger)
    assert raised(ledger) == []  # one error is none that lasts
    update = "UPDATE runners SET diagnostics = jsonb_build_object('failed', %s::jsonb)"
    ledger.values(update, '{"finisher": "DiskFull: no space"}')
    step(ledger)
    step(ledger)
    assert raised(ledger) == [("runner_failing", "opened")]
    summary = ledger.one("SELECT summary FROM alerts")
    assert summary == "runner r1 on h is failing: finisher: DiskFull: no space"
    ledger.values(update, "{}")
    step(ledger)
    assert raised(ledger)[1:] == [("runner_failing", "closed")]


def verified(ledger: Ledger, violations: int, job: str | None = None) -> None:
    run = ledger.one("SELECT cronledger_internal.begin_verification(%s, NULL, NULL, '1')", job)
    ledger.values(
        "SELECT cronledger_internal.end_verification(%s, 'finished', NULL, NULL, db_now(), 1, 1, 1,"
        " 1, 0, %s, 0, '{}')", run, violations,
    )  # fmt: skip


def test_violations_open_until_a_later_run_has_none_there(ledger: Ledger) -> None:
    channel(ledger, on_ledger=["violation"])
    ledger.job("job", handler="external")
    verified(ledger, 0)
    verified(ledger, 2)
    step(ledger)
    assert raised(ledger) == [("violation", "opened")]
    verified(ledger, 0, "job")
    step(ledger)
    assert open_states(ledger) == ["violation"]
    verified(ledger, 0)
    step(ledger)
    assert raised(ledger) == [("violation", "opened"), ("violation", "closed")]


def test_violations_of_several_runs_hold_until_one_run_has_checked_all(ledger: Ledger) -> None:
    channel(ledger, on_ledger=["violation"])
    ledger.job("a", handler="external")
    ledger.job("b", handler="external")
    verified(ledger, 2, "a")
    verified(ledger, 1, "b")
    step(ledger)
    verified(ledger, 0, "b")
    step(ledger)
    assert open_states(ledger) == ["violation"]
    verified(ledger, 0)
    step(ledger)
    assert raised(ledger) == [("violation", "opened"), ("violation", "closed")]


def write_end(c: psycopg.Connection[Any], execution: int, status: str) -> None:
    """End an execution without the lock of its schedule, so that others can go on."""
    c.execute(
        "UPDATE cronledger.executions SET status = %s, error_code = 'failed', duration_ms = 1,"
        " finished_at = cronledger.db_now(), changed_xact = pg_current_xact_id()"
        " WHERE id = %s", [status, execution],
    )  # fmt: skip


def test_a_long_transaction_elsewhere_delays_no_alert(ledger: Ledger, database_url: str) -> None:
    watched(ledger)
    ledger.edit(overlap="allow")
    with psycopg.connect(database_url) as other, psycopg.connect(database_url) as ending:
        other.execute("SELECT pg_current_xact_id()")
        end(ledger, False)
        # This end becomes visible after changes with greater numbers were observed.
        lease = claimed(ledger)
        write_end(ending, lease[0], "SUCCESS")
        end(ledger, False)
        step(ledger)
        assert raised(ledger) == [OPENED]
        ending.commit()
        step(ledger)
        step(ledger)
        assert raised(ledger) == [OPENED, RECOVERED]
        other.commit()
    step(ledger)
    assert raised(ledger) == [OPENED, RECOVERED]


@pytest.mark.parametrize("most", [1, 3])
def test_steps_of_any_size_observe_each_change_once(
    ledger: Ledger, database_url: str, most: int
) -> None:
    watched(ledger, after=9999)
    ledger.edit(overlap="allow")
    with psycopg.connect(database_url) as open_:
        for failures in range(1, 6):
            end(ledger, False, False)
            lease = claimed(ledger)
            if failures == 2:
                write_end(open_, lease[0], "FAILED")
            else:
                ledger.values("SELECT fail(%s, %s::uuid, 'failed', 'broken')", *lease)
            while ledger.one("SELECT cronledger_internal.raise_alerts(%s)", most):
                pass
        assert ledger.one("SELECT count FROM tracked_states") == 14
        open_.commit()
    for _ in range(3):
        ledger.one("SELECT cronledger_internal.raise_alerts(%s)", most)
    assert ledger.one("SELECT count FROM tracked_states") == 15


def test_a_restored_dump_with_greater_numbers_is_not_read_in_each_step(
    ledger: Ledger, database_url: str
) -> None:
    watched(ledger, "failed", "deadline")
    started(ledger, 0)
    ledger.values(
        "INSERT INTO executions (job_name, scope_kind, scope_id, plan_time, status, trigger,"
        " revision, queue, due_at, attempt, max_attempts, lease_token, started_at, finished_at,"
        " duration_ms, error_code, changed_xact)"
        " SELECT job_name, scope_kind, scope_id, plan_time - n * interval '1 ms', 'FAILED',"
        " trigger, revision, queue, due_at, 1, 1, gen_random_uuid(), started_at, finished_at,"
        " 1, 'failed', '1000000000000' FROM executions, generate_series(1, 300) n"
    )
    step(ledger)
    end(ledger, False)
    with psycopg.connect(database_url) as c:
        c.execute(STEPPED)
        (read,) = (
            c.execute(
                "SELECT sum(seq_tup_read + idx_tup_fetch)::int FROM pg_stat_xact_user_tables"
                " WHERE relname LIKE 'executions%'"
            ).fetchone()
            or ()
        )
    assert raised(ledger) == [OPENED]
    assert read < 100


def test_one_process_at_a_time_raises_alerts_and_another_takes_over(
    ledger: Ledger, database_url: str
) -> None:
    watched(ledger)
    end(ledger, False)
    with psycopg.connect(database_url) as other:
        other.execute(STEPPED)
        assert ledger.one(STEPPED) is None
        other.rollback()  # as after a crash: states, alerts, deliveries and cursor together
    assert raised(ledger) == []
    assert ledger.statuses("alerts.ops") == []
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: call(database_url), range(10)))
    assert (raised(ledger), ledger.statuses("alerts.ops")) == ([OPENED], ["PENDING"])


def call(url: str) -> None:
    with psycopg.connect(url) as c:
        c.execute(STEPPED)


def test_alerts_are_delivered_in_groups_of_a_minute(ledger: Ledger) -> None:
    watched(ledger)
    ledger.edit(owner="data", labels=Jsonb({"team": "bi"}))
    (failed,) = end(ledger, False)
    step(ledger)
    end(ledger, True, False)
    step(ledger)
    assert ledger.statuses("alerts.ops") == ["PENDING"]
    ledger.travel(by=timedelta(minutes=1))
    step(ledger)
    first, second = ledger.values(
        "SELECT payload FROM executions WHERE job_name = 'alerts.ops' ORDER BY id"
    )
    assert [len(each["alerts"]) for each in (first, second)] == [1, 2]
    assert first["channel"] == "ops"
    assert first["ledger"] == str(ledger.one("SELECT ledger_id FROM identity"))
    (alert,) = first["alerts"]
    assert alert["details"].pop("duration_ms") >= 0
    assert {key: alert[key] for key in alert.keys() - {"id", "at", "since", "plan_time"}} == {
        "event": "failed", "kind": "opened", "job": "job", "scope_kind": "global",
        "scope": "global", "owner": "data", "labels": {"team": "bi"}, "runner": None,
        "execution_id": failed, "count": 1, "summary": "job failed: broken: no disk",
        "details": {
            "status": "FAILED", "error_code": "failed", "error_msg": "broken: no disk",
            "output": None, "attempt": 1,
        },
    }  # fmt: skip
    assert ledger.one("SELECT count(*) FROM alerts WHERE delivery_id IS NULL") == 0


def test_more_than_500_alerts_make_several_deliveries(ledger: Ledger) -> None:
    watched(ledger)
    end(ledger, False)
    step(ledger)
    ledger.travel(by=timedelta(minutes=1))
    ledger.values(
        "INSERT INTO raised_alerts (at, event, kind, channel, since, count, summary, details)"
        " SELECT db_now(), 'failed', 'opened', 'ops', db_now(), 1, 'x', '{}'"
        " FROM generate_series(1, 1001)"
    )
    step(ledger)
    found = ledger.values(
        "SELECT jsonb_array_length(payload -> 'alerts') FROM executions"
        " WHERE job_name = 'alerts.ops' ORDER BY id"
    )
    assert found == [1, 500, 500, 1]


def test_deliveries_raise_no_alerts(ledger: Ledger) -> None:
    watched(ledger)
    end(ledger, False)
    step(ledger)
    lease = ledger.one("SELECT id, lease_token::text FROM claim_next('alerts', 'w')")
    ledger.values("SELECT fail(%s, %s::uuid, 'failed', 'receiver is down')", *lease)
    step(ledger)
    assert raised(ledger) == [OPENED]
    assert ledger.one("SELECT delivery_status FROM alerts") == "FAILED"
    with pytest.raises(psycopg.Error, match="whose jobs raise no alerts"):
        ledger.edit("alerts.ops", notify=rule())


def test_alerts_are_pruned_with_executions(ledger: Ledger) -> None:
    watched(ledger)
    end(ledger, False)
    step(ledger)
    assert ledger.one("SELECT cronledger_internal.prune_alerts(10)") == 0
    ledger.values("UPDATE pruned SET through = db_now()")
    assert ledger.one("SELECT cronledger_internal.prune_alerts(10)") == 1
    assert raised(ledger) == []


BAD_RULES: list[tuple[list[Any], str]] = [
    ([{"channel": "a b"}], 'notify has channel = "a b"'),
    ([{"on": ["failed"]}], "notify has channel = nothing"),
    (["ops"], 'notify contains "ops"'),
    ([{"channel": "ops", "on": ["broken"]}], r'notify has on = \["broken"\]'),
    ([{"channel": "ops", "on": []}], r"notify has on = \[\]"),
    ([{"channel": "ops", "after": 0}], "notify has after = 0"),
    ([{"channel": "ops", "after": "3"}], 'notify has after = "3"'),
    ([{"channel": "ops", "remind": "soon"}], 'notify has remind = "soon"'),
    ([{"channel": "ops", "remind": "1 s"}], 'notify has remind = "1 s"'),
    ([{"channel": "ops", "when": 1}], "notify has the unknown key when"),
    ([{"channel": "ops"}] * 21, "notify has 21 rules; the limit is 20"),
]


def test_a_bad_rule_is_refused_by_name(ledger: Ledger) -> None:
    for notify, message in BAD_RULES:
        with pytest.raises(psycopg.Error, match=message):
            ledger.job(notify=Jsonb(notify))


def test_an_app_declares_rules(ledger: Ledger, database_url: str) -> None:
    channel(ledger)
    app = App("shop")
    notify = [Notify(channel="ops", after=3, remind=timedelta(hours=4))]
    app.job(name="report", notify=notify)(lambda: None)
    app.job(name="tidy", notify="ops")(lambda: None)
    for _ in range(2):
        apply(database_url, list(app.jobs.values()), source="shop")
    rows = "SELECT revision, notify FROM jobs WHERE source = 'shop' ORDER BY name"
    assert ledger.values(rows) == [
        (1, [{"channel": "ops", "on": None, "after": 3, "remind": "4h"}]),
        (1, [{"channel": "ops", "on": None, "after": 1, "remind": None}]),
    ]
    with pytest.raises(ConfigurationError, match=r"jobs\.bad\.notify"):
        app.job(name="bad", notify=[{"channel": "ops", "on": ["broken"]}])(print)  # type: ignore[list-item]


def test_the_command_lists_alerts_and_open_states(ledger: Ledger, database_url: str) -> None:
    watched(ledger)
    ledger.edit(owner="data")
    end(ledger, False)
    step(ledger)

    def listed(*options: str) -> list[dict[str, Any]]:
        said = CliRunner().invoke(
            main, ["alerts", "--json", *options], env={"CRONLEDGER_DATABASE_URL": database_url}
        )
        assert said.exit_code == 0, said.output
        rows: list[dict[str, Any]] = json.loads(said.stdout)
        return rows

    (alert,) = listed()
    assert (alert["event"], alert["kind"], alert["job_name"]) == ("failed", "opened", "job")
    (state,) = listed("--open", "--owner", "data", "--job", "job")
    assert (state["event"], state["kind"], state["count"]) == ("failed", "open", 1)
    assert listed("--owner", "bi") == []
    end(ledger, True)
    step(ledger)
    assert listed("--open") == []
    assert [row["event"] for row in listed()] == ["recovered", "failed"]


def findings(url: str) -> list[str]:
    """What `doctor` finds wrong with alerts."""
    with psycopg.connect(url, autocommit=True) as c:
        context = DoctorContext(c, Settings(), url)
        return [one.found for one in check_alerts(context) if one.severity != "ok"]


def test_doctor_names_deliveries_that_no_replica_claims(ledger: Ledger, database_url: str) -> None:
    waiting = ["deliveries that have waited for more than 5 minutes: 1"]
    watched(ledger)
    end(ledger, False)
    step(ledger)
    assert findings(database_url) == []
    ledger.travel(by=timedelta(minutes=6))
    assert findings(database_url) == waiting
    for pause, resume in (
        ("pause('alerts.ops')", "resume('alerts.ops')"),
        ("pause_queue('alerts')", "resume_queue('alerts')"),
    ):
        ledger.values(f"SELECT {pause}")
        assert findings(database_url) == []
        ledger.values(f"SELECT {resume}")
        assert findings(database_url) == waiting
    lease = ledger.one("SELECT id, lease_token::text FROM claim_next('alerts', 'w')")
    assert findings(database_url) == []
    ledger.values("SELECT finish(%s, %s::uuid)", *lease)
    assert findings(database_url) == []


def test_doctor_counts_the_deliveries_of_dropped_channels(
    ledger: Ledger, database_url: str
) -> None:
    watched(ledger)
    channel(ledger, "other")
    end(ledger, False)
    step(ledger)
    id = ledger.one("SELECT delivery_id FROM alerts")
    ledger.values("SELECT cancel(%s)", id)  # a person wants that
    assert findings(database_url) == []
    ledger.values("SELECT retry(%s)", id)
    for drop in ("SELECT retire('alerts.ops')", "DELETE FROM jobs WHERE name = 'alerts.ops'"):
        ledger.values("UPDATE jobs SET notify = '[]' WHERE name = 'job'")
        ledger.values(drop)
        assert ledger.one("SELECT status FROM executions WHERE id = %s", id) == "CANCELLED"
        cancelled = ["deliveries of dropped channels, cancelled in the last day: 1"]
        assert findings(database_url) == cancelled
        if "DELETE" in drop:
            channel(ledger)
        else:
            ledger.edit("alerts.ops", retired_at=None)
        assert findings(database_url) == cancelled  # nobody has sent it yet
        ledger.values("SELECT retry(%s)", id)
        assert findings(database_url) == []
    ledger.values("SELECT retire('alerts.ops')")
    ledger.travel(by=timedelta(days=1, minutes=1))
    assert findings(database_url) == []


def test_doctor_names_what_is_not_delivered(ledger: Ledger, database_url: str) -> None:
    def found() -> list[str]:
        return findings(database_url)

    watched(ledger)
    end(ledger, False)
    step(ledger)
    assert found() == []
    lease = ledger.one("SELECT id, lease_token::text FROM claim_next('alerts', 'w')")
    ledger.values("SELECT fail(%s, %s::uuid, 'failed', 'receiver is down')", *lease)
    ledger.values("SELECT retire('alerts.ops')")
    end(ledger, True)
    step(ledger)
    ledger.travel(by=timedelta(minutes=6))
    missing, waiting, failed = found()
    assert "ops (job job)" in missing
    assert waiting == "alerts without a delivery for more than 5 minutes: 1"
    assert failed == "failed deliveries of the last day: 1"


def test_only_the_step_delivers_alerts_that_are_no_test(ledger: Ledger) -> None:
    channel(ledger)
    calls = (
        "enqueue('alerts.ops', payload => %s)",
        "enqueue('alerts.ops', payload => %s, key => 'k')",
        "enqueue_many('alerts.ops', ARRAY['{}', %s]::jsonb[])",
        "trigger('alerts.ops', payload => %s)",
    )
    forged: tuple[Any, ...] = (
        {"event": "test"}, {"event": "failed"}, {"event": ["failed", "test"]}, {}, [{"event": "x"}]
    )  # fmt: skip
    for call in calls:
        for last in forged:
            message = Jsonb({"alerts": [{"event": "test"}, last]})
            if last == {"event": "test"}:
                ledger.values(f"SELECT {call}", message)
                continue
            with pytest.raises(errors.InvalidParameterValue, match="whose event is not test"):
                ledger.values(f"SELECT {call}", message)
