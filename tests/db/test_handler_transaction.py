"""F30: the writes of a handler and its SUCCESS commit together, or neither does."""

import asyncio
import threading
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from cronledger import Context, Discard, Result, Retry
from cronledger.engine.running.handlers.transaction import Connections, ExecutionTransaction
from tests.db.support.whole_replica import Whole
from tests.marks import first_fast
from tests.waiting import eventually

WRITE = "INSERT INTO done VALUES (%s)"


@pytest.fixture
def whole(whole: Whole) -> Whole:
    whole.rows("CREATE TABLE done (what text)")
    return whole


def done(whole: Whole) -> list[str]:
    return [row["what"] for row in whole.rows("SELECT what FROM done ORDER BY 1")]


async def test_writes_and_success_commit_together_whatever_role_the_handler_took(
    whole: Whole,
) -> None:
    seen: list[int] = []
    role = f"clerk_{whole.one('SELECT current_database()')}"
    whole.rows(f"CREATE ROLE {role}")
    whole.rows(f"GRANT INSERT ON done TO {role}")

    async def asynchronous(ctx: Context) -> Result:
        async with ctx.transaction() as conn:
            await conn.execute(WRITE, ["async"])
            await conn.execute(f"SET ROLE {role}")
            return Result({"n": 1}, rows_affected=1)

    def synchronous(ctx: Context) -> str:
        with ctx.transaction() as conn:
            conn.execute(f"SET ROLE {role}")
            conn.execute(WRITE, ["sync"])
        # The block was left, and nothing is committed yet.
        with psycopg.connect(whole.url) as other:
            (count,) = other.execute("SELECT count(*) FROM done WHERE what = 'sync'").fetchone()  # type: ignore[misc]
            seen.append(count)
        return "returned"

    jobs = [whole.job(asynchronous), whole.job(synchronous)]
    try:
        async with whole.replica():
            first, second = [await whole.run(job) for job in jobs]
    finally:
        whole.rows(f"DROP OWNED BY {role}")
        whole.rows(f"DROP ROLE {role}")
    assert (first["status"], first["result"], first["rows_affected"]) == ("SUCCESS", {"n": 1}, 1)
    assert (second["status"], second["result"]) == ("SUCCESS", "returned")
    assert seen == [0]
    assert done(whole) == ["async", "sync"]
    # One transaction each.
    assert whole.one(
        "SELECT count(*) FROM done d JOIN cronledger.executions e ON e.xmin::text = d.xmin::text"
    ) == 2  # fmt: skip


@pytest.mark.long
async def test_whatever_the_handler_raises_rolls_back(whole: Whole) -> None:
    async def in_the_block(ctx: Context) -> None:
        async with ctx.transaction() as conn:
            await conn.execute(WRITE, ["never"])
            raise ValueError("in the block")

    async def after_the_block(ctx: Context) -> None:
        async with ctx.transaction() as conn:
            await conn.execute(WRITE, ["never"])
        raise Discard("unwanted", "after the block")

    def in_a_thread(ctx: Context) -> None:
        with ctx.transaction() as conn:
            conn.execute(WRITE, ["never"])
        raise Retry(after=0, message="once more")

    async def second_block(ctx: Context) -> None:
        with suppress(psycopg.errors.DivisionByZero):
            async with ctx.transaction() as conn:
                await conn.execute(WRITE, ["never"])
                await conn.execute("SELECT 1 / 0")
        async with ctx.transaction() as conn:
            await conn.execute(WRITE, ["second"])

    functions = (in_the_block, after_the_block, in_a_thread, second_block)
    jobs = [whole.job(f, max_attempts=2, retry_backoff=["0s"]) for f in functions]
    async with whole.replica():
        ended = [await whole.run(job) for job in jobs]
    codes = [row["error_code"] for row in ended]
    assert codes == ["handler_error", "unwanted", "retry_requested", None]
    assert done(whole) == ["second"]


@pytest.mark.long
async def test_without_the_lease_nothing_is_committed_and_no_transaction_begins(
    whole: Whole,
) -> None:
    inside, begun, go = threading.Event(), threading.Event(), threading.Event()

    def loses(ctx: Context) -> None:
        with ctx.transaction() as conn:
            conn.execute(WRITE, ["never"])
            inside.set()
            assert go.wait(90)

    async def late(ctx: Context) -> None:
        begun.set()
        await eventually("its lease is lost", go.is_set)
        async with ctx.transaction() as conn:
            await conn.execute(WRITE, ["never"])

    jobs = [whole.job(loses), whole.job(late)]
    async with whole.replica():
        stolen, swept = [await whole.trigger(job) for job in jobs]
        await eventually("both have begun", lambda: inside.is_set() and begun.is_set())
        whole.rows(
            "UPDATE cronledger.executions SET lease_token = gen_random_uuid(), runner_id = 'thief'"
            " WHERE id = %s", stolen,
        )  # fmt: skip
        whole.rows(
            "UPDATE cronledger.executions SET status = 'FAILED', finished_at = now(),"
            " error_code = 'stale_timeout' WHERE id = %s", swept,
        )  # fmt: skip
        go.set()
        await eventually("they end", lambda: whole.sessions("cronledger transaction") == 0)
    row = whole.get(stolen)
    assert (row["status"], row["runner_id"]) == ("RUNNING", "thief")
    assert whole.get(swept)["error_code"] == "stale_timeout"
    assert done(whole) == []


