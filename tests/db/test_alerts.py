"""Alerts: which changes of state raise one, and that each change raises exactly one."""

from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Jsonb

from cronledger import App, Notify
from cronledger.explain.doctor_alerts import alerts as check_alerts
from cronledger.rules.problems import ConfigurationError
from cronledger.sources.apply import apply
from tests.db.support import rows
from tests.db.support.commands import read
from tests.db.support.engine import Ledger, Runner

OPENED, RECOVERED = ("failed", "opened"), ("recovered", "closed")
STEP = timedelta(seconds=30)
STEPPED = "SELECT cronledger_internal.raise_alerts(1000)"


def rule(*on: str, **more: Any) -> Jsonb:
    return Jsonb([{"channel": "ops", "on": list(on) or ["failed", "recovered"], **more}])


def watched(
    ledger: Ledger, *on: str, after: int = 1, remind: str | None = None, **policies: Any
) -> None:
    """Add the channel and an external job with this rule."""
    ledger.channel()
    notify = rule(*on, after=after, remind=remind)
    columns: dict[str, Any] = {"handler": "external", "notify": notify, **policies}
    ledger.job(**columns)


FINISH = "SELECT finish(%s, %s)"
FAIL = "SELECT fail(%s, %s, 'failed', 'broken: no disk')"


def claimed(ledger: Ledger) -> tuple[int, UUID]:
    lease = ledger.one("SELECT id, lease_token FROM claim_next('default', 'w')")
    return lease[0], lease[1]


def triggered(ledger: Ledger, job: str = "job") -> tuple[int, UUID]:
    ledger.trigger(job)
    return claimed(ledger)


def end(ledger: Ledger, outcomes: str, job: str = "job") -> list[int]:
    """Run the job once for each outcome: "+" is a success, "-" a failure, "0" a cancellation."""
    ended = []
    for outcome in outcomes:
        ended.append(ledger.trigger(job))
        if outcome == "0":
            ledger.values("SELECT cancel(%s)", ended[-1])
        else:
            ledger.values(FINISH if outcome == "+" else FAIL, *claimed(ledger))
    return ended


def step(ledger: Ledger) -> list[tuple[str, str]]:
    """Let time pass until all events are searched for, and raise alerts until none are left.

    Return those of the whole test.
    """
    ledger.travel(by=STEP)
    return ledger.raise_alerts()


def open_alert(ledger: Ledger) -> None:
    watched(ledger)
    end(ledger, "-")
    assert step(ledger) == [OPENED]


def deliveries(ledger: Ledger) -> list[str]:
    return ledger.values("SELECT status FROM deliveries ORDER BY id")


def open_states(ledger: Ledger) -> list[str]:
    return ledger.values("SELECT event FROM alert_states ORDER BY event")


STORIES: dict[str, tuple[list[dict[str, Any]], list[tuple[str, list[tuple[str, str]]]]]] = {
    "a failure opens and a success closes": (
        [{}], [("+--", [OPENED]), ("++", [OPENED, RECOVERED]), ("", [OPENED, RECOVERED])],
    ),
    "failed opens after as many failures in a row": (
        [{"after": 3}], [("--+--", []), ("-", [OPENED])],
    ),
    "a cancellation neither counts nor resets": (
        [{"after": 2}], [("-0", []), ("-", [OPENED])],
    ),
    "a rule without recovered has no end": ([{"on": ["failed"]}], [("-+", [OPENED])]),
    "a rule without failed has no beginning": ([{"on": ["recovered"]}], [("-+", [RECOVERED])]),
    "of several rules for an event and a channel the first one holds": (
        [{"on": ["failed"], "after": 2}, {"on": None}], [("-", []), ("-+", [OPENED])],
    ),
}  # fmt: skip
"""Rules, the executions that end before each step, and all alerts that there are after it."""


