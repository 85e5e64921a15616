"""F44: retry filters in the ledger: replicas, and workers in other languages."""

import asyncio
import re
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from cronledger.declaring.app import Context
from cronledger.rules import outcome
from cronledger.rules.outcome import Outcome, Retry
from tests.db.support.engine import MINUTE, Ledger, Runner
from tests.db.support.sites import Site
from tests.db.support.whole_replica import Whole

# -- replicas -----------------------------------------------------------------------------------


REPLICA_CASES: list[tuple[dict[str, Any], Outcome, str | None]] = [
    ({"retry_on": ["OSError"]}, outcome.failure(ConnectionError("x")), None),
    ({"retry_on": ["OSError"]}, outcome.failure(Retry("1s")), None),
    ({"retry_on": ["OSError"]}, outcome.failure(KeyError("x")), "retry_on has no match"),
    ({"never_retry_on": ["timeout"]}, outcome.timed_out(MINUTE, end_known=True),
     "never_retry_on has timeout"),
]  # fmt: skip


async def test_a_filter_decides_whether_a_replica_retries(ledger: Ledger, one: Runner) -> None:
    for n, (filters, *_) in enumerate(REPLICA_CASES):
        ledger.job(f"job{n}", schedule=None, max_attempts=2, retry_backoff=["1 s"], **filters)
        ledger.trigger(f"job{n}")
    for start in list(await one.settle()):
        await one.finish(start, REPLICA_CASES[int(start.job.name[-1])][1])
    ledger.travel(by=MINUTE)
    retried = await one.settle()
    final = {n: note for n, (*_, note) in enumerate(REPLICA_CASES) if note is not None}
    assert {(s.job.name, s.claimed.how) for s in retried} == {
        (f"job{n}", "retried") for n in range(len(REPLICA_CASES)) if n not in final
    }
    refused = "SELECT status, next_attempt_at, error_msg FROM executions WHERE job_name = %s"
    for n, note in final.items():
        status, due, message = ledger.one(refused, f"job{n}")
        assert (status, due) == ("FAILED", None)
        assert message.rpartition("\n")[2] == f"not retried: {note}"


async def test_the_present_filter_applies(ledger: Ledger, one: Runner) -> None:
    """Like a timeout, and unlike max_attempts, it is not that of the execution's revision."""
    ledger.job(schedule=None, max_attempts=9, retry_backoff=["0 s"])
    ledger.trigger()
    failure = outcome.failure(KeyError("x"))
    (start,) = await one.settle()
    await one.finish(start, failure)
    ledger.edit(never_retry_on=["KeyError"])
    (again,) = await one.settle()
    await one.finish(again, failure)
    assert await one.settle() == []
    assert ledger.one("SELECT status, attempt FROM executions") == ("FAILED", 2)


@pytest.mark.long
async def test_each_handler_has_failures_that_are_retried_and_others(
    whole: Whole, site: Site
) -> None:
    attempts: dict[str, Any] = {"max_attempts": 3, "retry_backoff": ["0s"]}

    @whole.app.job(**attempts, retry_on=[OSError])
    async def function(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise TimeoutError
        async with asyncio.TaskGroup() as group:
            group.create_task(in_group())

    async def in_group() -> None:
        raise KeyError

    shell = 'test "$CRONLEDGER_ATTEMPT" = 1 && exit 75; exit 64'
    whole.declare("command", "command", {"command": shell}, retry_on=["70-80"], **attempts)
    killed = f'test "$CRONLEDGER_ATTEMPT" = 1 && exit 1; kill -{int(signal.SIGKILL)} $$'
    whole.declare("killed", "command", {"command": killed}, never_retry_on=["SIGKILL"], **attempts)
    whole.declare("sql", "sql", {"sql": "SELECT 1 / 0"}, never_retry_on=["22"], **attempts)
    statuses = iter((503, 404))

    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=next(statuses), headers={"Retry-After": "0"})

    site.answers["/"] = answer
    target = {"url": f"{site.url}/", "allow_private": True}
    whole.declare("http", "http", target, retry_on=["5xx"], **attempts)
    names = [*whole.app.jobs, *(job.name for job in whole.jobs)]
    async with whole.replica():
        rows = await asyncio.gather(*map(whole.run, names))
    ends = {
        row["job_name"]: (
            row["attempt"], row["error_code"], "".join(re.findall(r"not retried: (.*)", message)),
        )
        for row in rows for message in [row["error_msg"]]
    }  # fmt: skip
    assert ends == {
        "function": (2, "handler_error", "retry_on has no match"),
        "command": (2, "exit_code", "retry_on has no match"),
        "killed": (2, "signal", "never_retry_on has SIGKILL"),
        "sql": (1, "handler_error", "never_retry_on has 22"),
        "http": (2, "http_status", "retry_on has no match"),
    }


