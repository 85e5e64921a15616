"""F84: `executions output -f` and `trigger --follow` print output as it comes."""

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from cronledger.ledger.following import OVERLAP, Following
from tests.cli.conftest import Ask, Cli
from tests.waiting import PATIENCE

CHUNK = "INSERT INTO cronledger.output_chunks VALUES (%s, %s, %s, cronledger.db_now(), %s)"
END = (
    "UPDATE cronledger.executions SET status = %s, output = %s, finished_at = cronledger.db_now(),"
    " error_code = 'exit_code'"
    " WHERE id = %s"
)


def test_the_output_of_a_running_execution_is_printed(filled: Cli, ask: Ask) -> None:
    """Of the last attempt, or of an earlier one whose runner died."""
    ask("UPDATE cronledger.executions SET attempt = 2, max_attempts = 2 WHERE id = 3")
    for attempt, number, text in ((1, 1, "lost\n"), (2, 1, "a\n"), (2, 2, "\x1b[31mb\n")):
        ask(CHUNK + " RETURNING 1", 3, attempt, number, text)
    assert filled("executions", "output", "3").stdout == "a\n\x1b[31mb\n"
    assert filled("executions", "output", "3", "--attempt", "1").stdout == "lost\n"
    assert filled("executions", "output", "1", "--follow").stdout == "line 1\nline 2"
    for wrong in ("--json", "--attempt=1"):
        assert filled("executions", "output", "1", "-f", wrong).exit_code == 2


@pytest.mark.parametrize("command", ["output", "trigger"])
def test_the_output_comes_until_the_end(filled: Cli, database_url: str, command: str) -> None:
    """The interest is announced, and the exit status is that of the execution."""
    arguments = {
        "output": ("executions", "output", "-f", "3"),
        "trigger": ("trigger", "manual", "--follow"),
    }
    with psycopg.connect(database_url, autocommit=True) as c, ThreadPoolExecutor(1) as threads:
        c.execute("UPDATE cronledger.jobs SET paused_at = NULL")
        c.execute("LISTEN cronledger")
        said = threads.submit(filled, *arguments[command])
        notes = c.notifies(timeout=PATIENCE)
        _, execution = next(n.payload for n in notes if n.payload.startswith("follow ")).split()
        notes.close()  # it holds the connection
        c.execute(
            "UPDATE cronledger.executions SET status = 'RUNNING', attempt = 1,"
            " next_attempt_at = NULL, lease_token = gen_random_uuid(), started_at = due_at,"
            " heartbeat_at = due_at, stale_after = 'infinity', runner_id = 'me' WHERE id = %s",
            [execution],
        )
        c.execute(CHUNK, [execution, 1, 1, "begun\n"])
        c.execute(END, ["FAILED", "begun\nand over\n", execution])
    result = said.result()
    assert result.stdout == "begun\nand over\n"
    assert result.exit_code == 1
    assert f"#{execution} FAILED" in result.stderr


def test_what_was_seen_is_not_printed_again() -> None:
    following = Following(1)
    row = {"attempt": 1, "status": "RUNNING", "number": 2, "text": "a\nb\n", "output": None}
    assert following.news(row) == "a\nb\n"
    assert following.params == {"id": 1, "attempt": 1, "number": 2}
    assert following.news({**row, "number": None, "text": None}) == ""
    assert following.number == 2
    ended = {**row, "status": "FAILED", "number": None, "text": None, "output": "a\nb\nc\n"}
    assert [following.news(ended), following.news(ended)] == ["c\n", ""]
    waits = {**row, "status": "PENDING", "number": None, "text": None}
    assert following.news(waits) == ""
    again = {**row, "attempt": 2, "number": 1, "text": "a\n"}
    assert following.news(again) == "a\n"
    cut = {**ended, "attempt": 2, "output": "…a\nlast\n"}  # its beginning is left out
    assert following.news(cut) == "last\n"
    following = Following(1)
    following.news({**row, "text": "x" * OVERLAP + "\nmiddle\n"})
    assert following.news({**ended, "output": "none of it\n"}) == "none of it\n"
