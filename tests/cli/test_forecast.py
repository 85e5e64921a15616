"""`cronledger forecast`: the coming days, also with files, pauses and slots that are assumed."""

from calendar import day_name
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Ask, Cli
from tests.cli.support.clocks import set_ten_past
from tests.cli.support.results import done, read, refused
from tests.db.support import rows
from tests.db.support.rows import Db

FILE = """
[jobs.hourly]
schedule = "0 * * * *"
command = ["true"]
finish_by = "10m"

[jobs.often]
schedule = "*/30 * * * *"
command = ["true"]

[jobs.manual]
command = ["true"]
"""
HOUR = timedelta(hours=1)


@pytest.fixture
def file(cli: Cli, surroundings: Path, db: Db) -> Path:
    """A file that is applied at ten past an hour, with a runner of one slot, and a history: an
    execution of `hourly` takes 15 minutes.
    """
    file = surroundings / "jobs.toml"
    file.write_text(FILE)
    set_ten_past(db)
    done(cli, "jobs", "apply", "jobs.toml")
    rows.runner(db, slots=1)
    _history(db, "hourly", 900)
    return file


def _history(db: Db, job: str, seconds: int) -> None:
    at = rows.now(db) - timedelta(hours=2)
    rows.execution(db, "SUCCESS", job, plan_time=at, duration_ms=1000 * seconds)


def of(found: dict[str, Any], job: str) -> dict[str, int]:
    """Return the outcomes of a job over all days."""
    sums: dict[str, int] = {}
    for row in found["jobs"]:
        if row["job"] == job:
            for name, count in row.items():
                if name not in ("job", "day"):
                    sums[name] = sums.get(name, 0) + count
    return sums


def test_the_coming_day_has_starts_waits_and_deadlines(cli: Cli, file: Path) -> None:
    found = read(cli, "forecast", "--days", "1")
    assert of(found, "hourly") == {"starts": 24}
    # At the end of the day, the last one may wait for the slot.
    assert sum(of(found, "often").values()) == 48
    assert of(found, "manual") == {}
    (queue,) = found["queues"]
    assert (queue["slots"], queue["most_running"]) == (1, 1)
    # On the hour, `often` waits for `hourly`, or the other way round.
    assert {row["cause"] for row in found["backlogs"]} == {"slots"}
    assert found["missed_deadlines"] == 24
    shown = done(cli, "forecast", "--days", "1")
    for words in ("DAY", "Waiting for slots or limits", "Deadlines at risk", "Worst minutes"):
        assert words in shown.stdout
    assert "these jobs have no durations yet, so they take no time here: often" in shown.stderr


def test_assumed_slots_take_the_place_of_the_runners(cli: Cli, file: Path) -> None:
    found = read(cli, "forecast", "--days", "1", "--slots", "2")
    assert not found["backlogs"] and found["queues"][0]["slots"] == 2
    named = read(cli, "forecast", "--days", "1", "--slots", "default=3", "--slots", "other=1")
    assert named["queues"][0]["slots"] == 3
    refused(cli("forecast", "--slots", "default=many"), "write it like 20 or default=20")


def test_a_forecast_is_compared_with_a_file(cli: Cli, file: Path, ask: Ask) -> None:
    before = ask("SELECT count(*), max(revision) FROM cronledger.job_revisions")
    file.write_text(
        FILE.replace("*/30 * * * *", "15 * * * *").replace("[jobs.manual]", "[jobs.third]")
        + 'schedule = "45 * * * *"\nexpect_duration = "1m"\n'
    )
    found = read(cli, "forecast", "--days", "1", "--with", "jobs.toml")
    changed = {row["job"] for row in found["differences"]}
    assert changed == {"often", "third"}
    assert of(found, "often") == {"starts": 24} and of(found, "third") == {"starts": 24}
    assert ask("SELECT count(*), max(revision) FROM cronledger.job_revisions") == before
    file.write_text(FILE)
    same = cli("forecast", "--days", "1", "--with", "jobs.toml").stdout
    assert "No day of a job differs." in same


def test_a_removed_job_and_a_calendar_of_a_file_count(
    cli: Cli, file: Path, surroundings: Path, ask: Ask
) -> None:
    ((today,),) = ask("SELECT extract(isodow FROM cronledger.db_now() AT TIME ZONE 'UTC')::int")
    later = (today + 2) % 7  # the day after tomorrow, as an index of calendar.day_name
    weekend = [name for n, name in enumerate(day_name) if n not in (later, (later + 1) % 7)]
    file.write_text(
        f"[calendars.rest]\nweekend = {weekend}\n"
        + FILE.split("[jobs.often]", maxsplit=1)[0].replace("command", 'calendar = "rest"\ncommand')
    )
    found = read(cli, "forecast", "--days", "1", "--with", "jobs.toml")
    assert of(found, "hourly") == {"starts": 0, "calendar": 24}
    assert of(found, "often") == {}
    other = surroundings / "other.toml"
    other.write_text(FILE)
    refused(cli("forecast", "--with", "other.toml"), "hourly")
    refused(cli("forecast", "--source", "jobs"), "--source needs exactly one --with")
    as_applied = ("--with", "other.toml", "--source", str(file))
    assert read(cli, "forecast", "--days", "1", *as_applied)["differences"] == []


