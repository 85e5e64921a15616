"""F84, F85: the output of running executions: what is captured, when it is written, what stays."""

import asyncio
import logging
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest

from cronledger import Context
from cronledger.engine.running import output as live
from tests.db.support.engine import Ledger, runners
from tests.db.support.whole_replica import Whole
from tests.waiting import eventually

log = logging.getLogger("shop")


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks are written at once, as if every execution was followed."""
    monkeypatch.setattr(live, "EVERY", 0.01)


def chunks(whole: Whole, execution: int) -> str:
    rows = whole.rows(
        "SELECT text FROM cronledger.running_output WHERE execution_id = %s"
        " ORDER BY attempt, number", execution,
    )  # fmt: skip
    return "".join(row["text"] for row in rows)


async def test_f85_prints_and_log_lines_become_the_output(whole: Whole) -> None:
    """Of the handler, of its tasks, of its threads and of pools that others share."""
    shared = ThreadPoolExecutor(1)
    shared.submit(print, "not of an execution").result()

    def sync() -> None:
        print("sync")
        print("to stderr", file=sys.stderr)
        log.warning("logged %s", 1)
        logging.makeLogRecord({"name": "shop", "msg": "a copy of a record"})
        thread = threading.Thread(target=print, args=("of a thread",))
        thread.start()
        thread.join()
        shared.submit(print, "of a pool").result()

    async def asynchronous() -> None:
        print("async")
        await asyncio.gather(
            asyncio.create_task(in_a_task()), asyncio.to_thread(print, "to_thread")
        )

    async def in_a_task() -> None:
        print("task")

    async def silent() -> None:
        await asyncio.sleep(0)

    def failing() -> None:
        print("before the error")
        raise RuntimeError("oops")

    async def transaction(ctx: Context) -> None:
        async with ctx.transaction() as c:
            await c.execute("SELECT 1")
        print("commits with the writes")

    jobs = [whole.job(one) for one in (sync, asynchronous, silent, failing, transaction)]
    out = sys.stdout
    async with whole.replica():
        print("of the program")
        rows = {job: await whole.run(job) for job in jobs}
    assert sys.stdout is out
    assert [job for job in jobs if rows[job]["status"] != "SUCCESS"] == ["failing"]
    assert rows["transaction"]["error_msg"] is None
    assert {job: row["output"] for job, row in rows.items()} == {
        "sync": "sync\nto stderr\nWARNING shop: logged 1\nof a thread\nof a pool\n",
        "asynchronous": "async\ntask\nto_thread\n",
        "silent": None,
        "failing": "before the error\n",
        "transaction": "commits with the writes\n",
    }


async def test_f84_a_silent_execution_sends_no_further_statement(whole: Whole) -> None:
    """And neither does one that prints and ends before its first chunk is due."""

    async def silent() -> None:
        await asyncio.sleep(0)

    async def brief() -> None:
        print("brief")

    sent: dict[str, list[str]] = {}
    jobs = [whole.job(silent), whole.job(brief)]
    async with whole.replica() as replica:
        statements = replica._runtime._statements
        real = statements._send
        names: list[str] = []

        async def send(c: Any, name: str, *rest: Any) -> Any:
            names.append(name)
            return await real(c, name, *rest)

        statements._send = send  # type: ignore[method-assign,assignment]
        for job in jobs:
            names.clear()
            await whole.run(job)
            sent[job] = [name for name in names if name in ("write_output", "drop_output")]
    assert sent == {"silent": [], "brief": []}


@pytest.mark.parametrize("handler", ["python", "command"])
async def test_f84_who_follows_gets_the_output_at_once(
    whole: Whole, handler: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks would be due in an hour. The interest may be announced before the execution begins."""
    monkeypatch.setattr(live, "EVERY", 3600.0)
    monkeypatch.setattr("cronledger.engine.commands.supervised.SHOW_EVERY", 3600.0)
    go, more = tmp_path / "go", tmp_path / "more"

    async def speaks() -> None:
        print("begun")
        await eventually("go", go.exists)
        print("and")
        await eventually("more", more.exists)

    if handler == "python":
        job = whole.job(speaks)
    else:
        job = "speaks"
        wait = "while ! test -e {}; do sleep 0.05; done; "
        script = "echo begun; " + wait.format(go) + "echo >&2 and; " + wait.format(more)
        whole.declare(job, "command", {"command": script})
    async with whole.replica() as replica:
        execution = await whole.trigger(job)
        await eventually("it runs", lambda: whole.get(execution)["status"] == "RUNNING")
        await eventually("it listens", lambda: replica._runtime.components.listener.listening)  # type: ignore[union-attr]
        assert chunks(whole, execution) == ""
        whole.rows("SELECT pg_notify('cronledger', 'follow ' || %s)", execution)
        await eventually("begun", lambda: chunks(whole, execution) == "begun\n")
        go.touch()
        await eventually("and", lambda: chunks(whole, execution) == "begun\nand\n")
        assert whole.get(execution)["output"] is None
        more.touch()
        row = await whole.end(execution)
    assert row["output"] == "begun\nand\n"
    assert chunks(whole, execution) == ""


