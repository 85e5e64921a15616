"""Applying a source: its jobs become those of the ledger, and older deploys change nothing."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from cronledger.rules.model import Job
from cronledger.rules.problems import ConfigurationError
from cronledger.sources.apply import Applied, apply
from tests.db.support.engine import FUNCTION, MINUTE, Ledger, Runner, waiting
from tests.waiting import eventually


def job(name: str, schedule: str = "* * * * *", **more: Any) -> Job:
    columns = {"handler": "python", "target": {"python": FUNCTION}, **more}
    return Job.model_validate({"name": name, "schedule": schedule, **columns})


async def test_an_apply_adds_changes_and_retires_the_jobs_of_its_source(
    ledger: Ledger, one: Runner
) -> None:
    first = apply(ledger.url, [job("a"), job("b"), job("c")], source="file", by="me")
    assert first.added == ("a", "b", "c")
    ledger.travel(by=MINUTE)
    second = apply(ledger.url, [job("a"), job("b", "@hourly"), job("d")], source="file")
    assert (second.added, second.changed, second.retired, second.unchanged) == (
        ("d",), ("b",), ("c",), 1,
    )  # fmt: skip
    # Due before the second apply: b under what it was, c is gone and d was not there.
    started = {s.claimed.key.job_name: s.claimed.revision for s in await one.settle()}
    assert started == {"a": 1, "b": 1}
    third = apply(ledger.url, [job("a"), job("b", "@hourly"), job("c")], source="file")
    assert (third.added, third.retired) == (("c",), ("d",))
    ledger.travel(by=MINUTE)
    assert [s.claimed.key.job_name for s in await one.settle()] == ["c"]
    assert ledger.one("SELECT requested_by FROM job_revisions WHERE job_name='a'") == "me"


def test_each_policy_is_stored_as_declared(ledger: Ledger) -> None:
    more: dict[str, Any] = {
        "timezone": "Europe/Berlin", "grace": "1h30m", "jitter": "1500ms",
        "owner": "Équipe data", "labels": {"team": "data", "a.b/c": "ü = 1"},
        "payload": {"k": [1, "ü"]}, "payload_schema": {"type": "object", "title": "ü"},
        "retry_backoff": ["1s", "2d"], "starts_at": "2030-01-01T00:00:00+02:00", "max_running": 3,
        "scope_kind": "shard", "scopes": ["a", "b"], "overlap": "wait", "catch_up": "all",
        "retry_on": ["OSError", "shop.Busy"], "never_retry_on": ["timeout"],
        "keep_output": "7d", "runbook": "https://wiki.example.org/x#y",
    }  # fmt: skip
    whole = job("whole", **more)
    apply(ledger.url, [whole], source="file")
    names = ", ".join(more)
    stored = dict(zip(more, ledger.one(f"SELECT {names} FROM jobs"), strict=True))
    assert stored == {
        name: list(value) if isinstance(value := getattr(whole, name), tuple) else value
        for name in more
    }
    again = apply(ledger.url, [whole], source="file")
    assert (again.unchanged, again.changed) == (1, ())


def test_an_older_deploy_is_refused_unless_forced(ledger: Ledger) -> None:
    def applied(name: str, **options: Any) -> Applied:
        return apply(ledger.url, [job(name)], source="app", **options)

    assert applied("new", deploy=5).refused is None
    assert "deploy 4 is older" in str(applied("old", deploy=4).refused)
    assert "no deploy was given" in str(applied("old").refused)
    assert ledger.values("SELECT name FROM jobs WHERE retired_at IS NULL") == ["new"]
    assert applied("new", deploy=5).unchanged == 1
    forced = applied("old", deploy=4, force=True)
    assert (forced.added, forced.retired) == (("old",), ("new",))
    assert applied("new", deploy=4).added == ("new",)


def test_sources_do_not_take_each_others_jobs(ledger: Ledger) -> None:
    apply(ledger.url, [job("shared"), job("mine")], source="one")
    with pytest.raises(ConfigurationError, match="one"):
        apply(ledger.url, [job("theirs"), job("shared")], source="two")
    apply(ledger.url, [], source="two")
    names = ledger.values("SELECT name FROM jobs WHERE retired_at IS NULL ORDER BY 1")
    assert names == ["mine", "shared"]
    apply(ledger.url, [job("mine")], source="one")  # `shared` is free now
    assert apply(ledger.url, [job("shared")], source="two").added == ("shared",)


async def test_of_two_sources_with_one_name_at_once_one_is_refused(ledger: Ledger) -> None:
    with psycopg.connect(ledger.url) as first, ThreadPoolExecutor(1) as pool:
        first.execute(
            "INSERT INTO cronledger.jobs (name, handler, source)"
            " VALUES ('shared', 'external', 'one')"
        )
        second = pool.submit(apply, ledger.url, [job("mine"), job("shared")], source="two")
        await eventually("it waits for a lock", lambda: waiting(ledger))
        first.commit()
        with pytest.raises(ConfigurationError, match="one"):
            second.result()
    assert ledger.values("SELECT name, source FROM jobs") == [("shared", "one")]


def test_a_pause_survives_a_deploy_and_a_job_of_sql_is_taken_over(ledger: Ledger) -> None:
    apply(ledger.url, [job("paused")], source="app", deploy=1)
    ledger.values("SELECT pause('paused', 'broken')")
    ledger.job("by hand", schedule="* * * * *")
    apply(ledger.url, [job("paused", "@hourly"), job("by hand")], source="app", deploy=2)
    assert ledger.values("SELECT source, paused_reason FROM jobs ORDER BY name") == [
        ("app", None), ("app", "broken"),
    ]  # fmt: skip
    paused = "SELECT state FROM job_revisions WHERE job_name = 'paused' AND revision = 3"
    assert ledger.one(paused) == "paused"


def test_an_application_is_all_or_nothing(ledger: Ledger) -> None:
    apply(ledger.url, [job("a")], source="file")
    bad = job("bad", payload="\x00")
    with pytest.raises(Exception, match=r"u0000|NUL|Unicode"):
        apply(ledger.url, [job("b"), bad], source="file", deploy=3)
    assert ledger.values("SELECT name, retired_at FROM jobs") == [("a", None)]
    assert ledger.one("SELECT deploy FROM sources") is None
