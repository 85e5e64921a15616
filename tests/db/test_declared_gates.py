"""What jobs require of others: the checks of the ledger, and the plan_times that `after` gives."""

from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.db.support.engine import Ledger, Runner
from tests.db.support.rows import connected, start_blocked


def named(*jobs: str, scope: str = "same") -> list[dict[str, str]]:
    return [{"job": job, "scope": scope} for job in jobs]


def definitions(ledger: Ledger, job: str, *columns: str) -> list[Any]:
    return ledger.values(
        f"SELECT {', '.join(columns)} FROM job_revisions r, jsonb_populate_record(NULL::jobs,"
        " r.definition) WHERE job_name = %s ORDER BY r.revision", job,
    )  # fmt: skip


def test_a_job_with_after_has_the_plan_times_of_its_upstream(ledger: Ledger) -> None:
    ledger.job("extract", schedule="0 3 * * *", timezone="Europe/Berlin", dst_gap="skip")
    ledger.job("load", schedule=None, after=named("extract"))
    columns = ("schedule", "timezone", "dst_gap")
    assert definitions(ledger, "load", *columns) == [("0 3 * * *", "Europe/Berlin", "skip")]
    ledger.edit("extract", schedule="0 4 * * *")
    assert definitions(ledger, "load", *columns)[1:] == [("0 4 * * *", "Europe/Berlin", "skip")]
    ledger.edit("extract", grace="2 minutes")
    assert len(definitions(ledger, "load", *columns)) == 2


def test_an_edit_of_the_first_job_of_a_chain_reaches_its_last(ledger: Ledger) -> None:
    ledger.job("c-extract", schedule="H H * * *")
    ledger.job("b-load", schedule=None, after=named("c-extract"))
    ledger.job("a-report", schedule=None, after=named("b-load"))
    ledger.edit("c-extract", schedule="H 5 * * *", edited_by="ann")
    assert definitions(ledger, "a-report", "schedule", "r.requested_by")[1:] == [
        ("H 5 * * *", "ann")
    ]
    roots = ledger.values("SELECT after -> 0 -> 'root' ->> 'job' FROM jobs ORDER BY name")
    assert roots == ["c-extract", None, None]


async def test_jobs_of_a_chain_with_h_fire_at_the_same_instants(
    ledger: Ledger, one: Runner
) -> None:
    ledger.job("extract", schedule="H H * * *")
    ledger.job("load", schedule=None, after=named("extract"))
    ledger.job("report", schedule=None, after=named("load"))
    ledger.job("other", schedule="H H * * *")
    await one.settle()
    plan_times = dict(ledger.values("SELECT job_name, next_plan_time FROM schedules"))
    assert plan_times["extract"] == plan_times["load"] == plan_times["report"]
    assert plan_times["extract"] != plan_times["other"]
    ledger.travel(by=timedelta(hours=49))
    await one.settle()
    assert ledger.violations() == []


def test_one_statement_may_add_a_chain_in_any_order(ledger: Ledger) -> None:
    ledger.values(
        "INSERT INTO jobs (name, handler, schedule, after) VALUES"
        """ ('a', 'external', NULL, '[{"job": "b"}]'), ('b', 'external', '@daily', NULL)"""
    )
    assert ledger.values("SELECT name, schedule, gate_problem FROM jobs ORDER BY name") == [
        ("a", "@daily", None),
        ("b", "@daily", None),
    ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"requires": named("job")}, "requires names the job itself"),
        ({"requires": named("missing")}, "job 'missing' does not exist"),
        ({"requires": named("retired")}, "job 'retired' is retired"),
        ({"requires": named("manual")}, "job 'manual' has no schedule"),
        ({"requires": named("tenants")}, "scopes of the kind tenant, and this job"),
        ({"requires": named("tenants", scope="global")}, "so it has no scope global"),
        ({"requires": named("daily", "daily")}, "names 'daily' twice"),
        ({"requires": [{"jobs": "daily"}]}, "has an unknown key"),
        ({"requires": []}, "requires has 0 elements"),
        ({"requires": named("daily"), "schedule": None}, "requires_needs_plan_times"),
        ({"after": named("daily"), "schedule": "@hourly"}, "schedule and after are both set"),
        ({"requires": named("daily"), "wait_at_most": "0"}, "wait_at_most_check"),
    ],
)
def test_an_invalid_requirement_is_refused(
    ledger: Ledger, given: dict[str, Any], message: str
) -> None:
    ledger.job("daily", schedule="@daily")
    ledger.job("manual", schedule=None)
    ledger.job("retired", schedule="@daily", retired_at=ledger.now())
    ledger.job("tenants", schedule="@daily", scope_kind="tenant", scopes=["a"])
    with pytest.raises(psycopg.Error, match=message):
        ledger.job(**{"schedule": "@daily", **given})
    ledger.job(schedule="@daily")
    with pytest.raises(psycopg.Error, match=message):
        ledger.edit(**given)