@pytest.mark.parametrize("story", STORIES)
def test_ends_raise_alerts(ledger: Ledger, story: str) -> None:
    rules, steps = STORIES[story]
    default = {"channel": "ops", "on": ["failed", "recovered"]}
    watched(ledger, notify=Jsonb([default | rule for rule in rules]))
    for ends, expected in steps:
        end(ledger, ends)
        assert step(ledger) == expected
    assert open_states(ledger) == (["failed"] if ends.endswith("-") else [])


def test_each_edge_between_two_steps_is_raised_in_its_order(ledger: Ledger) -> None:
    watched(ledger)
    ids = end(ledger, "-+--+-")
    assert step(ledger) == [OPENED, RECOVERED, OPENED, RECOVERED, OPENED]
    found = ledger.values("SELECT execution_id FROM alerts ORDER BY id")
    assert found == [ids[0], ids[1], ids[2], ids[4], ids[5]]


def test_an_end_is_observed_when_it_becomes_visible(ledger: Ledger) -> None:
    """An independent record that is sorted by finished_at may therefore have other edges."""
    watched(ledger, overlap="allow")
    failing, succeeding = triggered(ledger), triggered(ledger)
    with psycopg.connect(ledger.url) as c:
        c.execute("SELECT cronledger.fail(%s, %s, 'failed', 'no disk')", failing)
        ledger.values(FINISH, *succeeding)
        assert step(ledger) == []
    assert step(ledger) == [OPENED]
    ends = ledger.values(
        "SELECT status FROM execution_status WHERE job_name = 'job' ORDER BY finished_at"
    )
    assert (ends, open_states(ledger)) == (["FAILED", "SUCCESS"], ["failed"])


def test_a_failure_that_is_retried_raises_nothing(ledger: Ledger) -> None:
    watched(ledger, max_attempts=2)
    end(ledger, "-")
    assert step(ledger) == []


def test_what_failed_or_was_skipped_before_its_rule_raises_nothing(ledger: Ledger) -> None:
    ledger.job(handler="external")
    end(ledger, "-")
    ledger.channel()
    ledger.edit(notify=rule("failed"))
    assert step(ledger) == []
    skip(ledger, "overlap")
    ledger.travel(by=timedelta(seconds=1))
    ledger.edit(notify=rule("failed", "skipped"))
    assert step(ledger) == []


def test_a_paused_job_raises_nothing_until_its_resume(ledger: Ledger) -> None:
    watched(ledger, remind="1 minute")
    ledger.job("other", handler="external", notify=rule())
    leases = [triggered(ledger), triggered(ledger, "other")]
    ledger.values("SELECT pause(name) FROM jobs")
    for lease in leases:
        ledger.values(FAIL, *lease)
    assert step(ledger) == []
    ledger.values("SELECT resume('job')")
    step(ledger)
    assert ledger.values("SELECT event, kind, job_name FROM alerts") == [(*OPENED, "job")]
    ledger.values("SELECT pause('job')")
    ledger.travel(by=timedelta(hours=1))
    assert step(ledger) == [OPENED]


def test_a_reminder_is_raised_each_time_remind_has_passed(ledger: Ledger) -> None:
    watched(ledger, remind="4 hours")
    end(ledger, "-")
    expected = [OPENED]
    for _ in range(2):
        assert step(ledger) == expected
        ledger.travel(by=timedelta(hours=3))
        assert step(ledger) == expected
        ledger.travel(by=timedelta(hours=1))
        expected.append(("failed", "reminder"))
        assert step(ledger) == expected


def test_the_end_of_a_rule_closes_its_states_silently(ledger: Ledger) -> None:
    ledger.channel()
    for name in ("retired", "deleted", "edited"):
        ledger.job(name, handler="external", notify=rule())
        end(ledger, "-", job=name)
    step(ledger)
    assert open_states(ledger) == ["failed"] * 3
    ledger.values("SELECT retire('retired')")
    ledger.values("DELETE FROM jobs WHERE name = 'deleted'")
    ledger.edit("edited", notify=None)
    assert (step(ledger), open_states(ledger)) == ([OPENED] * 3, [])


