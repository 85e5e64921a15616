"""`cronledger skip` and `cronledger planned-skips`, and what `next` and `why` say of them."""

from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.cli.conftest import Ask, Cli
from tests.cli.support.results import done, read, refused
from tests.db.support import rows

HOUR = timedelta(hours=1)
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.fixture
def at(db: rows.Db) -> datetime:
    """The second plan_time of the hourly job `job` from now on. An hour has just begun."""
    now = rows.now(db)
    hour = now.replace(minute=0, second=0, microsecond=0) + HOUR
    rows.travel(db, hour - now)
    rows.job(db, timezone="Europe/Berlin")
    return hour + 2 * HOUR


def test_a_firing_is_skipped_listed_and_taken_back(cli: Cli, at: datetime) -> None:
    done(cli, "skip", "job", at.isoformat(), "--reason", "stocktaking")
    (row,) = read(cli, "planned-skips", "job")
    assert (row["state"], row["reason"], row["scope"], row["skipped"]) == (
        "planned", "stocktaking", "all", 0,
    )  # fmt: skip
    firings = read(cli, "next", "job", "--count", "2")
    assert [one["skipped"] for one in firings] == [None, "stocktaking", None]
    assert firings[1]["note"] == "skipped by an operator: stocktaking"
    (why,) = read(cli, "why", "job", at.isoformat())
    assert f"is in the future: planned skip {row['id']} of " in why["text"]
    assert "(stocktaking) skips it" in why["text"]
    said = cli("skip", "job", at.isoformat(), "--undo")
    assert said.stdout == f"job: planned skip {row['id']} was withdrawn\n"
    assert read(cli, "planned-skips") == []
    (row,) = read(cli, "planned-skips", "--all")
    assert row["state"] == "withdrawn"
    assert "may start at" in read(cli, "why", "job", at.isoformat())[0]["text"]


def test_a_range_is_skipped_with_times_of_the_jobs_zone(cli: Cli, at: datetime) -> None:
    local = [f"{(at + n * HOUR).astimezone(BERLIN):%Y-%m-%dT%H:%M}" for n in (0, 3)]
    result: dict[str, Any] = read(
        cli, "skip", "job", local[0], "--through", local[1], "--reason", "inventory"
    )  # fmt: skip
    assert datetime.fromisoformat(result["from"]) == at
    firings = read(cli, "next", "job", "--count", "2")
    assert sum(one["skipped"] is not None for one in firings) == 4


def test_the_skip_of_a_scope_needs_the_scope_to_be_taken_back(
    cli: Cli, ask: Ask, at: datetime
) -> None:
    ask("UPDATE cronledger.jobs SET scope_kind = 'shard', scopes = ARRAY['a', 'b', 'c']")
    for scope in ("a", "b"):
        read(cli, "skip", "job", at.isoformat(), "--scope", scope, "--reason", "moved")
    refused(cli("skip", "job", at.isoformat(), "--undo"), "in several scopes (a, b)")
    assert read(cli, "skip", "job", at.isoformat(), "--undo", "--scope", "b")["outcome"] == (
        "withdrawn"
    )
    refused(cli("skip", "job", at.isoformat(), "--undo", "--scope", "c"), "no planned skip")


def test_a_bad_skip_is_refused_with_the_nearest_firings(cli: Cli, ask: Ask, at: datetime) -> None:
    reason = ["--reason", "x"]
    near = f"{at:%Y-%m-%dT%H}:00:00Z and {at + HOUR:%Y-%m-%dT%H}:00:00Z"
    beside = (at + HOUR / 2).isoformat()
    refused(cli("skip", "job", beside, *reason), f"is not a plan_time; the nearest are {near}")
    refused(
        cli("skip", "job", beside, "--through", (at + 0.6 * HOUR).isoformat(), *reason),
        "no plan_time lies from",
    )
    refused(cli("skip", "job", at.isoformat()), "--reason is missing")
    refused(cli("skip", "job", at.isoformat(), *reason, "--undo"), "omit them")
    refused(cli("skip", "job", "soon", *reason), "TIME")
    refused(cli("skip", "jbo", at.isoformat(), *reason), "jbo")
    refused(cli("skip", "job", at.isoformat(), "--undo"), "no planned skip contains")
    ask("UPDATE cronledger.jobs SET schedule = NULL")
    refused(cli("skip", "job", at.isoformat(), *reason), "the job has no schedule")


def test_a_firing_of_a_job_with_after_is_skipped(cli: Cli, db: rows.Db, at: datetime) -> None:
    rows.job(db, "load", schedule=None, after='[{"job": "job", "scope": "same"}]')
    read(cli, "skip", "load", at.isoformat(), "--reason", "stocktaking")
    firings = read(cli, "next", "load", "--count", "2")
    assert [one["skipped"] for one in firings] == [None, "stocktaking", None]
    assert {one["skipped"] for one in read(cli, "next", "job", "--count", "2")} == {None}
