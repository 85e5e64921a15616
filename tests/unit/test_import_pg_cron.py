"""Jobs of pg_cron: their schedules beside a model of its rules, and what becomes of a row."""

import random
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from cronledger.rules import cron
from cronledger.sources.imported import Import, checked, render
from cronledger.sources.pg_cron import Options, Row, convert
from tests.unit.support import imports, pg_cron_model
from tests.unit.support.mutations import mutated

YEAR = datetime(2027, 1, 1, tzinfo=UTC), datetime(2028, 1, 1, tzinfo=UTC)
ZONES = ("GMT", "Europe/Berlin", "America/New_York", "Asia/Kolkata")
ROW = Row(7, "Nightly tidy", "30 3 * * *", "SELECT tidy()", "localhost", "shop", "jo", True)


def schedules(seed: int, count: int) -> Iterator[str]:
    """Yield schedules that pg_cron accepts, and some that it refuses."""
    draw = random.Random(seed)
    for _ in range(count):
        if draw.random() < 0.05:
            yield draw.choice([*pg_cron_model.MACROS])
            continue
        fields = []
        for number, (low, high) in enumerate(pg_cron_model.BOUNDS):
            first = draw.randint(low, high)
            last = draw.randint(first, high)
            step = draw.choice([1, 2, 5, 7])
            forms = [f"{first}", f"{first}-{last}", f"{first}-{last}/{step}", f"*/{step}"]
            forms += [f"{low},{last}", *pg_cron_model.NAMES.get(number, ())[:3]]
            forms += ["$"] if number == 2 else []
            forms += [f"{first}/{step}"] if draw.random() < 0.05 else []
            fields.append("*" if draw.random() < 0.4 and number else draw.choice(forms))
        yield " ".join(fields)


def imported(row: Row, **options: Any) -> Import:
    return checked(convert([row], Options(**{"database": "shop", **options})))


def table(row: Row, **options: Any) -> dict[str, Any]:
    return dict(*tomllib.loads(render(imported(row, **options))).get("jobs", {"": {}}).values())


def notes(row: Row, kind: str, **options: Any) -> str:
    return imports.notes(imported(row, **options), kind)


@pytest.mark.slow
@pytest.mark.parametrize("zone", ZONES)
def test_schedules_fire_as_in_pg_cron_for_a_year(zone: str) -> None:
    refused = 0
    for text in schedules(ZONES.index(zone), 80):
        found = table(ROW._replace(schedule=text), timezone=zone)
        try:
            expected = pg_cron_model.Entry(text).firings(*YEAR, zone)
        except pg_cron_model.Refused:
            refused += 1
            assert not found, text
            continue
        if not found:
            assert not expected, text
            continue
        keys = {key: found[key] for key in ("dst_gap", "dst_fold") if key in found}
        spec = cron.parse(found["schedule"], timezone=found["timezone"], **keys)
        found_times = list(spec.plan_times(*YEAR))
        if "$" in text and found_times != expected:
            assert "day of 25 hours" in notes(ROW._replace(schedule=text), "info", timezone=zone)
            long_day = [at for at in found_times if at not in set(expected)]
            local = {at.astimezone(ZoneInfo(zone)) for at in long_day}
            assert {(at.month, at.day, at.hour) for at in local} == {(10, 31, 0)}, text
            expected = sorted({*expected, *long_day})
        assert found_times == expected, text
    assert refused < 30


def test_a_job_becomes_sql_in_the_database_of_the_ledger() -> None:
    assert table(ROW, as_user=True) == {
        "schedule": "30 3 * * *", "timezone": "UTC", "sql": 'SET LOCAL ROLE "jo";\nSELECT tidy()',
        "overlap": "wait", "catch_up": "skip", "run_timeout": "none",
    }  # fmt: skip
    assert not notes(ROW, "changed", as_user=True)
    assert "runs it as jo" in notes(ROW, "changed")
    text = render(convert([ROW, ROW], Options("shop")))
    assert [*tomllib.loads(text)["jobs"]] == ["nightly-tidy", "nightly-tidy-2"]
    assert "schedule('Nightly tidy', '30 3 * * *', 'SELECT tidy()')" in text


@pytest.mark.parametrize(
    ("schedule", "written"),
    [
        ("0 0 $ * *", "0 0 L * *"), ("30 seconds", "@every 30s"), ("1 second", "@every 1s"),
        ("@weekly", "@weekly"),
    ],
)  # fmt: skip
def test_schedules_are_written_so_that_they_mean_the_same(schedule: str, written: str) -> None:
    assert table(ROW._replace(schedule=schedule))["schedule"] == written


@pytest.mark.parametrize(
    ("schedule", "told"),
    [
        ("@reboot", "when a database server starts"), ("0/5 * * * *", "step without a range"),
        ("90 seconds", "between 1 and 59"), ("~ * * * *", "~"), ("@never", "not a macro"),
        ("* * * *", "4 fields"), ("0 0 30 2 *", "never occurs"),
    ],
)  # fmt: skip
def test_schedules_without_an_equivalent_are_left_out(schedule: str, told: str) -> None:
    assert told in notes(ROW._replace(schedule=schedule), "dropped")


@pytest.mark.parametrize(
    "command",
    ["-- nightly\n/* x */ vacuum (analyze) t", "CALL p()", "CLUSTER",
     "REINDEX TABLE CONCURRENTLY t", "ALTER SYSTEM SET x = 1",
     "DO $$ BEGIN PERFORM p(); COMMIT; END $$"],
)  # fmt: skip
def test_what_cannot_run_in_a_transaction_runs_in_psql(command: str) -> None:
    found = table(ROW._replace(command=command), as_user=True)
    assert found["command"][:2] == ["psql", "--no-psqlrc"]
    assert found["command"][-3:] == ['SET ROLE "jo"', "--command", command]
    assert "may not run in a transaction" in notes(ROW._replace(command=command), "info")


def test_a_job_of_another_database_runs_in_psql() -> None:
    other = ROW._replace(database="stock")
    assert "--dbname=dbname=stock" in table(other)["command"]
    assert "psql needs a connection" in notes(other, "changed", as_user=True)
    assert table(other, database="stock")["sql"] == "SELECT tidy()"


def test_what_differs_is_noted() -> None:
    resting = ROW._replace(active=False)
    assert "schedule" not in table(resting)
    assert "is not active" in notes(resting, "changed")
    assert "runs it on host db2" in notes(ROW._replace(host="db2"), "changed")
    assert "sets no month for @yearly" in notes(ROW._replace(schedule="@yearly"), "info")
    assert "URL with a password" in notes(ROW._replace(command="SELECT 'http://u:p@h'"), "info")
    assert "the command is empty" in notes(ROW._replace(command=" "), "dropped")
    berlin = table(ROW, timezone="Europe/Berlin")
    assert (berlin["dst_gap"], berlin["dst_fold"]) == ("skip", "both")


@pytest.mark.slow
def test_mutated_rows_end_with_a_result_or_a_reason(tmp_path: Path) -> None:
    results = 0
    texts = zip(
        mutated(ROW.schedule, 2000), mutated("SELECT tidy('a')", 2000, 28),
        mutated("Nightly tidy", 2000, 29), mutated("jo", 2000, 30), strict=True,
    )  # fmt: skip
    for schedule, command, name, user in texts:
        row = ROW._replace(schedule=schedule, command=command, name=name, user=user)
        found = imported(row, as_user=True)
        count = imports.loaded(found, tmp_path)
        assert count or found.sources[0].dropped
        results += count
    assert 50 < results < 1950