@pytest.mark.usefixtures("hasty")
async def test_f84_secrets_are_masked_in_chunks(
    whole: Whole, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where two chunks meet in a secret."""
    monkeypatch.setenv("TOKEN", "hunter2")
    go, more = tmp_path / "go", tmp_path / "more"
    wait = "while ! test -e {}; do sleep 0.05; done; "
    script = "printf 'a hun'; " + wait.format(go) + "printf 'ter2 b'; " + wait.format(more) + "echo"
    whole.declare("speaks", "command", {"command": script, "env": {"TOKEN": {"env": "TOKEN"}}})
    async with whole.replica():
        execution = await whole.trigger("speaks")
        await eventually("a part", lambda: chunks(whole, execution) == "a ")
        go.touch()
        await eventually("the rest", lambda: chunks(whole, execution) == "a *** b")
        more.touch()
        assert (await whole.end(execution))["output"] == "a *** b\n"


@pytest.mark.usefixtures("hasty")
async def test_f84_the_chunks_of_an_execution_have_a_limit(whole: Whole, tmp_path: Any) -> None:
    """The middle is left out, and a line says how much."""
    go = tmp_path / "go"

    async def speaks() -> None:
        for number in range(200):
            print(f"line {number:03d}")
            await asyncio.sleep(0.002)
        await eventually("go", go.exists)

    job = whole.job(speaks)
    async with whole.replica(output_tail_bytes=400):
        execution = await whole.trigger(job)
        await eventually("the end", lambda: "line 199" in chunks(whole, execution))
        written = chunks(whole, execution)
        assert "bytes of the output are left out" in written
        assert "line 100" not in written
        assert len(written) < 800
        go.touch()
        row = await whole.end(execution)
    assert row["output"].startswith("line 000\n") and row["output"].endswith("line 199\n")
    assert "[cronledger: 1,400 bytes of the output are left out]" in row["output"]


@pytest.mark.parametrize("handler", ["python", "command", "sql"])
async def test_f85_a_job_may_opt_out(whole: Whole, handler: str) -> None:
    def speaks() -> None:
        print("personal")

    if handler == "python":
        job = whole.job(speaks, capture_output=False)
    else:
        job = "speaks"
        text = {"command": "echo personal", "sql": "SELECT 1"}[handler]
        whole.declare(job, handler, {handler: text}, capture_output=False)
    async with whole.replica(allow_sql_commands=True):
        row = await whole.run(job)
    assert (row["status"], row["output"]) == ("SUCCESS", None)


async def test_f85_the_log_lines_of_the_replica_about_an_execution_are_no_output(
    whole: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent() -> None:
        pass

    def fails() -> None:
        raise RuntimeError("oops")

    jobs = [whole.job(silent), whole.job(fails)]
    async with whole.replica():
        # The stream is captured in handlers.
        monkeypatch.setattr(logging.root, "handlers", [logging.StreamHandler(sys.stderr)])
        assert [(await whole.run(job))["output"] for job in jobs] == [None, None]


@pytest.mark.parametrize("reentrant", [False, True])
async def test_f84_a_crash_leaves_what_was_written(database_url: str, *, reentrant: bool) -> None:
    """The sweep makes it the output of the execution; a steal leaves it as that of the attempt.

    The runner that lost its lease writes and deletes nothing any more.
    """
    with closing(Ledger(database_url)) as ledger:
        ledger.job("speaks", schedule=None, allow_stale_reentry=reentrant, max_attempts=2)
        execution = ledger.trigger("speaks")
        async with runners(database_url, {}, {}) as (dead, heir):
            (lease,) = await dead.settle()
            output = live.LiveOutput(dead.pool, dead.statements, 1000)
            capture = live.Capture(lease, output)

            async def write(text: str) -> None:
                capture.write(text)
                await asyncio.sleep(0)
                output.hurry(capture)
                await output.step()

            await write("be")
            await write("gun")
            ledger.travel(by=timedelta(minutes=5))
            await heir.repair()
            await heir.steal()
            await write("too late")
            dead.put(lease, has_chunks=True)
            await dead.finisher.step()
            assert [x.token for x in dead.lost] == [lease.token]
            left = ledger.values(
                "SELECT attempt, string_agg(text, '' ORDER BY number) FROM output_chunks GROUP BY 1"
            )
            output_of = "SELECT status, attempt, output FROM executions WHERE id = %s"
            if reentrant:
                assert ledger.values(output_of, execution) == [("RUNNING", 2, None)]
                assert left == [(1, "begun")]
                await heir.finish_all()
                ledger.values("SELECT redact(%s)", execution)
                assert ledger.values("SELECT * FROM output_chunks") == []
            else:
                assert ledger.values(output_of, execution) == [("FAILED", 1, "begun")]
                assert left == []
