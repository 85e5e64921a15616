"""`cronledger calendars`, and calendars in `jobs apply`, `run` and completion."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Ask, Cli
from tests.cli.support.daemon import Start
from tests.cli.support.results import done, read, refused

FILE = """
[calendars.de]
weekend = ["Saturday", "Sunday"]
holidays = "DE-BE"

[calendars.de.exclude]
{year}-12-24 = "Christmas Eve"

[jobs.pay]
schedule = "0 18 L * *"
timezone = "Europe/Berlin"
calendar = "de"
on_excluded = "previous"
command = ["true"]
"""


@pytest.fixture
def year(ask: Ask) -> int:
    """The year after the present one of the ledger."""
    return int(ask("SELECT extract(year FROM cronledger.db_now() AT TIME ZONE 'UTC')")[0][0]) + 1


@pytest.fixture
def file(cli: Cli, surroundings: Path, year: int) -> Path:
    """A file with a calendar and a job, which is applied."""
    file = surroundings / "jobs.toml"
    file.write_text(FILE.format(year=year))
    found = done(cli, "jobs", "apply", "jobs.toml")
    assert found.stdout == "set calendar de\nadded pay\nunchanged: 0\n"
    return file


@pytest.mark.long
def test_a_calendar_is_listed_with_its_end_and_shown_with_the_names_of_its_days(
    cli: Cli, file: Path, year: int
) -> None:
    (row,) = read(cli, "calendars", "list")
    assert (row["name"], row["revision"], row["jobs"]) == ("de", 1, 1)
    assert (row["first"], row["through"]) == (f"{year - 2}-01-01", f"{year + 4}-12-31")
    assert row["source"] == str(file)
    assert f"{year + 4}-12-31" in cli("calendars", "list").stdout
    found = read(cli, "calendars", "show", "de")
    assert found["dates"][f"{year}-12-24"] == "Christmas Eve"
    assert found["dates"][f"{year}-12-25"] == "Christmas Day"
    assert len(found["dates"]) == found["excluded"] > 7 * 104
    assert found["declared"]["holidays"] == ["DE-BE"]
    assert [row["revision"] for row in found["revisions"]] == [1]
    shown = cli("calendars", "show", "de", "--year", str(year)).stdout
    assert "Christmas Eve" in shown and f"{year - 1}-12-25" not in shown
    assert f"{year}-10-03" in shown  # a holiday, whichever day of the week it is
    every = cli("calendars", "show", "de", "--year", str(year), "--weekends").stdout
    for weekday in ("Saturday", "Sunday"):
        assert f"  {weekday}  {weekday}" not in shown
        assert sum(line.split()[-2:] == [weekday] * 2 for line in every.splitlines()) > 40


def test_revisions_of_a_calendar_are_compared(cli: Cli, file: Path, year: int) -> None:
    refused(cli("calendars", "diff", "de"), "revision 1 of calendar 'de' is its first")
    text = FILE.format(year=year).replace("DE-BE", "DE")  # without March 8
    file.write_text(
        f'{text}\n[calendars.de.include]\n{year}-12-25 = "Open"\n'.replace("Eve", "Day")
    )
    assert "set calendar de" in cli("jobs", "apply", "jobs.toml").stdout
    found = read(cli, "calendars", "diff", "de")
    assert (found["before"]["revision"], found["after"]["revision"]) == (1, 2)
    changes = {one["date"]: (one["before"], one["after"]) for one in found["dates"]}
    assert changes[f"{year}-12-24"] == ("Christmas Eve", "Christmas Day")
    assert changes[f"{year}-12-25"] == ("Christmas Day", None)
    back = read(cli, "calendars", "diff", "de", "2", "1")
    assert {one["date"]: (one["after"], one["before"]) for one in back["dates"]} == changes
    old = read(cli, "calendars", "show", "de", "--revision", "1")
    assert old["dates"][f"{year}-12-25"] == "Christmas Day"


def test_an_unknown_calendar_or_revision_is_refused(cli: Cli, file: Path) -> None:
    for command in (("show", "fr"), ("diff", "fr"), ("show", "fr", "--revision", "1")):
        refused(cli("calendars", *command), "calendar 'fr' does not exist; `cronledger calendars")
    refused(cli("calendars", "show", "de", "--revision", "7"), "has no revision 7; `cronledger")
    refused(cli("calendars", "diff", "de", "7"), "has no revision 7")


def test_without_calendars_the_list_says_how_to_declare_one(cli: Cli) -> None:
    found = cli("calendars", "list")
    assert (found.exit_code, found.stdout) == (0, "")
    assert "a source declares them as [calendars.NAME]" in found.stderr


def test_an_apply_without_changes_sets_no_calendar_and_one_without_days_is_a_warning(
    cli: Cli, file: Path
) -> None:
    assert cli("jobs", "apply", "jobs.toml").stdout == "unchanged: 1\n"
    found = read(cli, "jobs", "apply", "jobs.toml")
    assert (found["calendars"], found["unchanged"]) == ([], 1)
    assert set(found) == {
        "added", "changed", "retired", "unchanged", "refused", "channels", "calendars"
    }  # fmt: skip
    file.write_text(file.read_text() + "\n[calendars.empty]\n")
    applied = done(cli, "jobs", "apply", "jobs.toml")
    assert "calendars.empty: excludes no day; add for example weekend = " in applied.stderr


@pytest.mark.long
def test_a_replica_applies_the_calendars_of_its_source(start: Start, cli: Cli, year: int) -> None:
    Path("cronledger.toml").write_text(FILE.format(year=year) + "[calendars.empty]\n")
    warning = start().until_event("declaration_warning")
    assert "calendars.empty: excludes no day" in warning["problem"]
    assert {row["name"]: row["jobs"] for row in read(cli, "calendars", "list")} == {
        "de": 1, "empty": 0
    }  # fmt: skip


def test_check_shows_what_a_calendar_moves(bare: Cli) -> None:
    Path("jobs.toml").write_text(FILE.format(year=2027))
    at = ("--from", "2026-11-26T12:00:00Z", "--format", "json")
    found = json.loads(bare("check", "jobs.toml", *at).stdout)
    assert found["jobs"][0]["calendar_firings"] == [
        {"year": 2027, "disappear": 4, "appear": 4, "note": "calendar de: 4 firings of 2027 move"}
    ]
    (calendar,) = found["calendars"]
    assert (calendar["calendar"], calendar["through"]) == ("de", "2031-12-31")


def test_check_warns_of_a_calendar_that_ends_soon_and_of_an_undeclared_one(bare: Cli) -> None:
    text = FILE.format(year=2026).replace('"DE-BE"', '"DE-BE"\nthrough = 2026')
    other = '[jobs.b]\nschedule = "@daily"\ncommand = ["true"]\ncalendar = "ed"\n'
    Path("jobs.toml").write_text(text + other)
    at = ("--from", "2026-11-26T12:00:00Z", "--format", "json")
    found = done(bare, "check", "jobs.toml", *at)
    messages = {one["line"]: one["message"] for one in json.loads(found.stdout)["findings"]}
    assert "through: the calendar ends on 2026-12-31, and its jobs do not fire" in messages[5]
    lines = Path("jobs.toml").read_text().split("\n")
    assert (
        'jobs.b.calendar = "ed": is a calendar that no checked source declares, so the firings '
        "are shown as if there were none; also check the source that declares it, or use one of de"
    ) in messages[lines.index('calendar = "ed"') + 1]


def test_a_diff_shows_the_dates_and_the_firings_that_move(cli: Cli, file: Path, year: int) -> None:
    # Every day of the last week of March: the last business day is one before it.
    closed = "\n".join(f'{year}-03-{day} = "Stocktaking"' for day in range(20, 32))
    file.write_text(
        file.read_text().replace("[calendars.de.exclude]", f"[calendars.de.exclude]\n{closed}")
    )
    lines = cli("jobs", "diff", "jobs.toml").stdout.splitlines()
    assert lines[0] == "changed calendar de"
    assert sum("Stocktaking" in line for line in lines) == 12
    found = read(cli, "jobs", "diff", "jobs.toml")
    (calendar,) = found["calendars"]
    assert (calendar["before"]["revision"], calendar["after"]["revision"]) == (1, None)
    assert found["jobs"][0]["calendar_firings"] == [{"year": year, "disappear": 1, "appear": 1}]
    applied = read(cli, "jobs", "apply", "jobs.toml")
    assert (applied["calendars"], applied["changed"]) == (["de"], ["pay"])
