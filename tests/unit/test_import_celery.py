"""`import celery`: its jobs are due when beat finds its entries due."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import tomlkit
from celery import Celery
from celery.schedules import crontab, schedule, solar

from cronledger.contrib.celery import Message, send
from cronledger.sources import celery_beat
from cronledger.sources.celery_beat import BeatEntry
from cronledger.sources.imported import Entry
from tests.cli.support.results import refused
from tests.unit.support.imports import assert_same_year, firings, loaded, run_import

START = datetime(2031, 1, 1, tzinfo=UTC)
YEAR = timedelta(days=366)


def converted(values: dict[str, Any], zone: str = "UTC", **more: Any) -> Entry:
    imported = celery_beat.convert("shop:app", "test", [BeatEntry("entry", values, zone, **more)])
    return imported.sources[0].entries[0]


def table(when: Any, zone: str = "UTC", **more: Any) -> dict[str, Any]:
    (found,) = converted({"task": "t", "schedule": when, **more}, zone).jobs.values()
    return dict(found)


def said(values: dict[str, Any]) -> str:
    return " ".join(note.message for note in converted(values).notes)


def due_times(of: crontab | schedule, zone: str) -> Iterator[datetime]:
    """Yield the instants at which beat finds the entry due, as it does from one to the next."""
    app = Celery("test", set_as_current=False)
    app.conf.timezone = zone
    of.app = app
    now = START.astimezone(ZoneInfo(zone))
    of.nowfun = lambda: now
    while True:
        last = now
        now = (last.astimezone(UTC) + of.remaining_estimate(last)).astimezone(ZoneInfo(zone))
        if now > START + YEAR:
            return
        assert zone != "UTC" or of.is_due(last)[0]
        yield now.astimezone(UTC)


def seeded(seed: int) -> crontab:
    draw = random.Random(seed)
    fields: dict[str, Any] = {
        "hour": draw.choice(["3", 2, "*/6", "1-3", "0,2,23", "22-1", [5, 17]]),
        "minute": draw.choice(["0", 30, "15,45", "59", {0, 1, 2}, "*/30"]),
    }
    if draw.random() < 0.5:
        fields["day_of_month"] = draw.choice(["1", "1-7", "*/10", "31", "13,14,15", "2-30/7"])
    if draw.random() < 0.5:
        fields["day_of_week"] = draw.choice(["0", "6", "mon-fri", "sat,sun", "*/2", "fri-mon"])
    if draw.random() < 0.3:
        fields["month_of_year"] = draw.choice(["1", "*/3", "2,12", "jan-mar", "11-2"])
    return crontab(**fields)


@pytest.mark.long
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"])
def test_crontabs_are_due_at_the_same_instants_for_a_year_F116(zone: str) -> None:
    entries = [seeded(seed) for seed in range(25)]
    assert_same_year(zone, START, ((table(x, zone), due_times(x, zone)) for x in entries))


def test_intervals_have_the_same_distance_F116() -> None:
    for given in (
        timedelta(minutes=90), 5400, schedule(7201), schedule(7200, relative=True),
        schedule(5400, relative=True), schedule(86_400, relative=True),
    ):  # fmt: skip
        of = given if isinstance(given, schedule) else schedule(timedelta(minutes=90))
        ours = firings(table(given), START, START + YEAR)
        theirs = list(islice(due_times(of, "UTC"), 100))
        assert {b - a for a, b in pairwise(ours)} == {b - a for a, b in pairwise(theirs)}
    assert "fixed grid" in said({"task": "t", "schedule": 60})
    assert "fixed grid" not in said({"task": "t", "schedule": schedule(60, relative=True)})
    assert "the period is shorter" in said({"task": "t", "schedule": schedule(90, relative=True)})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (crontab(hour=6), "each minute of hour 6; perhaps '0 6 * * *' was meant"),
        (crontab(day_of_week="mon"), "each minute of these days; perhaps '0 0 * * 1' was meant"),
        (crontab(), ""),
    ],
)
def test_a_minute_that_was_left_out_is_noted_F116(given: crontab, words: str) -> None:
    entry = converted({"task": "t", "schedule": given})
    assert " ".join(note.message for note in entry.notes).endswith(words)
    assert bool(entry.notes) == bool(words)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"schedule": object.__new__(solar)}, "cannot follow the sun"),
        ({"schedule": 0.5}, "not whole seconds"),
        ({"schedule": "0 6 * * *"}, "only crontab and intervals"),
        ({}, "schedule is None"),
        ({"schedule": 60, "task": None}, "not the name of a task"),
        ({"schedule": 60, "args": "eu"}, "not a list or tuple"),
        ({"schedule": 60, "kwargs": {1: 2}}, "not a mapping of names"),
        ({"schedule": 60, "args": [object()]}, "is not JSON"),
        ({"schedule": 60, "kwargs": {"since": None}}, "None, which TOML cannot write"),
    ],
)
def test_what_has_no_equivalent_is_left_out_with_the_reason_F116(
    values: dict[str, Any], words: str
) -> None:
    entry = converted({"task": "t", **values})
    assert not entry.jobs
    assert [note.kind for note in entry.notes if words in note.message] == ["dropped"]


def test_the_message_has_the_arguments_and_options_of_its_entry_F116() -> None:
    at = START + YEAR
    options = {"queue": "q", "priority": 3, "expires": timedelta(minutes=10), "eta": at}
    entry = converted({
        "task": "shop.sync", "schedule": 60, "args": ("eu",), "kwargs": {"deep": [{"a": 1}]},
        "options": options,
    })  # fmt: skip
    (job,) = entry.jobs.values()
    assert tomlkit.parse(tomlkit.dumps({"payload": job["payload"]})).unwrap()["payload"] == {
        "app": "shop:app", "task": "shop.sync", "args": ["eu"], "kwargs": {"deep": [{"a": 1}]},
        "options": {"queue": "q", "priority": 3, "expires": 600.0},
    }  # fmt: skip
    assert [note.kind for note in entry.notes if "option eta" in note.message] == ["changed"]


SENT: list[Any] = []
MEMORY = Celery("memory", broker="memory://", set_as_current=False)


def known(*args: Any, **kwargs: Any) -> None:
    SENT.append((args, kwargs))


MEMORY.task(name="known")(known)


def test_the_handler_sends_the_message_F116() -> None:
    MEMORY.conf.task_always_eager = True
    payload = Message(app=f"{__name__}:MEMORY", task="known", args=["eu"], kwargs={"a": 1})
    assert send(payload)["task_id"]
    assert SENT.pop() == (("eu",), {"a": 1})
    MEMORY.conf.task_always_eager = False
    unknown = Message(app=f"{__name__}:MEMORY", task="elsewhere", options={"queue": "q"})
    assert send(unknown)["task_id"]
    with MEMORY.connection_for_read() as connection:
        message = connection.SimpleQueue("q").get_nowait()
    assert message.headers["task"] == "elsewhere"


run = partial(run_import, "celery")


def test_the_command_reads_the_entries_of_an_app_F116(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "beat_project.py").write_text(
        "from celery import Celery\n"
        "from celery.schedules import crontab\n"
        "app = Celery('shop', broker='memory://', set_as_current=False)\n"
        "app.conf.timezone = 'Europe/Berlin'\n"
        "app.conf.beat_schedule = {'a report': {'task': 't', 'schedule': crontab(0, 6)}}\n"
        "@app.on_after_finalize.connect\n"
        "def add(sender, **_):\n"
        "    sender.add_periodic_task(90.0, sender.signature('u'), name='added')\n"
        "broken = Celery('x', set_as_current=False)\n"
        "broken.conf.beat_schedule = 5\n"
    )
    found = run("beat_project:app")
    assert found.exit_code == 0, found.output
    jobs = tomlkit.parse(found.stdout).unwrap()["jobs"]
    assert {name: (x["schedule"], x.get("timezone")) for name, x in jobs.items()} == {
        "a-report": ("0 6 * * *", "Europe/Berlin"), "added": ("@every 90s", None),
    }  # fmt: skip
    refused(run("beat_project:broken"), "beat_schedule is a int, not a mapping")
    refused(run("beat_project:add"), "not a Celery")
    refused(run("beat_project"), "it is not package.module:name")


@pytest.mark.slow
def test_mutated_entries_end_with_a_clear_error_F116(tmp_path: Path) -> None:
    entry = {
        "task": "t", "schedule": crontab(0, 6), "args": ["eu"], "kwargs": {"a": [1]},
        "options": {"queue": "q", "expires": 60}, "relative": False,
    }  # fmt: skip
    row = {
        "name": "n", "task": "t", "args": "[]", "kwargs": "{}", "queue": None, "exchange": None,
        "routing_key": None, "headers": "{}", "priority": 3, "expires": START, "one_off": False,
        "expire_seconds": 60, "start_time": None, "enabled": True, "minute": "0", "hour": "6",
        "day_of_month": "*", "month_of_year": "*", "day_of_week": "*", "timezone": "UTC",
        "every": None, "period": None, "solar_id": None, "clocked_id": None,
    }  # fmt: skip
    junk = [
        None, "", "x" * 300, -1, 0, 1.5, float("nan"), float("inf"), 10**30, [], {}, (None,), b"x",
        {1: 2}, {"expires": -1}, object(), "\x00", "\ud800", crontab(hour=6), timedelta(days=-1),
        timedelta.max, True, "*/0", "61", "[", '{"a": null}', "5-", "mon-xyz", "Mars/Olympus",
    ]  # fmt: skip
    kept = 0
    for seed in range(2_000):
        draw = random.Random(seed)
        of_row = draw.random() < 0.5
        changed: dict[str, Any] = dict(row if of_row else entry)
        for _ in range(draw.randint(1, 3)):
            changed[draw.choice(list(changed))] = draw.choice(junk)
        one = celery_beat.entry_of_row(changed) if of_row else BeatEntry("n", changed, "UTC")
        imported = celery_beat.convert("shop:app", "test", [one])
        (found,) = imported.sources[0].entries
        assert found.jobs or [note for note in found.notes if note.kind == "dropped"], seed
        if found.jobs:
            kept += loaded(imported, tmp_path)
    assert kept > 200
