"""`cronledger next`: instants strictly after --from, in UTC and on the local clock."""

import json

import pytest

from tests.cli.conftest import Ask, Cli
from tests.cli.support.results import done, read, refused

NEW_YORK = ["--tz", "America/New_York"]
SCOPES = ("acme", "globex")


def instants(cli: Cli, *arguments: str) -> list[str]:
    return [firing["plan_time"] for firing in read(cli, "next", *arguments)]


def test_json_has_the_firings(bare: Cli) -> None:
    (firing,) = read(bare, "next", "30 9 * * *", *NEW_YORK, "--from", "2026-07-01", "--count", "1")
    assert firing == {
        "plan_time": "2026-07-01T13:30:00Z", "local": "Wed 2026-07-01 09:30:00-04:00", "note": "",
        "excluded": None, "moved_from": [], "skipped": None,
    }  # fmt: skip


def test_firings_are_strictly_after_from(bare: Cli) -> None:
    for spec, *options, since, first in (
        ("30 1 * * *", *NEW_YORK, "2026-11-01T00:00:00", "2026-11-01T05:30:00Z"),
        # An offset in --from outweighs --tz.
        ("@hourly", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"),
        ("@hourly", *NEW_YORK, "2026-01-01T00:00:00+02:00", "2025-12-31T23:00:00Z"),
        ("@every 90s", "1970-01-01", "1970-01-01T00:01:30Z"),
    ):
        assert instants(bare, spec, *options, "--from", since, "--count", "1") == [first]


def test_what_a_clock_change_moves_is_marked(bare: Cli) -> None:
    said = bare("next", "30 2 * * *", *NEW_YORK, "--from", "2026-03-08T00:00:00", "--count", "2")
    shifted, plain = said.stdout.splitlines()[1:]
    assert "2026-03-08T07:00:00Z  Sun 2026-03-08 03:00:00-04:00  shifted" in shifted
    assert "shifted" not in plain
    said = bare("next", "0 * * * *", *NEW_YORK, "--from", "2026-11-01T04:30:00Z", "--count", "2")
    first, second = said.stdout.splitlines()[1:]
    assert "this is the first" in first and "this is the second" in second


def test_warnings_do_not_spoil_the_json(bare: Cli) -> None:
    said = bare("next", "*/45 * * * *", "--json", "--count", "1")
    assert len(json.loads(said.stdout)) == 1
    assert said.stderr.startswith("Warning: ")


def test_an_invalid_argument_is_named(bare: Cli) -> None:
    for *arguments, expected in (
        ("61 * * * *", "61"), ("* * * *", "SPEC"), ("@every 0s", "SPEC"),
        ("@daily", "--tz", "Mars/Olympus", "--tz"), ("@daily", "--from", "tomorrow", "--from"),
        ("@daily", "--scope", "a", "--scope"),
    ):  # fmt: skip
        refused(bare("next", *arguments), expected)


def test_a_job_fires_in_its_zone_its_scope_and_its_interval(filled: Cli, ask: Ask) -> None:
    since = ("--from", "2026-07-01T10:30:00", "--count", "2")
    assert instants(filled, "hourly", *since) == ["2026-07-01T09:00:00Z", "2026-07-01T10:00:00Z"]
    acme, globex = (instants(filled, "tenants", "--scope", x, *since) for x in SCOPES)
    assert acme != globex  # H is of the (job, scope)
    assert acme == instants(filled, "tenants", *since)
    refused(filled("next", "tenants", "--scope", "acne"), "has no scope 'acne'")
    ask(
        "UPDATE cronledger.jobs SET starts_at = '2126-01-01 00:00Z', ends_at ="
        " '2126-01-01 01:00Z' WHERE name = 'hourly'"
    )
    assert instants(filled, "hourly") == ["2126-01-01T00:00:00Z", "2126-01-01T01:00:00Z"]


@pytest.fixture
def holidays(filled: Cli, ask: Ask) -> Cli:
    """The job `hourly` has a calendar with a run of three days, and ends with the year 2127."""
    days = {"2127-12-25": "Christmas Day", "2127-12-26": "Boxing Day", "2127-12-27": "Monday off"}
    ask(
        "SELECT cronledger.set_calendar('de', %s::jsonb, '2127-12-31', first => '2127-01-01')",
        json.dumps(days),
    )
    ask("UPDATE cronledger.jobs SET calendar = 'de' WHERE name = 'hourly'")
    return filled


def test_excluded_dates_are_listed_once_each_as_skipped(holidays: Cli) -> None:
    """Also those of a job that fires often, with its first firing on the date."""
    since = ("--from", "2127-12-24T22:30", "--count", "2")
    lines = holidays("next", "hourly", *since).stdout.splitlines()[1:]
    assert [line.partition("  ")[2].strip() for line in lines] == [
        "Wed 2127-12-24 23:00:00+01:00",
        "Thu 2127-12-25 00:00:00+01:00  skipped: Christmas Day (calendar de)",
        "Fri 2127-12-26 00:00:00+01:00  skipped: Boxing Day (calendar de)",
        "Sat 2127-12-27 00:00:00+01:00  skipped: Monday off (calendar de)",
        "Sun 2127-12-28 00:00:00+01:00",
    ]
    found = read(holidays, "next", "hourly", *since)
    assert [x["excluded"] for x in found][:2] == [
        None, {"calendar": "de", "date": "2127-12-25", "name": "Christmas Day"},
    ]  # fmt: skip


def test_a_moved_firing_names_the_dates_from_which_it_comes(holidays: Cli, ask: Ask) -> None:
    ask(
        "UPDATE cronledger.jobs SET schedule = '0 18 25,26 * *', on_excluded = 'next'"
        " WHERE name = 'hourly'"
    )
    since = ("--from", "2127-12-01", "--count", "1")
    (line,) = holidays("next", "hourly", *since).stdout.splitlines()[1:]
    moved = "moved from 2127-12-25 (Christmas Day) and 2127-12-26 (Boxing Day)"
    assert line.endswith(f"Sun 2127-12-28 18:00:00+01:00  {moved}")
    (found,) = read(holidays, "next", "hourly", *since)
    assert [x["date"] for x in found["moved_from"]] == ["2127-12-25", "2127-12-26"]


def test_the_end_of_a_calendar_is_the_reason_why_there_are_no_further_firings(
    holidays: Cli, ask: Ask
) -> None:
    said = holidays("next", "hourly", "--from", "2127-12-31T22:30", "--count", "2")
    assert len(said.stdout.splitlines()) == 2
    assert "Warning: calendar 'de' ends on 2127-12-31, and the job does not fire" in said.stderr
    ask("UPDATE cronledger.jobs SET ends_at = '2127-12-31 22:00Z' WHERE name = 'hourly'")
    assert holidays("next", "hourly", "--from", "2127-12-31T22:30", "--count", "2").stderr == ""


def test_the_reason_why_a_job_does_not_fire_is_shown(filled: Cli, ask: Ask) -> None:
    assert "runs only when it is triggered" in filled("next", "manual").stderr
    assert "has a time zone" in filled("next", "hourly", "--tz", "UTC").stderr
    filled("jobs", "pause", "hourly")
    said = done(filled, "next", "hourly", "--count", "1")
    assert "is paused until it is resumed" in said.stderr
    filled("jobs", "resume", "hourly")
    ask("UPDATE cronledger.jobs SET spec_error = 'no job extract' WHERE name = 'hourly'")
    assert "does not fire: no job extract" in filled("next", "hourly", "--count", "1").stderr
    refused(filled("next", "nonsense"), "does not exist")