def test_an_overdue_execution_opens_and_its_start_closes(ledger: Ledger) -> None:
    watched(ledger, "overdue")
    ledger.trigger("job")
    assert step(ledger) == []  # within grace
    ledger.travel(by=timedelta(minutes=2))
    step(ledger)
    assert step(ledger) == [("overdue", "opened")]
    assert "no worker has claimed it yet" in ledger.one("SELECT summary FROM alerts")
    ledger.values("SELECT id FROM claim_next('default', 'w')")
    assert step(ledger) == [("overdue", "opened"), ("overdue", "closed")]


def started(ledger: Ledger, seconds: int, ago: timedelta = timedelta(minutes=3)) -> None:
    """Insert the SUCCESS of a scheduled execution that started so long after it was due."""
    now = ledger.travel(by=timedelta(minutes=5))
    ledger.ended([now - ago], late=timedelta(seconds=seconds), finished=now)


def test_a_late_start_opens_and_a_start_in_time_closes(ledger: Ledger) -> None:
    """An earlier start in time, of an execution that ends later, closes nothing."""
    opened, closed = [("late", "opened")], [("late", "opened"), ("late", "closed")]
    watched(ledger, "late")
    for seconds, minutes, expected in (
        (60, 3, []), (61, 3, opened), (90, 3, opened), (0, 60, opened), (60, 3, closed),
    ):  # fmt: skip
        started(ledger, seconds, timedelta(minutes=minutes))
        assert step(ledger) == expected


def test_a_wait_for_required_jobs_is_no_lateness(ledger: Ledger) -> None:
    """Neither for the event, nor for the view, nor for the sums of its job."""
    watched(ledger, "late")
    now = ledger.travel(by=timedelta(minutes=5))
    due, late = now - timedelta(minutes=3), timedelta(seconds=90)
    ledger.ended([due], late=late, finished=now, gated_at=due)
    assert step(ledger) == []
    assert ledger.values("SELECT count FROM lateness") == []
    sums = "SELECT success, late_ms_max FROM execution_sums('job', 'global', 'global', %s, %s)"
    assert ledger.values(sums, due, now) == [(1, None)]


def skip(ledger: Ledger, reason: str, scope: str = "global") -> None:
    now = ledger.travel(by=timedelta(minutes=5))
    kind = "global" if scope == "global" else "shard"
    rows.skip(ledger.db, now, reason=reason, scope_kind=kind, scope_id=scope)


GROWS = (
    "UPDATE skips SET through_plan_time = db_now(), count = count + 1,"
    " changed_xact = pg_current_xact_id()"
)


def test_by_default_a_job_that_does_not_run_raises_an_alert(ledger: Ledger) -> None:
    watched(ledger, notify=Jsonb([{"channel": "ops"}]))
    skip(ledger, "overlap")
    step(ledger)
    ledger.values(GROWS)
    assert step(ledger) == []  # a single overlap or two are normal
    ledger.values(GROWS)
    assert step(ledger) == [("skipped", "opened")]
    assert ledger.one("SELECT count FROM alert_states") == 3
    started(ledger, 0)
    step(ledger)
    skip(ledger, "missed")
    assert step(ledger)[1:] == [("skipped", "closed"), ("skipped", "opened")]
    ledger.trigger("job")
    ledger.travel(by=timedelta(minutes=2))
    assert step(ledger)[3:] == [("overdue", "opened")]


async def test_a_range_of_skips_that_a_replica_extends_is_observed_again(
    ledger: Ledger, one: Runner
) -> None:
    watched(
        ledger, handler="python", schedule="* * * * *", overlap="skip", stale_timeout="1 h",
        notify=Jsonb([{"channel": "ops"}]),
    )  # fmt: skip
    counts = [0]
    while counts[-1] < 3:
        assert ledger.raise_alerts() == []
        ledger.travel(by=timedelta(minutes=1))
        await one.settle()
        step(ledger)
        counts.append(ledger.one("SELECT coalesce(sum(count), 0) FROM skips"))
    assert counts[-2] > 0
    assert ledger.one("SELECT count(*) FROM skips") == 1
    assert ledger.raise_alerts() == [("skipped", "opened")]
    assert ledger.one("SELECT count FROM alert_states") == counts[-1]