@pytest.mark.parametrize("between", [["x"], ["x", "z"]])
def test_two_edits_at_once_cannot_make_a_cycle(ledger: Ledger, between: list[str]) -> None:
    """The second edit waits for the first one, also if the jobs between them are not edited."""
    for name in ("a", "x", "y", "z"):
        ledger.job(name, schedule="@daily")
    ledger.edit("x", requires=named("y"))
    ledger.edit("z", requires=named("a"))
    edit = "UPDATE cronledger.jobs SET requires = %s WHERE name = %s"
    with connected(ledger.url) as first, connected(ledger.url) as second:
        first.execute("BEGIN")
        first.execute(edit, [Jsonb(named("x")), "a"])
        required = "a" if between == ["x"] else "z"
        closes = partial(second.execute, edit, [Jsonb(named(required)), "y"])
        other = start_blocked(ledger.db, second, closes)
        first.execute("COMMIT")
        with pytest.raises(psycopg.Error, match=f"y, which requires {required}, which requires "):
            other.result(90)


SCHEDULE = "SELECT FROM cronledger.schedules WHERE job_name = 'extract' FOR UPDATE"
OTHER = "SELECT FROM cronledger.jobs WHERE name = 'other' FOR UPDATE"
SLOWER = "UPDATE cronledger.jobs SET schedule = '@weekly' WHERE name = 'extract'"
RETIRED = "SELECT cronledger.retire('extract')"
CHAINED = """UPDATE cronledger.jobs SET requires = '[{"job": "other"}, {"job": "extract"}]'
             WHERE name = 'load'"""


@pytest.mark.parametrize("edit", [SLOWER, RETIRED])
@pytest.mark.parametrize("upstream_first", [True, False])
def test_edits_of_both_ends_of_a_chain_at_once_are_no_deadlock(
    ledger: Ledger, edit: LiteralString, upstream_first: bool
) -> None:
    """One edit locks its job and then `load`, and the other one `load` and then `extract`. A third
    transaction holds the first one up in between."""
    for name in ("extract", "other"):
        ledger.job(name, schedule="@daily")
    ledger.job("load", schedule="@daily", requires=named("extract"))
    statements = [edit, CHAINED] if upstream_first else [CHAINED, edit]
    keep = SCHEDULE if upstream_first else OTHER
    with ExitStack() as stack:
        keeper, *editors = (stack.enter_context(connected(ledger.url)) for _ in range(3))
        keeper.execute("BEGIN")
        keeper.execute(keep)
        edits = [
            start_blocked(ledger.db, editor, partial(editor.execute, statement))
            for editor, statement in zip(editors, statements, strict=True)
        ]
        keeper.execute("COMMIT")
        ends = [made.exception(90) for made in edits]
    assert [end for end in ends if isinstance(end, psycopg.errors.DeadlockDetected)] == []


def test_a_cycle_is_refused_with_its_path(ledger: Ledger) -> None:
    ledger.job("a", schedule="@daily")
    ledger.job("b", schedule=None, after=named("a"))
    ledger.job("c", schedule="@daily", requires=named("b"))
    with pytest.raises(psycopg.Error, match="a, which requires c, which requires b, which req"):
        ledger.edit("a", requires=named("c"))


async def test_a_retired_upstream_breaks_its_dependents_until_it_returns(
    ledger: Ledger, one: Runner
) -> None:
    ledger.job("extract", schedule="@daily")
    ledger.job("load", schedule=None, after=named("extract"))
    ledger.job("report", schedule="@daily", requires=named("extract"))
    ledger.edit("extract", retired_at=ledger.now())
    await one.settle()
    errors = ledger.values("SELECT spec_error FROM jobs WHERE name <> 'extract' ORDER BY name")
    assert errors == [
        "after: job 'extract' is retired; UPDATE jobs SET after = …",
        "requires: job 'extract' is retired; UPDATE jobs SET requires = …",
    ]
    ledger.edit("extract", retired_at=None)
    await one.settle()
    assert ledger.values("SELECT spec_error FROM jobs") == [None] * 3
    ledger.edit("extract", schedule=None)
    await one.settle()
    assert ledger.one("SELECT spec_error FROM jobs WHERE name = 'load'") is not None
    ledger.values("DELETE FROM jobs WHERE name = 'extract'")
    await one.settle()
    assert ledger.values("SELECT spec_error LIKE '%%does not exist%%' FROM jobs") == [True, True]


def test_the_columns_of_triggers_cannot_be_set(ledger: Ledger) -> None:
    ledger.job("extract", schedule="@daily")
    ledger.job("load", schedule=None, after=named("extract"), gate_problem="x")
    ledger.edit("load", gate_problem="y", timezone="Europe/Berlin")
    assert ledger.values("SELECT timezone, gate_problem FROM jobs WHERE name = 'load'") == [
        ("UTC", None)
    ]