@pytest.mark.parametrize("how", first_fast(["cancel", "timeout", "drain"]))
@pytest.mark.long
async def test_a_stopped_handler_commits_nothing(whole: Whole, how: str) -> None:
    inside = threading.Event()

    async def asynchronous(ctx: Context) -> None:
        async with ctx.transaction() as conn:
            await conn.execute(WRITE, ["never"])
            inside.set()
            await conn.execute("SELECT pg_sleep(60)")

    def synchronous(ctx: Context) -> None:
        with ctx.transaction() as conn:
            conn.execute(WRITE, ["never"])
        inside.set()
        ctx.cancel_token.wait(90)  # and returns as if all were well

    async def swallows(ctx: Context) -> None:
        async with ctx.transaction() as conn:
            await conn.execute(WRITE, ["never"])
        inside.set()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)

    policies = {"run_timeout": "1s"} if how == "timeout" else {}
    jobs = [whole.job(f, **policies) for f in (asynchronous, synchronous, swallows)]
    wanted = {"cancel": "cancelled", "timeout": "timeout", "drain": "shutdown"}[how]
    executions = []
    async with whole.replica() as replica:
        for job in jobs:
            inside.clear()
            while not inside.is_set():  # on a busy machine, a run_timeout may pass before
                execution = await whole.trigger(job)
                await eventually(
                    "it is inside or has ended",
                    lambda: inside.is_set() or whole.get(execution)["finished_at"] is not None,  # noqa: B023
                )
            executions.append(execution)
            if how == "cancel":
                whole.one("SELECT cronledger.cancel(%s)", executions[-1])
            if how != "drain":
                await whole.end(executions[-1])
        await replica.drain(0)
    assert [whole.get(x)["error_code"] for x in executions] == [wanted] * 3
    assert done(whole) == []


@pytest.mark.long
async def test_a_handler_that_waits_for_a_connection_can_be_cancelled(
    whole: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connections.__init__, "__defaults__", (1,))
    inside, go = threading.Event(), threading.Event()

    def holds(ctx: Context) -> None:
        with ctx.transaction() as conn:
            conn.execute(WRITE, ["holds"])
            inside.set()
            assert go.wait(90)

    def waits(ctx: Context) -> None:
        with ctx.transaction() as conn:
            conn.execute(WRITE, ["never"])

    async def waits_too(ctx: Context) -> None:
        async with ctx.transaction() as conn:
            await conn.execute(WRITE, ["waits_too"])

    jobs = [whole.job(f) for f in (holds, waits, waits_too)]
    async with whole.replica():
        first = await whole.trigger(jobs[0])
        await eventually("it is inside", inside.is_set)
        second, third = await whole.trigger(jobs[1]), await whole.trigger(jobs[2])
        await eventually(
            "both run",
            lambda: (
                whole.get(third)["status"] == "RUNNING" and whole.get(second)["status"] == "RUNNING"
            ),
        )
        whole.one("SELECT cronledger.cancel(%s)", second)
        assert (await whole.end(second))["status"] == "CANCELLED"
        go.set()
        assert [(await whole.end(x))["status"] for x in (first, third)] == ["SUCCESS"] * 2
    assert done(whole) == ["holds", "waits_too"]


@pytest.mark.long
async def test_misuse_is_refused(whole: Whole) -> None:
    said: list[str] = []

    async def blocking(ctx: Context) -> None:
        with pytest.raises(RuntimeError) as caught, ctx.transaction():
            pass
        said.append(str(caught.value))

    def waiting(ctx: Context) -> None:
        async def inner() -> None:
            async with ctx.transaction():
                pass

        with pytest.raises(RuntimeError) as caught:
            asyncio.run(inner())
        said.append(str(caught.value))

    async def nested(ctx: Context) -> None:
        async with ctx.transaction() as conn:
            with pytest.raises(psycopg.ProgrammingError):
                await conn.commit()
            with pytest.raises(RuntimeError) as caught:
                ctx.transaction()
        said.append(str(caught.value))

    async def ends_it(ctx: Context) -> None:
        async with ctx.transaction() as conn:
            await conn.execute("COMMIT")

    async def spoils_it(ctx: Context) -> None:
        async with ctx.transaction() as conn:
            with pytest.raises(psycopg.errors.SyntaxError):
                await conn.execute("nonsense")

    functions = (blocking, waiting, nested, ends_it, spoils_it)
    jobs = [whole.job(f) for f in functions]
    async with whole.replica():
        ended = [await whole.run(job) for job in jobs]
    assert [row["status"] for row in ended] == ["SUCCESS"] * 3 + ["FAILED"] * 2
    assert ["async with" in said[0], "write `with" in said[1], "is already open" in said[2]] == [
        True
    ] * 3
    assert ended[3]["error_code"] == "transaction_ended"
    assert "InFailedSqlTransaction" in ended[4]["error_msg"]


@pytest.mark.parametrize("landed", [True, False])
async def test_a_commit_without_an_answer_is_looked_up(
    whole: Whole, landed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = ExecutionTransaction._finish
    commits = 0

    async def breaks(self: ExecutionTransaction, connection: Any, ended: Any) -> None:
        nonlocal commits
        commits += 1
        if landed:
            await original(self, connection, ended)
        if commits == 1:
            await connection.close()
            raise psycopg.OperationalError("the server is gone")
        if not landed:
            await original(self, connection, ended)

    monkeypatch.setattr(ExecutionTransaction, "_finish", breaks)

    async def writes(ctx: Context) -> int:
        async with ctx.transaction() as conn:
            await conn.execute(WRITE, [f"attempt {ctx.attempt}"])
        return ctx.attempt

    job = whole.job(writes, max_attempts=3, retry_backoff=["0s"])
    async with whole.replica():
        row = await whole.run(job)
    attempt = 1 if landed else 2
    assert (row["status"], row["result"], row["attempt"]) == ("SUCCESS", attempt, attempt)
    assert done(whole) == [f"attempt {attempt}"]
    assert commits == attempt
