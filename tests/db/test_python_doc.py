"""docs/python.md: every snippet is run."""

import asyncio
import logging
from typing import Any

import pytest

from tests.db.support.whole_replica import Whole
from tests.docs.support.pages import run_snippets, snippets
from tests.waiting import eventually

PAGE = "python.md"
ORDER = {"number": 7, "due": "2026-01-31"}


@pytest.fixture
def whole(whole: Whole) -> Whole:
    for statement in snippets(PAGE, "sql"):
        whole.rows(statement)
    whole.documented = run_snippets(PAGE)
    whole.app = whole.documented["app"]
    return whole


@pytest.mark.long
async def test_the_embedded_replica_of_the_documentation_runs(whole: Whole) -> None:
    stop = asyncio.Event()
    serving = asyncio.create_task(whole.documented["serve"](whole.url, stop))
    done = "SELECT result FROM cronledger.executions WHERE job_name = 'beat' AND status = 'SUCCESS'"
    await eventually("it beats", lambda: serving.done() or whole.rows(done))
    stop.set()
    await serving
    assert whole.rows(done)[0]["result"] == "beat"


@pytest.mark.long
async def test_every_handler_of_the_documentation_does_what_it_says(whole: Whole) -> None:
    payloads = {"ship": ORDER, "fenced": whole.url}
    ended: dict[str, tuple[str, Any]] = {}
    async with whole.replica():
        for name in whole.app.jobs.keys() - {"report", "invoices"}:
            row = await whole.run(name, payloads.get(name))
            ended[name] = (row["status"], row["result"] or row["error_code"])
        execution = whole.one("SELECT cronledger.trigger('report', 'tenant', 'acme')")
        report = await whole.end(execution)
        provided = "SELECT scope_id FROM cronledger.schedules WHERE job_name = 'invoices'"
        await eventually(
            "the scopes of the provider",
            lambda: {row["scope_id"] for row in whole.rows(provided)} == {"acme", "globex"},
        )
    charged = whole.rows("SELECT * FROM cronledger.executions WHERE job_name = 'charge'")[0]
    assert charged["attempt"] == 2
    assert charged["error_msg"].endswith("not retried: retry_on has no match")
    assert (report["trigger"], report["result"]["tenant"]) == ("manual", "acme")
    assert report["rows_affected"] == 3
    assert ended == {
        "tidy": ("SUCCESS", "nothing to do"),
        "ship": ("SUCCESS", "order 7 is due on Saturday"),
        "fetch": ("SUCCESS", "attempt 2"),
        "bill": ("FAILED", "no_such_customer"),
        "charge": ("FAILED", "handler_error"),
        "crunch_all": ("SUCCESS", 499500),
        "race": ("SUCCESS", [45, "stopped"]),
        "transfer": ("SUCCESS", "moved"),
        "transfer_in_a_thread": ("SUCCESS", None),
        "fenced": ("SUCCESS", None),
        "sync-eu": ("SUCCESS", "synchronized eu"),
        "sync-us": ("SUCCESS", "synchronized us"),
    }
    amounts = [row["amount"] for row in whole.rows("SELECT amount FROM transfers ORDER BY 1")]
    assert amounts == [10, 20, 30]


async def test_the_log_lines_of_the_documentation_have_fields(
    whole: Whole, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])
    whole.documented["log_to_stderr"]()
    monkeypatch.setattr(logging.root, "level", logging.WARNING)

    async def warns() -> None:
        logging.getLogger("shop").warning("inside")

    job = whole.job(warns)
    logging.getLogger("shop").warning("outside")
    async with whole.replica():
        row = await whole.run(job)
    lines = capsys.readouterr().err.splitlines()
    assert {"WARNING - #- outside", f"WARNING warns #{row['id']} inside"} <= set(lines)
