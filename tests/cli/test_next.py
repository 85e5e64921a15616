"""`cronledger next`: instants strictly after --from, in UTC and on the local clock."""

import json

import psycopg
import pytest

from tests.cli.conftest import Cli

NEW_YORK = ["--tz", "America/New_York"]


@pytest.mark.parametrize(
    ("arguments", "instants"),
    [
        (
            ["30 2 * * *", *NEW_YORK, "--from", "2026-03-08T00:00:00", "--count", "2"],
            ["2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"],
        ),
        (
            ["30 1 * * *", *NEW_YORK, "--from", "2026-11-01T00:00:00", "--count", "2"],
            ["2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"],
        ),
        # Strictly after; an offset in --from outweighs --tz.
        (["@hourly", "--from", "2026-01-01T00:00:00Z", "--count", "1"], ["2026-01-01T01:00:00Z"]),
        (
            ["@hourly", *NEW_YORK, "--from", "2026-01-01T00:00:00+02:00", "--count", "1"],
            ["2025-12-31T23:00:00Z"],
        ),
        (["@every 90s", "--from", "1970-01-01", "--count", "1"], ["1970-01-01T00:01:30Z"]),
        (["*/20 * * * * *", "--from", "2026-01-01", "--count", "1"], ["2026-01-01T00:00:20Z"]),
        (["0 0 29 2 *", "--from", "2026-01-01", "--count", "1"], ["2028-02-29T00:00:00Z"]),
    ],
)
def test_json_is_an_array_of_instants(bare: Cli, arguments: list[str], instants: list[str]) -> None:
    said = bare("next", *arguments, "--json")
    assert said.exit_code == 0
    assert json.loads(said.stdout) == instants


def test_what_a_clock_change_moves_is_marked(bare: Cli) -> None:
    said = bare("next", "30 2 * * *", *NEW_YORK, "--from", "2026-03-08T00:00:00", "--count", "2")
    shifted, plain = said.stdout.splitlines()[1:]
    assert "2026-03-08T07:00:00Z  Sun 2026-03-08 03:00:00-04:00  shifted" in shifted
    assert "shifted" not in plain
    said = bare("next", "*/30 1 * * *", *NEW_YORK, "--from", "2026-11-01T00:00:00", "--count", "2")
    assert [line.count("this is the first") for line in said.stdout.splitlines()[1:]] == [1, 1]
    said = bare("next", "0 * * * *", *NEW_YORK, "--from", "2026-11-01T05:30:00Z", "--count", "1")
    assert "this is the second" in said.stdout


def test_warnings_do_not_spoil_the_json(bare: Cli) -> None:
    said = bare("next", "*/45 * * * *", "--json", "--count", "1")
    assert len(json.loads(said.stdout)) == 1
    assert said.stderr.startswith("Warning: ")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["61 * * * *"], "61"),
        (["* * * *"], "SPEC"),
        (["@every 0s"], "SPEC"),
        (["@daily", "--tz", "Mars/Olympus"], "--tz"),
        (["@daily", "--from", "tomorrow"], "--from"),
        (["@daily", "--scope", "a"], "--scope"),
    ],
    ids=str,
)
def test_what_cannot_be_read_is_named(bare: Cli, arguments: list[str], expected: str) -> None:
    said = bare("next", *arguments)
    assert said.exit_code == 2
    assert expected in said.stderr
    assert said.stdout == ""


def test_the_next_of_a_job(filled: Cli) -> None:
    said = filled("next", "hourly", "--from", "2026-07-01T10:30:00", "--count", "2", "--json")
    assert json.loads(said.stdout) == ["2026-07-01T09:00:00Z", "2026-07-01T10:00:00Z"]
    acme, globex = (
        filled("next", "tenants", "--scope", scope, "--count", "1", "--json").stdout
        for scope in ("acme", "globex")
    )
    assert acme != globex  # H is of the (job, scope)
    assert acme == filled("next", "tenants", "--count", "1", "--json").stdout


def test_a_job_fires_in_its_interval(filled: Cli, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as c:
        c.execute(
            "UPDATE cronledger.jobs SET starts_at = '2126-01-01 00:00Z', ends_at ="
            " '2126-01-01 01:00Z' WHERE name = 'hourly'"
        )
    said = filled("next", "hourly", "--json")
    assert json.loads(said.stdout) == ["2126-01-01T00:00:00Z", "2126-01-01T01:00:00Z"]


def test_what_keeps_a_job_from_firing_is_said(filled: Cli) -> None:
    assert "runs only when it is triggered" in filled("next", "manual").stderr
    assert "has a time zone" in filled("next", "hourly", "--tz", "UTC").stderr
    filled("jobs", "pause", "hourly")
    said = filled("next", "hourly", "--count", "1")
    assert said.exit_code == 0
    assert "is paused until it is resumed" in said.stderr
    unknown = filled("next", "nonsense")
    assert unknown.exit_code == 2
    assert "does not exist" in unknown.stderr