@pytest.mark.long
async def test_a_failure_of_not_ready_on_waits_without_losing_an_attempt(
    whole: Whole, site: Site, tmp_path: Path
) -> None:
    at_once: dict[str, Any] = {"not_ready_after": "0s", "wait_at_most": "1h"}
    shell = f"cd {tmp_path}; test -e seen && exit 64; touch seen; exit 75"
    whole.declare("command", "command", {"command": shell}, not_ready_on=["75"], **at_once)
    whole.rows("CREATE SEQUENCE calls")
    raises = {"sql": "SELECT 1 / (nextval('public.calls') - 1)"}
    whole.declare("sql", "sql", raises, not_ready_on=["22012"], retry_on=["40"], **at_once)
    statuses = iter((404, 200))

    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=next(statuses))

    site.answers["/"] = answer
    target = {"url": f"{site.url}/", "allow_private": True}
    whole.declare("http", "http", target, not_ready_on=["404"], **at_once)
    async with whole.replica():
        rows = await asyncio.gather(*(whole.run(job.name) for job in whole.jobs))
    found = {
        row["job_name"]: (row["attempt"], row["status"], row["error_code"],
                          [one["error_code"] for one in row["attempts"]])
        for row in rows
    }  # fmt: skip
    assert found == {
        "command": (2, "FAILED", "exit_code", ["not_ready"]),
        "sql": (2, "SUCCESS", None, ["not_ready"]),
        "http": (2, "SUCCESS", None, ["not_ready"]),
    }


# -- workers in other languages -----------------------------------------------------------------


def claim(ledger: Ledger) -> Any:
    (found,) = ledger.values("SELECT id, lease_token FROM claim_next('default', 'w1', 1)")
    return found


WORKER_CASES: list[tuple[dict[str, Any], str, str | None]] = [
    ({"retry_on": [], "never_retry_on": []}, "busy", None),
    ({"retry_on": ["busy", "slow"]}, "busy", None),
    ({"retry_on": ["busy", "slow"]}, "bus", "retry_on has no match"),
    ({"never_retry_on": ["bad input"]}, " bad input ", "never_retry_on has bad input"),
    ({"retry_on": ["busy"], "never_retry_on": ["busy"]}, "busy", "never_retry_on has busy"),
    ({"retry_on": ["busy"]}, "retry_requested", None),
    ({"retry_on": ["busy", None]}, "fatal", "retry_on has no match"),
]


def test_a_filter_decides_whether_fail_retries(ledger: Ledger) -> None:
    fail = "SELECT fail(%s, %s, %s, 'it broke', retry_after => %s)"
    ended = "SELECT status, error_code, next_attempt_at IS NOT NULL, error_msg FROM executions"
    for n, (filters, code, note) in enumerate(WORKER_CASES):
        for wait in (None, timedelta(minutes=5)):
            name = f"job{n}" if wait is None else f"given{n}"
            ledger.job(name, handler="external", max_attempts=2, retry_backoff=["5 m"], **filters)
            ledger.trigger(name)
            execution, token = claim(ledger)
            assert ledger.one(fail, execution, token, code, wait) == "ok"
            text = "it broke" if note is None else f"it broke\nnot retried: {note}"
            assert ledger.one(f"{ended} WHERE id = %s", execution) == (
                "FAILED", code.strip(), note is None, text,
            )  # fmt: skip
            assert ledger.one(fail, execution, token, code, wait) == "already_finished"


def test_the_note_of_a_worker_fits_into_the_longest_error(ledger: Ledger) -> None:
    code = "c" * 100
    ledger.job(handler="external", max_attempts=2, never_retry_on=[code], overlap="allow")
    fail = "SELECT fail(%s, %s, %s, %s, final => %s)"
    note = "not retried: never_retry_on has " + code
    for message, final, expected in (
        ("x" * 5000, False, "x" * (3998 - len(note)) + "…\n" + note),
        (None, False, note),
        ("x" * 4000, True, "x" * 4000),
    ):
        number = ledger.trigger()
        assert ledger.one(fail, *claim(ledger), code, message, final) == "ok"
        stored = ledger.one("SELECT error_msg FROM executions WHERE id = %s", number)
        assert stored == expected


def test_a_cancelled_execution_a_last_attempt_and_a_deleted_job_have_no_note(
    ledger: Ledger,
) -> None:
    attempts = {"cancelled": 2, "last": 1, "deleted": 3}
    for name, most in attempts.items():
        ledger.job(name, handler="external", max_attempts=most, never_retry_on=["no"])
        execution = ledger.trigger(name)
        held = claim(ledger)
        if name == "cancelled":
            assert ledger.one("SELECT cancel(%s)", execution) == "requested"
        elif name == "deleted":
            ledger.values("DELETE FROM jobs WHERE name = 'deleted'")
        fail = "SELECT fail(%s, %s, 'no', 'it broke', retry_after => '1 s')"
        assert ledger.one(fail, *held) == "ok"
    ended = "SELECT status, error_code, error_msg FROM executions ORDER BY id"
    assert ledger.values(ended) == [
        (status, "no", "it broke") for status in ("CANCELLED", "FAILED", "FAILED")
    ]
    due = "SELECT next_attempt_at FROM executions WHERE job_name = 'cancelled'"
    assert ledger.values(due) == [None]
