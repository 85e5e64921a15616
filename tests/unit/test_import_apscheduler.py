"""`import apscheduler`: its jobs fire when the triggers of APScheduler do."""

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.combining import AndTrigger, OrTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger

from cronledger.contrib import apscheduler as handlers
from cronledger.sources import apscheduler_jobs, toml
from cronledger.sources.imported import Entry
from tests.cli.support.results import refused
from tests.unit.support.imports import assert_same_year, firings, run_import

NOW = datetime(2031, 1, 1, tzinfo=UTC)
YEAR = timedelta(days=366)


def function(*args: Any, **_: Any) -> list[Any]:
    return list(args)


async def async_function() -> str:
    return "done"


def converted(trigger: Any, **more: Any) -> Entry:
    scheduler = BackgroundScheduler(timezone="UTC", job_defaults=more.pop("defaults", {}))
    scheduler.add_job(more.pop("function", function), trigger, id="x", **more)
    imported = apscheduler_jobs.convert("test", apscheduler_jobs.jobs_of(scheduler), NOW)
    ((entry,),) = [source.entries for source in imported.sources]
    return entry


def table(trigger: Any, **more: Any) -> dict[str, Any]:
    (found,) = converted(trigger, **more).jobs.values()
    return dict(found)


def said(trigger: Any, **more: Any) -> str:
    return " ".join(note.message for note in converted(trigger, **more).notes)


def fire_times(trigger: Any, after: datetime, through: datetime) -> Iterator[datetime]:
    previous, now = None, after + timedelta(microseconds=1)
    while (found := trigger.get_next_fire_time(previous, now)) is not None and found <= through:
        yield found.astimezone(UTC)
        previous, now = found, found.astimezone(UTC) + timedelta(microseconds=1)


def seeded(seed: int, zone: str) -> CronTrigger:
    """A trigger that fires at most a few hundred times a year in most cases."""
    draw = random.Random(seed)
    fields: dict[str, Any] = {
        "hour": draw.choice(["3", "2", "*/6", "1-3", "0,2,23", "5/9"]),
        "minute": draw.choice(["0", "30", "15,45", "59"]),
    }
    if draw.random() < 0.3:
        fields["second"] = draw.choice(["0", "30", "5,10"])
    if draw.random() < 0.5:
        fields["day"] = draw.choice(
            ["1", "last", "2nd fri", "last mon", "1-7", "*/10", "31", "5/7"]
        )
    if draw.random() < 0.5 and " " not in fields.get("day", ""):
        fields["day_of_week"] = draw.choice(["0", "6", "mon-fri", "sat,sun", "*/2", "5/1"])
    if draw.random() < 0.3:
        fields["month"] = draw.choice(["1", "jan-mar", "*/3", "2,12"])
    return CronTrigger(timezone=zone, **fields)


@pytest.mark.long
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"])
def test_cron_triggers_fire_at_the_same_instants_for_a_year_F116(zone: str) -> None:
    triggers = [seeded(seed, zone) for seed in range(25)]
    assert_same_year(zone, NOW, ((table(x), fire_times(x, NOW, NOW + YEAR)) for x in triggers))


def test_other_triggers_fire_when_they_did_F116() -> None:
    start = NOW + timedelta(seconds=17)
    interval = IntervalTrigger(minutes=7, start_date=start, end_date=NOW + timedelta(days=3))
    job = table(interval, jitter=None)
    ours = firings(job, NOW, NOW + YEAR)
    theirs = list(fire_times(interval, NOW, NOW + YEAR))
    assert {b - a for a, b in pairwise(ours)} == {timedelta(minutes=7)}
    assert abs(len(ours) - len(theirs)) <= 1
    assert abs(ours[-1] - theirs[-1]) < timedelta(minutes=7)

    at = NOW + timedelta(days=40, seconds=3)
    date = DateTrigger(at)
    assert firings(table(date), NOW, NOW + YEAR) == list(fire_times(date, NOW, NOW + YEAR)) == [at]
    assert "has passed" in said(DateTrigger(NOW))
    bounded = CronTrigger(hour=3, start_date=at, end_date=at + timedelta(days=9), timezone="UTC")
    assert firings(table(bounded), NOW, NOW + YEAR) == list(fire_times(bounded, NOW, NOW + YEAR))

    both = OrTrigger([CronTrigger(hour=3, timezone="UTC"), CronTrigger(hour=5, timezone="UTC")])
    jobs = converted(both).jobs
    assert [x["schedule"] for x in jobs.values()] == ["0 3 * * *", "0 5 * * *"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"catch_up": "skip", "grace": "60s", "overlap": "skip"}),
        ({"executor": "heavy", "misfire_grace_time": None},
         {"queue": "heavy", "catch_up": "latest", "overlap": "skip"}),
        ({"coalesce": False, "misfire_grace_time": 600},
         {"catch_up": "all", "catch_up_window": "600s", "overlap": "wait"}),
        ({"defaults": {"max_instances": 3}},
         {"catch_up": "skip", "grace": "60s", "overlap": "allow", "max_running": 3}),
    ],
)  # fmt: skip
def test_policies_of_jobs_and_of_their_scheduler_are_kept_F116(
    given: dict[str, Any], expected: dict[str, Any]
) -> None:
    found = table(CronTrigger(hour=3, timezone="UTC"), **given)
    fixed = ("schedule", "timezone", "python", "payload")
    assert {k: v for k, v in found.items() if v is not None and k not in fixed} == expected
    jitter = table(CronTrigger(hour=3, timezone="UTC", jitter=10))
    assert jitter["jitter"] == "10s"
    assert "not shorter" in said(CronTrigger(minute="*", jitter=60))


