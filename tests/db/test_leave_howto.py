"""The crontab that docs/howto/leave.md exports runs the commands of the ledger."""

import subprocess

import pytest
from psycopg.types.json import Jsonb

from tests.db.support.rows import Db, job
from tests.docs.support.pages import ROOT, blocks

PAGE = blocks(ROOT / "docs" / "howto" / "leave.md")
EXPORT = PAGE[0].text.partition("<<'END'\n")[2].partition("\nEND\n")[0]
LEFT = PAGE[1].text
WORDS = ["printf", "%s|", "it's", "100%", "a b", '"$HOME"']
SCHEDULE = "30 6 * jan-jun mon-fri"


def insert(db: Db, name: str, schedule: str | None, command: object) -> None:
    target = Jsonb({"command": command})
    job(db, name, schedule=schedule, timezone="Europe/Berlin", target=target)


def first_column(db: Db, statement: str) -> list[str]:
    return [str(next(iter(row.values()))) for row in db.execute(statement.encode())]


@pytest.mark.parametrize(
    ("command", "printed"), [(WORDS, 'it\'s|100%|a b|"$HOME"|'), ("echo 50% | tr 5 6", "60%\n")]
)
def test_an_exported_line_runs_the_same_command(db: Db, command: object, printed: str) -> None:
    insert(db, "report", SCHEDULE, command)
    (text,) = first_column(db, EXPORT)
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
def test_a_schedule_that_cron_does_not_have_is_listed_instead(db: Db, schedule: str | None) -> None:
    insert(db, "daily", "@daily", ["true"])
    insert(db, "other", schedule, ["true"])
    assert [text.split("\n")[0] for text in first_column(db, EXPORT)] == ["# daily"]
    assert first_column(db, LEFT) == ["other"]
