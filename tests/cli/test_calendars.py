"""`cronledger calendars`, and calendars in `jobs apply`, `run` and completion."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from cronledger.cli import main
from tests.cli.conftest import Ask, Cli
from tests.cli.support.daemon import Start
from tests.cli.support.results import read, refused
from tests.waiting import until

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
    found = cli("jobs", "apply", "jobs.toml")
    assert found.exit_code == 0, found.output
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
    shown = cli("calendars", "list").stdout
    assert shown.split()[:3] == ["CALENDAR", "REVISION", "THROUGH"]
    assert f"{year + 4}-12-31" in shown
    found = read(cli, "calendars", "show", "de")
    assert found["dates"][f"{year}-12-24"] == "Christmas Eve"
    assert found["dates"][f"{year}-12-25"] == "Christmas Day"
    assert len(found["dates"]) == found["excluded"] > 7 * 104
    assert found["declared"] == {
        "weekend": ["Saturday", "Sunday"], "holidays": ["DE-BE"],
        "exclude": {f"{year}-12-24": "Christmas Eve"},
    }  # fmt: skip
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
    # A holiday of Berlin alone.
    assert sum(day.endswith("-03-08") for day in changes) == 7
    lines = cli("calendars", "diff", "de").stdout.splitlines()
    assert lines[0] == "changed calendar de"
    assert any(x.startswith(f"    ~ {year}-12-24 ") and "Eve -> Chr" in x for x in lines)
    assert any(x.startswith(f"    - {year}-12-25 ") for x in lines)
    back = read(cli, "calendars", "diff", "de", "2", "1")
    assert {one["date"]: (one["after"], one["before"]) for one in back["dates"]} == changes
    old = read(cli, "calendars", "show", "de", "--revision", "1")
    assert old["dates"][f"{year}-12-25"] == "Christmas Day"


def test_an_unknown_calendar_or_revision_is_refused(cli: Cli, file: Path) -> None:
    for command in (("show", "fr"), ("diff", "fr"), ("show", "fr", "--revision", "1")):
        refused(cli("calendars", *command), "calendar 'fr' does not exist; `cronledger calendars")
    refused(cli("calendars", "show", "de", "--revision", "7"), "has no revision 7; `cronledger")
    refused(cli("calendars", "diff", "de", "7"), "has no revision 7")
    refused(cli("calendars", "diff", "de", "x"), "'x' is not a valid integer")


def test_without_calendars_the_list_says_how_to_declare_one(cli: Cli) -> None:
    found = cli("calendars", "list")
    assert (found.exit_code, found.stdout) == (0, "")
    assert "a source declares them as [calendars.NAME]" in found.stderr


def test_an_apply_without_changes_sets_no_calendar_and_one_without_days_is_a_warning(
    cli: Cli, file: Path, ask: Ask
) -> None:
    for _ in range(2):
        assert cli("jobs", "apply", "jobs.toml").stdout == "unchanged: 1\n"
    assert ask("SELECT count(*) FROM cronledger.calendar_revisions") == [(1,)]
    found = read(cli, "jobs", "apply", "jobs.toml")
    assert (found["calendars"], found["unchanged"]) == ([], 1)
    assert set(found) == {
        "added", "changed", "retired", "unchanged", "refused", "channels", "calendars"
    }  # fmt: skip
    file.write_text(file.read_text() + "\n[calendars.empty]\n")
    applied = cli("jobs", "apply", "jobs.toml")
    assert applied.exit_code == 0
    assert "calendars.empty: excludes no day; add for example weekend = " in applied.stderr


def test_a_job_with_an_unknown_calendar_is_refused(cli: Cli, file: Path, ask: Ask) -> None:
    file.write_text(file.read_text().replace('calendar = "de"', 'calendar = "ed"'))
    for command in ("apply", "diff"):
        refused(
            cli("jobs", command, "jobs.toml"), 'jobs.pay.calendar = "ed": is a calendar that does ',
            "not exist; declare it as [calendars.NAME], or use one of de",
        )  # fmt: skip
    assert ask("SELECT calendar FROM cronledger.jobs") == [("de",)]


@pytest.mark.long
def test_a_replica_applies_the_calendars_of_its_source(
    start: Start, surroundings: Path, cli: Cli, year: int
) -> None:
    (surroundings / "cronledger.toml").write_text(FILE.format(year=year) + "[calendars.empty]\n")
    warning = start().until_event("declaration_warning")
    assert "calendars.empty: excludes no day" in warning["problem"]
    assert {row["name"]: row["jobs"] for row in read(cli, "calendars", "list")} == {
        "de": 1, "empty": 0
    }  # fmt: skip


def test_names_of_calendars_are_completed(cli: Cli, file: Path) -> None:
    for command in ("show", "diff"):
        words = {"COMP_WORDS": f"cronledger calendars {command} d", "COMP_CWORD": "3"}
        given = {"_CRONLEDGER_COMPLETE": "bash_complete", **words}

        def offered(given: dict[str, str] = given) -> bool:
            done = CliRunner().invoke(main, [], prog_name="cronledger", env=given)
            return done.stdout == "plain,de\n"

        until(f"a name for {command}", offered)


def test_check_shows_what_a_calendar_moves(bare: Cli, surroundings: Path) -> None:
    (surroundings / "jobs.toml").write_text(FILE.format(year=2027))
    at = ("--from", "2026-11-26T12:00:00Z", "--count", "3")
    shown = bare("check", "jobs.toml", *at)
    assert shown.exit_code == 0, shown.output
    assert [line.split() for line in shown.stdout.splitlines()][1:] == [
        ["pay", "Mon", "2026-11-30", "18:00:00+01:00"],
        ["pay", "Thu", "2026-12-31", "18:00:00+01:00"],
        ["pay", "Fri", "2027-01-29", "18:00:00+01:00", "moved", "from", "2027-01-31", "(Sunday)"],
        ["pay", "calendar", "de:", "4", "firings", "of", "2027", "move"],
    ]
    assert shown.stderr == "jobs.toml: 1 job, 1 calendar, 0 errors, 0 warnings\n"
    found = json.loads(bare("check", "jobs.toml", *at, "--format", "json").stdout)
    assert found["jobs"][0]["calendar_firings"] == [
        {"year": 2027, "disappear": 4, "appear": 4, "note": "calendar de: 4 firings of 2027 move"}
    ]
    (calendar,) = found["calendars"]
    assert (calendar["calendar"], calendar["through"]) == ("de", "2031-12-31")


def test_check_warns_of_a_calendar_that_ends_soon_and_of_an_undeclared_one(
    bare: Cli, surroundings: Path
) -> None:
    text = FILE.format(year=2026).replace('"DE-BE"', '"DE-BE"\nthrough = 2026')
    other = '[jobs.b]\nschedule = "@daily"\ncommand = ["true"]\ncalendar = "ed"\n'
    (surroundings / "jobs.toml").write_text(text + other)
    at = ("--from", "2026-11-26T12:00:00Z", "--format", "json")
    found = bare("check", "jobs.toml", *at)
    assert found.exit_code == 0
    assert bare("check", "jobs.toml", *at, "--strict").exit_code == 1
    messages = {one["line"]: one["message"] for one in json.loads(found.stdout)["findings"]}
    assert "through: the calendar ends on 2026-12-31, and its jobs do not fire" in messages[5]
    lines = (surroundings / "jobs.toml").read_text().split("\n")
    assert (
        'jobs.b.calendar = "ed": is a calendar that no checked source declares, so the firings '
        "are shown as if there were none; also check the source that declares it, or use one of de"
    ) in messages[lines.index('calendar = "ed"') + 1]
    earlier = bare("check", "jobs.toml", "--from", "2026-09-30T12:00:00Z", "--format", "json")
    assert [one["job"] for one in json.loads(earlier.stdout)["findings"]] == ["b"]


@pytest.mark.long
def test_a_wrong_calendar_is_refused_by_each_command(
    cli: Cli, start: Start, surroundings: Path
) -> None:
    text = FILE.format(year=2027).replace('holidays = "DE-BE"', 'holidays = "DE-XX"')
    (surroundings / "jobs.toml").write_text(text)
    problem = 'calendars.de.holidays = "DE-XX": DE has no part XX'
    refused(cli("check", "jobs.toml"), f"jobs.toml:4: {problem}")
    for command in ("apply", "diff"):
        refused(cli("jobs", command, "jobs.toml"), problem)
    replica = start("jobs.toml")
    assert replica.end() == 2
    assert problem in replica.err


def test_a_diff_shows_the_dates_and_the_firings_that_move(
    cli: Cli, file: Path, year: int, ask: Ask
) -> None:
    other = '[jobs.mail]\nschedule = "0 9 * * *"\ncommand = ["true"]\ncalendar = "de"\n'
    (file.parent / "other.toml").write_text(other)
    assert cli("jobs", "apply", "other.toml").exit_code == 0
    assert cli("jobs", "diff", "jobs.toml").stdout == "unchanged: 1\n"

    # Every day of the last week of March: the last business day is one before it.
    closed = "\n".join(f'{year}-03-{day} = "Stocktaking"' for day in range(20, 32))
    file.write_text(
        file.read_text().replace("[calendars.de.exclude]", f"[calendars.de.exclude]\n{closed}")
    )
    before = ask("SELECT count(*) FROM cronledger.calendar_revisions")
    lines = cli("jobs", "diff", "jobs.toml").stdout.splitlines()
    assert ask("SELECT count(*) FROM cronledger.calendar_revisions") == before
    assert lines[0] == "changed calendar de"
    assert sum("Stocktaking" in line for line in lines) == 12
    at = lines.index("changed pay")
    assert lines[at + 1] == f"    1 firing of {year} moves"
    at = lines.index("changed mail")
    skipped = sum(f" + {year}-03-" in line for line in lines)
    assert lines[at + 1] == f"    {skipped} firings of {year} will be skipped"
    assert lines[-1] == "unchanged: 0"

    found = read(cli, "jobs", "diff", "jobs.toml")
    (calendar,) = found["calendars"]
    assert (calendar["calendar"], calendar["before"]["revision"]) == ("de", 1)
    assert calendar["after"]["revision"] is None
    moved = {job["job"]: job["calendar_firings"] for job in found["jobs"]}
    assert moved == {
        "pay": [{"year": year, "disappear": 1, "appear": 1}],
        "mail": [{"year": year, "disappear": skipped, "appear": 0}],
    }
    applied = read(cli, "jobs", "apply", "jobs.toml")
    assert (applied["calendars"], applied["changed"]) == (["de"], ["pay"])
    assert cli("jobs", "diff", "jobs.toml").stdout == "unchanged: 1\n"


def test_a_diff_shows_what_a_new_calendar_moves(cli: Cli, surroundings: Path, year: int) -> None:
    (surroundings / "jobs.toml").write_text(FILE.format(year=year))
    lines = cli("jobs", "diff", "jobs.toml").stdout.splitlines()
    assert lines[0].startswith("added calendar de: ")
    assert lines[0].endswith(f" dates through {year + 4}-12-31")
    assert lines[1] == "added pay"
    assert any(f"of {year} move" in line for line in lines)
