"""A year of the example projects in Berlin and New York: holidays, a freeze, skips and failures.

The expected days come from the dates of the calendars alone. `verify` checks the ledger as a whole.
"""

from collections import Counter
from datetime import date, datetime, time, timedelta
from itertools import pairwise
from random import Random
from zoneinfo import ZoneInfo

import pytest

from cronledger.rules import outcome
from cronledger.rules.model import Handler
from cronledger.sources.apply import apply
from cronledger.sources.toml import load
from tests.db.support.engine import DAY, FUNCTION, Ledger, Runner
from tests.docs.support.pages import ROOT

NEXT = """
SELECT min(t) FROM (
    SELECT min(next_due_at) FROM schedules
    UNION ALL SELECT min(next_attempt_at) FROM executions
    UNION ALL SELECT min(check_at) FROM gates
    UNION ALL SELECT min(from_at) FROM pauses WHERE begun_at IS NULL
    UNION ALL SELECT min(paused_until) FROM jobs) x(t)"""
"""The next instant at which a replica has something to do."""


def applied(ledger: Ledger, name: str) -> None:
    """Apply an example, whose jobs run in the test instead of a shell."""
    example = load(ROOT / "examples" / name)
    runs = {"handler": Handler.PYTHON, "target": {"python": FUNCTION}}
    jobs = [job.model_copy(update=runs) for job in example.jobs]
    apply(ledger.url, jobs, source=name, calendars=example.calendars)


async def run(ledger: Ledger, one: Runner, random: Random) -> None:
    """Run what is due. One attempt in four of `extract` fails."""
    for _ in range(20):
        await one.live_through()
        for lease in await one.settle():
            fails = lease.claimed.key.job_name == "extract" and random.random() < 0.25
            one.put(lease, outcome.failure(RuntimeError("no orders")) if fails else None)
        await one.finisher.step()
        await one.check_gates()
        if ledger.one("SELECT EXISTS (SELECT FROM jobs WHERE paused_until < db_now())"):
            await one.repair()  # as the sweeper does when a pause ends
        if (due := ledger.one(NEXT)) is None or due > ledger.now():
            return
    raise AssertionError("it does not come to rest")


def last_business_day(excluded: dict[str, str], month: date) -> date:
    day = (month.replace(day=1) + timedelta(days=31)).replace(day=1) - DAY
    while str(day) in excluded:
        day -= DAY
    return day


@pytest.mark.long
async def test_a_year_of_the_examples(ledger: Ledger, one: Runner) -> None:
    berlin, random = ZoneInfo("Europe/Berlin"), Random(25)
    today = ledger.now().astimezone(berlin).date()
    begin = (today.replace(day=1) + timedelta(days=32)).replace(day=1)
    if begin.month == 1:  # such a year would end within the freeze
        begin = begin.replace(month=2)
    ledger.travel(to=datetime.combine(begin, time(12), berlin))
    ledger.values("SELECT set_retention('800 days')")  # what the year brings is kept to its end
    applied(ledger, "payments.toml")
    applied(ledger, "warehouse.toml")
    christmas = date(begin.year, 12, 23)
    freeze = [
        datetime.combine(day, time(18), berlin)
        for day in (christmas, christmas + timedelta(days=10))
    ]
    ledger.values(
        "SELECT plan_pause('year-end freeze', begins => %s, until => %s, labels => %s)",
        freeze[0], freeze[1], '{"tier": "batch"}',
    )  # fmt: skip
    stock = datetime.combine(begin + timedelta(days=40), time(3), berlin)
    ledger.values("SELECT skip('extract', %s, 'stocktaking')", stock)

    end = datetime.combine(begin.replace(year=begin.year + 1), time(12), berlin)
    await run(ledger, one, random)
    while (due := ledger.one(NEXT)) < end:
        ledger.travel(to=due + timedelta(seconds=1))
        await run(ledger, one, random)
    assert ledger.violations() == []

    excluded = dict(ledger.values("SELECT calendar_name, excluded FROM calendar_revisions"))
    months = [(begin + timedelta(days=31 * n)).replace(day=1) for n in range(12)]
    for job, zone, calendar in (
        ("pay-berlin", "Europe/Berlin", "berlin"), ("pay-new-york", "America/New_York", "new-york"),
    ):  # fmt: skip
        paid = ledger.values(
            "SELECT plan_time FROM executions WHERE job_name = %s ORDER BY plan_time", job
        )
        assert paid == [
            datetime.combine(last_business_day(excluded[calendar], month), time(18), ZoneInfo(zone))
            for month in months
        ]

    reported = ledger.values("SELECT plan_time FROM executions WHERE job_name = 'report'")
    days = [
        begin + DAY * n for n in range(1, 365) if str(begin + DAY * n) not in excluded["berlin"]
    ]
    assert sorted(at.astimezone(berlin).date() for at in reported)[: len(days)] == days

    outcomes = {
        job: Counter(dict(ledger.values(
            "SELECT outcome, sum(count)::int FROM ("
            "SELECT status, 1 FROM executions WHERE job_name = %(job)s UNION ALL"
            " SELECT reason, count FROM skips WHERE job_name = %(job)s) x(outcome, count)"
            " GROUP BY outcome".replace("%(job)s", f"'{job}'"),
        )))
        for job in ("extract", "load", "publish", "weekly-report")
    }  # fmt: skip
    extract, loaded = outcomes["extract"], outcomes["load"]
    assert extract["operator"] == 1
    assert extract["paused"] == loaded["paused"] == 10
    assert extract["FAILED"] > 0
    assert loaded["SUCCESS"] == outcomes["publish"]["SUCCESS"] == extract["SUCCESS"]
    assert loaded["upstream"] == extract["FAILED"] + extract["operator"]
    assert outcomes["weekly-report"]["SUCCESS"] > 20
    assert outcomes["weekly-report"]["upstream"] > 0

    windows = ledger.values(
        "SELECT window_start, window_end FROM windows"
        " WHERE job_name = 'extract' ORDER BY window_end"
    )
    assert len(windows) == extract["SUCCESS"]
    assert all(a[1] == b[0] for a, b in pairwise(windows))
