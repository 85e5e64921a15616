"""The hints of the ledger on the surfaces that show them: no surface shows the terms of another."""

import re
from pathlib import Path

import pytest

from cronledger.rules.remedies import Surface, remedy

FUNCTIONS = Path(__file__).parents[2] / "migrations" / "functions"
FOLDERS = ("operators", "pauses", "enqueueing", "page")
"""The folders of the functions that commands, clients and the page call."""
ROWS = (
    "Pass one of these arrays",
    "Write it as 00-TRACE-SPAN-01",
    "cap limits the number",
    "Give at most 10,000 ",
)
"""Hints that only psql can cause: commands, clients and the page check what they pass."""
SQL = re.compile(r"SELECT|=>|NULL|\bother\.|\bexecution_status\b|\bjob_status\b|\{")
OPTIONS = re.compile(" --")
NAMES = re.compile(r"\b(?!plan_time|catch_up|planned_)[a-z]+_[a-z_]+\b")
"""Names of arguments, as programs write them."""


def hints() -> list[str]:
    """Return the hints as psql shows them, of a ledger in the schema `other`."""
    files = (path for folder in FOLDERS for path in sorted((FUNCTIONS / folder).glob("*.sql")))
    texts = "".join(path.read_text() for path in files)
    uses = re.findall(r"USING HINT = (.*?)(?:ERRCODE|;)", texts, re.DOTALL)
    uses += re.findall(r"\sHINT = (.*?)ERRCODE", texts, re.DOTALL)
    found = [
        text.replace("''", "'").replace("{schema}", "other").replace("%s", "7").replace("%L", "'a'")
        for use in uses for text in re.findall(r"'((?:[^']|'')+)'", use)
        if " " in text
    ]  # fmt: skip
    return [text for text in dict.fromkeys(found) if not text.startswith(ROWS)]


@pytest.mark.parametrize("surface", Surface)
def test_no_surface_shows_sql(surface: Surface) -> None:
    assert len(hints()) > 30
    shown = {text: remedy(text, surface) for text in hints()}
    assert {text: to for text, to in shown.items() if SQL.search(to)} == {}
    assert any(SQL.search(text) for text in shown)


@pytest.mark.parametrize(
    ("surface", "foreign"),
    [(Surface.CLIENT, OPTIONS), (Surface.PAGE, OPTIONS), (Surface.COMMAND, NAMES)],
)
def test_options_are_of_the_command_line_and_arguments_of_programs(
    surface: Surface, foreign: re.Pattern[str]
) -> None:
    assert [to for text in hints() if foreign.search(to := remedy(text, surface))] == []


@pytest.mark.parametrize(
    ("hint", "command", "client", "page"),
    [
        (
            "To list its scopes, run SELECT scope_kind, scope_id FROM other.job_status WHERE"
            " job_name = 'it''s'.",
            """To list its scopes, run `cronledger jobs show 'it'"'"'s'`.""",
            """To list its scopes, run `cronledger jobs show 'it'"'"'s'`.""",
            "To list its scopes, open the page of the job.",
        ),
        ("Add the job again first.", *["Add the job again first."] * 3),
        (
            "Wait for it, or end it with other.cancel(7).",
            "Wait for it, or end it with `cronledger executions cancel 7`.",
            "Wait for it, or end it with cancel(7).",
            "Wait for it, or end it with Cancel on the page of execution 7.",
        ),
        (
            "Resume the queue, or use force => true: the execution then starts once it is resumed.",
            "Resume the queue, or use --force: the execution then starts once it is resumed.",
            "Resume the queue, or use force=True: the execution then starts once it is resumed.",
            "Resume the queue.",
        ),
    ],
)
def test_a_hint_has_the_terms_of_its_surface(
    hint: str, command: str, client: str, page: str
) -> None:
    assert [remedy(hint, surface) for surface in Surface] == [command, client, page]
