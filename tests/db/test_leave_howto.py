"""The crontab that docs/howto/leave.md exports runs the commands of the ledger."""

import json
import subprocess
from collections.abc import Iterator

import psycopg
import pytest

from tests.docs.support.pages import ROOT, blocks

PAGE = blocks(ROOT / "docs" / "howto" / "leave.md")
EXPORT = PAGE[0].text.partition("<<'END'\n")[2].partition("\nEND\n")[0]
LEFT = PAGE[1].text
WORDS = ["printf", "%s|", "it's", "100%", "a b", '"$HOME"']
SCHEDULE = "30 6 * jan-jun mon-fri"


@pytest.fixture
def connection(database_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


def insert(
    connection: psycopg.Connection, name: str, schedule: str | None, command: object
) -> None:
    connection.execute(
        "INSERT INTO cronledger.jobs (name, handler, schedule, timezone, target)"
        " VALUES (%s, 'command', %s, 'Europe/Berlin', %s)",
        [name, schedule, json.dumps({"command": command})],
    )


def first_column(connection: psycopg.Connection, statement: str) -> list[str]:
    return [str(row[0]) for row in connection.execute(statement.encode())]


@pytest.mark.parametrize(
    ("command", "printed"),
    [
        (WORDS, 'it\'s|100%|a b|"$HOME"|'),
        ("echo 50% | tr 5 6", "60%\n"),
    ],
)
def test_an_exported_line_runs_the_same_command(
    connection: psycopg.Connection, command: object, printed: str
) -> None:
    insert(connection, "report", SCHEDULE, command)
    (text,) = first_column(connection, EXPORT)
    name, zone, line = text.split("\n")
    assert (name, zone) == ("# report", "CRON_TZ=Europe/Berlin")
    assert line.startswith(f"{SCHEDULE} ")
    shell = line.removeprefix(f"{SCHEDULE} ")
    assert "%" not in shell.replace(r"\%", "")
    ran = subprocess.run(
        ["sh", "-c", shell.replace(r"\%", "%")], capture_output=True, text=True, check=True
    )
    assert ran.stdout == printed


@pytest.mark.parametrize(
    "schedule", ["*/5 * * * * *", "@every 90s", "H 3 * * *", "0 18 L * *", "0 0 * * 5L", None]
)
def test_a_schedule_that_cron_does_not_have_is_listed_instead(
    connection: psycopg.Connection, schedule: str | None
) -> None:
    insert(connection, "daily", "@daily", ["true"])
    insert(connection, "other", schedule, ["true"])
    assert [text.split("\n")[0] for text in first_column(connection, EXPORT)] == ["# daily"]
    assert first_column(connection, LEFT) == ["other"]
