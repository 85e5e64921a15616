"""`cronledger next`: instants strictly after --from, in UTC and on the local clock."""

import json

from tests.cli.conftest import Ask, Cli
from tests.cli.support.results import read, refused

NEW_YORK = ["--tz", "America/New_York"]
SCOPES = ("acme", "globex")


def test_json_is_an_array_of_instants(bare: Cli) -> None:
    for spec, *options, since, first in (
        ("30 1 * * *", *NEW_YORK, "2026-11-01T00:00:00", "2026-11-01T05:30:00Z"),
        # Strictly after; an offset in --from outweighs --tz.
        ("@hourly", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"),
        ("@hourly", *NEW_YORK, "2026-01-01T00:00:00+02:00", "2025-12-31T23:00:00Z"),
        ("@every 90s", "1970-01-01", "1970-01-01T00:01:30Z"),
    ):
        assert read(bare, "next", spec, *options, "--from", since, "--count", "1") == [first]


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


def test_an_invalid_argument_is_named(bare: Cli) -> None:
    for *arguments, expected in (
        ("61 * * * *", "61"), ("* * * *", "SPEC"), ("@every 0s", "SPEC"),
        ("@daily", "--tz", "Mars/Olympus", "--tz"), ("@daily", "--from", "tomorrow", "--from"),
        ("@daily", "--scope", "a", "--scope"),
    ):  # fmt: skip
        refused(bare("next", *arguments), expected)


def test_a_job_fires_in_its_zone_its_scope_and_its_interval(filled: Cli, ask: Ask) -> None:
    since = ("--from", "2026-07-01T10:30:00", "--count", "2")
    assert read(filled, "next", "hourly", *since) == [
        "2026-07-01T09:00:00Z",
        "2026-07-01T10:00:00Z",
    ]
    acme, globex = (read(filled, "next", "tenants", "--scope", x, *since) for x in SCOPES)
    assert acme != globex  # H is of the (job, scope)
    assert acme == read(filled, "next", "tenants", *since)
    ask(
        "UPDATE cronledger.jobs SET starts_at = '2126-01-01 00:00Z', ends_at ="
        " '2126-01-01 01:00Z' WHERE name = 'hourly'"
    )
    assert read(filled, "next", "hourly") == ["2126-01-01T00:00:00Z", "2126-01-01T01:00:00Z"]


def test_the_reason_why_a_job_does_not_fire_is_shown(filled: Cli) -> None:
    assert "runs only when it is triggered" in filled("next", "manual").stderr
    assert "has a time zone" in filled("next", "hourly", "--tz", "UTC").stderr
    filled("jobs", "pause", "hourly")
    said = filled("next", "hourly", "--count", "1")
    assert said.exit_code == 0
    assert "is paused until it is resumed" in said.stderr
    refused(filled("next", "nonsense"), "does not exist")