def test_an_assumed_pause_skips_its_firings(cli: Cli, file: Path, ask: Ask) -> None:
    found = read(cli, "forecast", "--days", "1", "--slots", "9", "--pause", "often=2h/8h")
    assert of(found, "often") == {"starts": 36, "paused": 12}
    assert of(found, "hourly") == {"starts": 24}
    start = datetime.fromisoformat(found["after"])
    absolute = f"{(start + HOUR).isoformat()}/{(start + 2 * HOUR).isoformat()}"
    assert of(read(cli, "forecast", "--days", "1", "--pause", absolute), "hourly")["paused"] == 1
    refused(cli("forecast", "--pause", "nothing=1h/2h"), "'nothing' does not exist")
    refused(cli("forecast", "--pause", "2h"), "write it like report=2h/8h")
    refused(cli("forecast", "--pause", "3h/2h"), "swap the times")


def test_the_pause_of_a_job_counts(cli: Cli, file: Path, ask: Ask) -> None:
    for more, outcomes in (
        (", until => cronledger.db_now() + interval '12 h'", {"starts": 24, "paused": 24}),
        ("", {"starts": 0, "paused": 48}),
    ):
        ask(f"SELECT cronledger.pause('often'{more})")
        assert of(read(cli, "forecast", "--days", "1", "--slots", "9"), "often") == outcomes
        ask("SELECT cronledger.resume('often')")


def test_a_planned_pause_and_a_planned_skip_have_the_plan_times_at_both_ends(
    cli: Cli, file: Path, ask: Ask
) -> None:
    ask(
        "SELECT cronledger.plan_pause('freeze', at + interval '2 h', at + interval '4 h',"
        " job => 'hourly'),"
        " cronledger.skip('often', at + interval '2 h', 'move', through => at + interval '4 h')"
        " FROM date_trunc('hour', cronledger.db_now()) at"
    )
    found = read(cli, "forecast", "--days", "1", "--slots", "9")
    assert of(found, "hourly") == {"starts": 21, "paused": 3}
    assert of(found, "often") == {"starts": 43, "operator": 5}


def test_limits_of_queues_count_and_queues_without_a_runner_are_named(
    cli: Cli, file: Path, ask: Ask
) -> None:
    ask("SELECT cronledger.limit_queue('default', 1)")
    found = read(cli, "forecast", "--days", "1", "--slots", "9")
    assert found["queues"][0]["limit"] == 1
    assert {row["cause"] for row in found["backlogs"]} == {"queue limit"}
    ask("UPDATE cronledger.runners SET stale_after = cronledger.db_now() - interval '1 s'")
    shown = cli("forecast", "--days", "1")
    unlimited = "no live runner serves these queues, so their slots are unlimited here"
    assert f"{unlimited}, unless --slots names them: " in shown.stderr
    assert read(cli, "forecast", "--days", "1")["queues"][0]["slots"] is None


def test_a_planned_pause_counts_for_the_jobs_that_it_selects(
    cli: Cli, file: Path, ask: Ask
) -> None:
    ask(
        "SELECT cronledger.plan_pause('freeze', at.at + interval '2 h', at.at + interval '8 h',"
        """ labels => '{"tier": "batch"}')"""
        " FROM (SELECT cronledger.db_now()) at(at)"
    )
    ask("""UPDATE cronledger.jobs SET labels = '{"tier": "batch"}' WHERE name = 'often'""")
    before = read(cli, "forecast", "--days", "1", "--slots", "9", "--pause", "hourly=1h/2h")
    assert of(before, "often") == {"starts": 36, "paused": 12}
    assert of(before, "hourly") == {"starts": 23, "paused": 1}
    labels = '[jobs.hourly]\nlabels = { tier = "batch" }'
    file.write_text(FILE.replace("[jobs.hourly]", labels))
    after = read(cli, "forecast", "--days", "1", "--slots", "9", "--with", "jobs.toml")
    assert of(after, "hourly") == {"starts": 18, "paused": 6}
    assert of(after, "often") == {"starts": 48}


def test_gates_wait_or_expire(cli: Cli, file: Path, ask: Ask) -> None:
    Path("more.toml").write_text(
        '[jobs.load]\nafter = "hourly"\ncommand = "true"\nwait_at_most = "30m"\n'
    )
    done(cli, "jobs", "apply", "more.toml")
    found = read(cli, "forecast", "--days", "1", "--slots", "9", "--pause", "hourly=2h/4h")
    # The last one waits for the end of `hourly`, five minutes after the end of the forecast.
    assert of(found, "load") == {"starts": 21, "upstream": 2, "waits": 1}
    (gate,) = found["gates"]
    assert (gate["job"], gate["upstream"], gate["count"], gate["expired"]) == (
        "load", "hourly", 24, 2
    )  # fmt: skip
    assert gate["longest"] == "30m"
    assert "Gates that wait" in cli("forecast", "--days", "1").stdout
    # An edit of the required job is an edit of the jobs that come after it.
    file.write_text(FILE.replace("0 * * * *", "30 * * * *"))
    moved = read(cli, "forecast", "--days", "1", "--slots", "9", "--with", "jobs.toml")
    assert of(moved, "load") == {"starts": 24}
    assert {row["longest"] for row in moved["gates"]} == {"15m"}


def test_a_free_minute_is_suggested(cli: Cli, file: Path) -> None:
    found = read(cli, "forecast", "--suggest", "@hourly")["suggestion"]
    minute = int(found["schedule"].split()[0])
    assert found["starts"] == 0 and (15 < minute < 30 or 30 < minute < 60)
    assert "Suggestion: " in cli("forecast", "--suggest", "@daily").stdout


def test_an_empty_ledger_has_no_firings(cli: Cli) -> None:
    assert "nothing is planned" in cli("forecast").stderr