async def test_an_absence_of_a_host_that_goes_on_is_observed_again(
    ledger: Ledger, one: Runner
) -> None:
    watched(
        ledger, "skipped", handler="python", schedule="* * * * *", scope_kind="host",
        scopes=["web3"], grace="1 s",
    )  # fmt: skip
    changed = set()
    for _ in range(2):
        ledger.travel(by=timedelta(minutes=2))
        await one.check_in()
        await one.repair()
        assert await one.settle() == []
        (skips,) = ledger.values("SELECT reason, changed_xact::text FROM skips")
        assert skips[0] == "host_absent"
        changed.add(skips[1])
    assert len(changed) == 2


def test_skips_that_were_intended_raise_nothing(ledger: Ledger) -> None:
    watched(ledger, "skipped")
    for reason in ("paused", "retired", "superseded"):
        skip(ledger, reason)
        assert step(ledger) == [], reason


def scopes(ledger: Ledger, *ids: str) -> None:
    """A scope provider has returned these scopes."""
    ledger.values("SELECT FROM cronledger_internal.set_scopes('job', 'shard', %s)", list(ids))


def test_a_skip_of_a_scope_that_retires_is_raised_once(ledger: Ledger) -> None:
    watched(ledger, "skipped", scope_kind="shard")
    scopes(ledger, "a", "b")
    skip(ledger, "overlap", scope="a")
    assert step(ledger) == [("skipped", "opened")]
    for wanted in ("b",), ("a", "b"):
        scopes(ledger, *wanted)
        for _ in range(3):
            assert step(ledger) == [("skipped", "opened")]
    assert open_states(ledger) == []
    skip(ledger, "overlap", scope="a")
    assert step(ledger) == [("skipped", "opened")] * 2


def test_an_execution_of_a_retired_scope_that_waits_raises_nothing_twice(ledger: Ledger) -> None:
    watched(ledger, "overdue", scope_kind="shard")
    scopes(ledger, "a", "b")
    ledger.trigger("job", scope="a")
    ledger.travel(by=timedelta(minutes=5))
    step(ledger)
    scopes(ledger, "b")
    for _ in range(3):
        assert step(ledger) == [("overdue", "opened")]


@pytest.mark.parametrize(
    ("event", "after_each"), [("overdue", [20, 40]), ("skipped", list(range(1, 45)))]
)
def test_many_scopes_are_observed_by_several_transactions(
    ledger: Ledger, event: str, after_each: list[int]
) -> None:
    watched(ledger, event, scope_kind="shard")
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


def test_an_edit_loses_no_skip_that_was_not_observed(ledger: Ledger) -> None:
    watched(ledger, "skipped")
    skip(ledger, "overlap")
    ledger.travel(by=timedelta(seconds=1))
    ledger.edit(grace="2 min")
    ledger.values("SELECT pause('job')")
    ledger.values("SELECT resume('job')")
    assert step(ledger) == [("skipped", "opened")]