@pytest.mark.parametrize(
    ("trigger", "given", "words"),
    [
        (CronTrigger(week=3), {}, "week has no equivalent"),
        (AndTrigger([CronTrigger(hour=3)]), {}, "AndTrigger has no equivalent"),
        (CronTrigger(day="1st mon,3"), {}, "beside days have no equivalent"),
        (CronTrigger(day="1st mon", day_of_week="tue"), {}, "use a job for each"),
        (IntervalTrigger(seconds=1.5), {}, "not whole seconds"),
        (CronTrigger(hour=3), {"function": lambda: None}, "use a function of a module"),
        (CronTrigger(hour=3), {"args": [object()]}, "is not JSON"),
        (CronTrigger(hour=3), {"args": [None]}, "None, which TOML cannot write"),
        (CronTrigger(hour=3), {"next_run_time": None}, "the job is paused"),
    ],
)
def test_what_has_no_equivalent_is_left_out_with_the_reason_F116(
    trigger: Any, given: dict[str, Any], words: str
) -> None:
    entry = converted(trigger, **given)
    assert not entry.jobs
    assert [note.kind for note in entry.notes if words in note.message] == ["dropped"]


run = partial(run_import, "apscheduler")


def test_the_jobs_of_a_program_and_of_its_export_are_the_same_F116(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "aps_program.py").write_text(
        "from apscheduler.schedulers.background import BackgroundScheduler\n"
        "from tests.unit.test_import_apscheduler import async_function, function\n"
        "scheduler = BackgroundScheduler(timezone='Europe/Berlin')\n"
        "scheduler.add_job(function, 'cron', hour=6, id='report', args=['eu'])\n"
        "scheduler.add_job(async_function, 'interval', seconds=90, id='sync')\n"
        "empty = BackgroundScheduler()\n"
    )
    from_program = run("aps_program:scheduler")
    assert from_program.exit_code == 0, from_program.output
    jobs = tomlkit.parse(from_program.stdout).unwrap()["jobs"]
    assert (jobs["report"]["schedule"], jobs["sync"]["schedule"]) == ("0 6 * * *", "@every 90s")
    assert jobs["sync"]["python"].endswith(":call_async")

    import importlib

    scheduler = importlib.import_module("aps_program").scheduler
    scheduler.start(paused=True)
    scheduler.export_jobs(str(tmp_path / "jobs.json"))
    scheduler.shutdown(wait=False)
    from_export = run("jobs.json")
    assert tomlkit.parse(from_export.stdout).unwrap()["jobs"] == jobs

    refused(run("aps_program:empty"), "the scheduler has no jobs")
    refused(run("aps_program:function"), "not a BaseScheduler")
    monkeypatch.setattr("importlib.metadata.version", lambda name: "4.0.0a6")
    refused(run("aps_program:scheduler"), "APScheduler 4.0.0a6 is not supported")


async def test_the_handlers_call_the_function_of_their_payload_F116() -> None:
    payload = handlers.Call(function=f"{__name__}:function", args=["eu", 3])
    assert handlers.call(payload) == ["eu", 3]
    asynchronous = handlers.Call(function=f"{__name__}:async_function")
    assert await handlers.call_async(asynchronous) == "done"


ODD = [None, "", "x" * 300, -1, 0, 1.5, 10**30, [], {}, [None], {"a": 1}, True, "\x00\ud800"]


@pytest.mark.slow
def test_mutated_exports_end_with_a_clear_error_F116(tmp_path: Path) -> None:
    scheduler = BackgroundScheduler(timezone="UTC")
    scheduler.start(paused=True)
    scheduler.add_job(function, "cron", hour=6, day="last", id="a", args=["eu"], jitter=5)
    scheduler.add_job(function, "interval", seconds=90, id="b", kwargs={"x": [1]})
    scheduler.add_job(function, "date", run_date=NOW + YEAR, id="c")
    scheduler.export_jobs(str(file := tmp_path / "jobs.json"))
    scheduler.shutdown(wait=False)
    exported = json.loads(file.read_text())
    kept, written = 0, tmp_path / "cronledger.toml"
    for seed in range(2_000):
        draw = random.Random(seed)
        changed = json.loads(json.dumps(exported))
        for _ in range(draw.randint(1, 3)):
            place, key = draw.choice([*places(changed)])
            if draw.random() < 0.2:
                del place[key]
            else:
                place[key] = draw.choice(ODD)
        text = json.dumps(changed)
        if draw.random() < 0.2:
            at = draw.randrange(len(text))
            text = text[:at] + draw.choice('"{}[],:0x ') + text[at + 1 :]
        file.write_text(text)
        found = run(str(file))
        assert found.exit_code in (0, 1, 2), (seed, found.output)
        assert "Traceback" not in found.output, (seed, found.output)
        if found.exit_code != 2:
            kept += 1
            written.write_text(found.stdout)
            toml.load(written)
    assert kept > 200


def places(document: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each place in nested JSON, but none in pickled text, which could run anything."""
    for key, inner in list(document.items() if isinstance(document, dict) else enumerate(document)):
        if key not in ("__apscheduler_pickle__", "__apscheduler_class__"):
            yield document, key
            if isinstance(inner, dict | list):
                yield from places(inner)
