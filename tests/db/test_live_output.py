"""F84, F85: the output of running executions: what is captured, when it is written, what stays."""

import asyncio
import logging
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from cronledger.engine.running import output as live
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

    jobs = [whole.job(one) for one in (sync, asynchronous, silent, failing)]
    out = sys.stdout
    async with whole.replica():
        print("of the program")
        found = {job: (await whole.run(job))["output"] for job in jobs}
    assert sys.stdout is out
    assert found == {
        "sync": "sync\nto stderr\nWARNING shop: logged 1\nof a thread\nof a pool\n",
        "asynchronous": "async\ntask\nto_thread\n",
        "silent": None,
        "failing": "before the error\n",
    }


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("handler", ["python", "command"])
async def test_f84_the_output_is_there_while_it_runs_and_joins_the_row(
    whole: Whole, handler: str, tmp_path: Any
) -> None:
    """After the end no chunk is left."""
    go = tmp_path / "go"

    async def speaks() -> None:
        print("begun")
        await eventually("go", go.exists)
        print("over")

    if handler == "python":
        job = whole.job(speaks)
    else:
        job = "speaks"
        script = f"echo begun; echo >&2 and; while ! test -e {go}; do sleep 0.05; done; echo over"
        whole.declare(job, "command", {"command": script})
    expected = "begun\n" if handler == "python" else "begun\nand\n"
    async with whole.replica():
        execution = await whole.trigger(job)
        await eventually("output", lambda: chunks(whole, execution) == expected)
        assert whole.get(execution)["output"] is None
        go.touch()
        row = await whole.end(execution)
    assert row["output"] == expected + "over\n"
    assert chunks(whole, execution) == ""