def watch(ledger: Ledger, seconds: int) -> list[str]:
    """Take steps without a gap, after which each runner would get its whole time again.

    Return the runners that were lost, or have returned, meanwhile.
    """
    before = ledger.one("SELECT count(*) FROM alerts")
    for _ in range(seconds // 15):
        ledger.travel(by=timedelta(seconds=15))
        assert not ledger.one(STEPPED)
    return ledger.values("SELECT runner_id FROM alerts ORDER BY id OFFSET %s", before)


def test_a_worker_that_claims_nothing_more_is_not_lost(ledger: Ledger) -> None:
    ledger.channel(on_ledger=["runner_lost"])
    ledger.job(handler="external")
    end(ledger, "+")
    assert watch(ledger, 120) == []
    assert ledger.values("SELECT state FROM runner_status") == ["dead"]


def test_a_runner_that_is_lost_opens_and_its_return_closes(ledger: Ledger) -> None:
    ledger.channel(on_ledger=["runner_lost"])
    soon = ledger.now() + timedelta(minutes=1)
    ledger.runner(stale_after=soon)
    ledger.runner("r2", state="stopped", stale_after=soon)
    assert watch(ledger, 45) == []
    assert watch(ledger, 30) == ["r1"]
    ledger.values("UPDATE runners SET stale_after = db_now() + interval '1 h' WHERE id = 'r1'")
    assert step(ledger) == [("runner_lost", "opened"), ("runner_lost", "closed")]


@pytest.mark.parametrize("outage", ["an hour", "a restart"])
def test_time_in_which_no_runner_could_check_in_loses_no_runner(
    ledger: Ledger, outage: str
) -> None:
    ledger.channel(on_ledger=["runner_lost"])
    for name in ("lost before", "lost", "returns"):
        ledger.runner(name, stale_after=ledger.now() + timedelta(seconds=45))
    seen = "UPDATE runners SET heartbeat_at = db_now(), stale_after = db_now() + interval '45 s'"
    for _ in range(4):
        ledger.values(seen + " WHERE id <> 'lost before'")
        watch(ledger, 15)
    assert ledger.values("SELECT runner_id FROM alerts") == ["lost before"]
    if outage == "a restart":
        ledger.travel(by=timedelta(seconds=15))
        ledger.values("UPDATE alert_progress SET server_start = '2001-01-01Z'")
        ledger.values("UPDATE runners SET stale_after = db_now() - interval '1 s'")
    else:
        ledger.travel(by=timedelta(hours=1))
    assert watch(ledger, 30) == []
    ledger.values(seen + " WHERE id = 'returns'")
    assert watch(ledger, 30) == ["lost"]


def test_a_leap_of_the_clock_that_is_taken_back_delays_no_delivery_and_no_reminder(
    ledger: Ledger,
) -> None:
    watched(ledger, remind="1 hour")
    deliveries = "SELECT count(*) FROM deliveries"
    ledger.travel(by=timedelta(days=2))
    end(ledger, "-")
    step(ledger)
    assert ledger.one(deliveries) == 1
    ledger.travel(by=timedelta(days=-2))
    end(ledger, "+")
    assert (len(step(ledger)), ledger.one(deliveries)) == (2, 2)
    ledger.travel(by=timedelta(days=2))
    end(ledger, "-")
    step(ledger)
    ledger.travel(by=timedelta(days=-2))
    assert step(ledger)[-1] == ("failed", "reminder")


def test_notify_that_was_declared_in_a_leap_of_the_clock_misses_nothing_after_it(
    ledger: Ledger,
) -> None:
    ledger.travel(by=timedelta(days=2))
    watched(ledger, "failed", "skipped")
    ledger.travel(by=timedelta(days=-2))
    end(ledger, "-")
    skip(ledger, "missed")
    assert sorted(step(ledger)) == [OPENED, ("skipped", "opened")]


def test_a_runner_that_fails_opens_and_its_recovery_closes(ledger: Ledger) -> None:
    ledger.channel(on_ledger=["runner_failing"])
    ledger.runner(diagnostics={"failing": {"check_in": "x"}, "failed": {}})
    assert step(ledger) == []  # one error is none that lasts
    update = "UPDATE runners SET diagnostics = jsonb_build_object('failed', %s::jsonb)"
    ledger.values(update, '{"finisher": "DiskFull: no space"}')
    step(ledger)
    assert step(ledger) == [("runner_failing", "opened")]
    summary = ledger.one("SELECT summary FROM alerts")
    assert summary == "runner r1 on h is failing: finisher: DiskFull: no space"
    ledger.values(update, "{}")
    assert step(ledger)[1:] == [("runner_failing", "closed")]


def verified(ledger: Ledger, violations: int, job: str | None = None) -> None:
    run = ledger.one("SELECT cronledger_internal.begin_verification(%s, NULL, NULL, '1')", job)
    ledger.values(
        "SELECT cronledger_internal.end_verification(%s, 'finished', NULL, NULL, db_now(), 1, 1, 1,"
        " 1, 0, %s, 0, '{}')", run, violations,
    )  # fmt: skip


@pytest.mark.parametrize("checked", [["a", "b"], [None]])
def test_violations_of_several_runs_hold_until_one_run_has_checked_all(
    ledger: Ledger, checked: list[str | None]
) -> None:
    ledger.channel(on_ledger=["violation"])
    ledger.job("a", handler="external")
    ledger.job("b", handler="external")
    verified(ledger, 0)
    for job in checked:
        verified(ledger, 2, job)
    assert step(ledger) == [("violation", "opened")]
    verified(ledger, 0, "b")
    step(ledger)
    assert open_states(ledger) == ["violation"]
    verified(ledger, 0)
    assert step(ledger) == [("violation", "opened"), ("violation", "closed")]


def write_end(c: psycopg.Connection[Any], execution: int, status: str) -> None:
    """End an execution without the lock of its schedule, so that others can go on."""
    c.execute(
        "UPDATE cronledger.executions SET status = %s, error_code = 'failed', duration_ms = 1,"
        " finished_at = cronledger.db_now(), changed_xact = pg_current_xact_id()"
        " WHERE id = %s", [status, execution],
    )  # fmt: skip


def test_a_long_transaction_elsewhere_delays_no_alert(ledger: Ledger) -> None:
    watched(ledger, overlap="allow")
    with psycopg.connect(ledger.url) as other, psycopg.connect(ledger.url) as ending:
        other.execute("SELECT pg_current_xact_id()")
        end(ledger, "-")
        # This end becomes visible after changes with greater numbers were observed.
        lease = triggered(ledger)
        write_end(ending, lease[0], "SUCCESS")
        end(ledger, "-")
        assert step(ledger) == [OPENED]
        ending.commit()
        step(ledger)
        assert step(ledger) == [OPENED, RECOVERED]
        other.commit()
    assert step(ledger) == [OPENED, RECOVERED]


def test_alerts_are_delivered_in_groups_of_a_minute(ledger: Ledger) -> None:
    runbook = "https://wiki.example.org/job"
    watched(ledger, owner="data", labels=Jsonb({"team": "bi"}), runbook=runbook)
    (failed,) = end(ledger, "-")
    step(ledger)
    end(ledger, "+-")
    step(ledger)
    assert deliveries(ledger) == ["PENDING"]
    ledger.travel(by=timedelta(minutes=1))
    step(ledger)
    first, second = ledger.values(
        "SELECT cronledger_internal.delivery_message(d) FROM deliveries d ORDER BY id"
    )
    assert [len(each["alerts"]) for each in (first, second)] == [1, 2]
    assert first["channel"] == "ops"
    assert first["ledger"] == str(ledger.one("SELECT ledger_id FROM identity"))
    (alert,) = first["alerts"]
    assert alert["details"].pop("duration_ms") >= 0
    assert {key: alert[key] for key in alert.keys() - {"id", "at", "since", "plan_time"}} == {
        "event": "failed", "kind": "opened", "job": "job", "scope_kind": "global",
        "scope": "global", "owner": "data", "labels": {"team": "bi"}, "runner": None,
        "runbook": runbook,
        "execution_id": failed, "count": 1, "summary": "job failed: broken: no disk",
        "details": {
            "status": "FAILED", "error_code": "failed", "error_msg": "broken: no disk",
            "output": None, "attempt": 1,
        },
    }  # fmt: skip
    assert ledger.one("SELECT count(*) FROM alerts WHERE delivery_id IS NULL") == 0


def test_more_than_500_alerts_make_several_deliveries(ledger: Ledger) -> None:
    open_alert(ledger)
    ledger.travel(by=timedelta(minutes=1))
    ledger.values(
        "INSERT INTO raised_alerts (at, event, kind, channel, since, count, summary, details)"
        " SELECT db_now(), 'failed', 'opened', 'ops', db_now(), 1, 'x', '{}'"
        " FROM generate_series(1, 1001)"
    )
    step(ledger)
    found = ledger.values("SELECT count(*) FROM alerts GROUP BY delivery_id ORDER BY delivery_id")
    assert found == [1, 500, 500, 1]


def test_alerts_are_pruned_with_executions(ledger: Ledger) -> None:
    open_alert(ledger)
    assert ledger.one("SELECT cronledger_internal.prune_alerts(10)") == 0
    ledger.values("UPDATE pruned SET through = db_now()")
    assert ledger.one("SELECT cronledger_internal.prune_alerts(10)") == 1
    assert deliveries(ledger) == []
    assert ledger.raise_alerts() == []


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


def test_an_app_declares_rules(ledger: Ledger) -> None:
    ledger.channel()
    app = App("shop")
    notify = [Notify(channel="ops", after=3, remind=timedelta(hours=4))]
    app.job(name="report", notify=notify)(lambda: None)
    app.job(name="tidy", notify="ops")(lambda: None)
    for _ in range(2):
        apply(ledger.url, list(app.jobs.values()), source="shop")
    rows = "SELECT revision, notify FROM jobs WHERE source = 'shop' ORDER BY name"
    assert ledger.values(rows) == [
        (1, [{"channel": "ops", "on": None, "after": 3, "remind": "4h"}]),
        (1, [{"channel": "ops", "on": None, "after": 1, "remind": None}]),
    ]
    with pytest.raises(ConfigurationError, match=r"jobs\.bad\.notify"):
        app.job(name="bad", notify=[{"channel": "ops", "on": ["broken"]}])(print)  # type: ignore[list-item]


@pytest.mark.long
def test_the_command_lists_alerts_and_open_states(ledger: Ledger) -> None:
    watched(ledger, owner="data")
    end(ledger, "-")
    step(ledger)

    listed = partial(read, ledger.url, "alerts")
    (alert,) = listed()
    assert (alert["event"], alert["kind"], alert["job_name"]) == ("failed", "opened", "job")
    (state,) = listed("--open", "--owner", "data", "--job", "job")
    assert (state["event"], state["kind"], state["count"]) == ("failed", "open", 1)
    assert listed("--owner", "bi") == []
    end(ledger, "+")
    step(ledger)
    assert listed("--open") == []
    assert [row["event"] for row in listed()] == ["recovered", "failed"]


def findings(ledger: Ledger) -> list[str]:
    """What `doctor` finds wrong with alerts."""
    return [one.found for one in ledger.findings(check_alerts) if one.severity != "ok"]


def test_doctor_names_deliveries_that_no_replica_claims(ledger: Ledger) -> None:
    waiting = ["deliveries that have waited for more than 5 minutes: 1"]
    open_alert(ledger)
    assert findings(ledger) == []
    ledger.travel(by=timedelta(minutes=6))
    assert findings(ledger) == waiting
    ledger.values("SELECT pause_channel('ops')")
    assert findings(ledger) == []
    ledger.values("SELECT resume_channel('ops')")
    assert ledger.one("SELECT reason, detail FROM overdue") == (
        "delivery", "deliveries of alerts to the channel ops that no replica has started: 1"
    )  # fmt: skip
    ledger.deliver(accepted=True)
    assert (findings(ledger), ledger.values("SELECT reason FROM overdue")) == ([], [])


def test_a_failed_delivery_raises_no_alert_and_doctor_names_it(ledger: Ledger) -> None:
    open_alert(ledger)
    ledger.deliver(accepted=False)
    assert step(ledger) == [OPENED]
    assert ledger.one("SELECT delivery_status FROM alerts") == "FAILED"
    ledger.values("DELETE FROM channels")
    end(ledger, "+")
    step(ledger)
    ledger.travel(by=timedelta(minutes=6))
    missing, waiting, failed = findings(ledger)
    assert "ops (job job)" in missing
    assert waiting == "alerts without a delivery for more than 5 minutes: 1"
    assert failed == "failed deliveries of the last day: 1"
