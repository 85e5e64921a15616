"""Scope providers against a real ledger."""

import asyncio
import inspect
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from structlog.testing import capture_logs

from cronledger.declaring.app import App
from cronledger.engine.maintenance import scope_providers as scopes_module
from cronledger.engine.maintenance.scope_providers import ScopeProviders
from cronledger.explain.doctor_ledger import scopes as scopes_check
from cronledger.ledger.access import Access
from cronledger.ledger.statements import Statements
from cronledger.rules.model import Job
from cronledger.sources.apply import apply
from tests.db.support.commands import command
from tests.db.support.engine import Ledger


class Asked:
    """Jobs whose providers answer what the test says, and replicas that ask them."""

    def __init__(self, ledger: Ledger, stack: AsyncExitStack) -> None:
        self.ledger, self._stack = ledger, stack
        self._jobs: dict[str, tuple[Job, Callable[[], Any]]] = {}
        self._app = App()

    def job(self, name: str, provider: Callable[[], Any], schedule: str | None = "@daily") -> None:
        self._app.job(schedule, name=name, scope_kind="tenant", scopes=provider)(lambda: None)
        apply(self.ledger.url, list(self._app.jobs.values()), source="test")
        self._jobs[name] = (self._app.jobs[name], provider)

    async def replica(self) -> ScopeProviders:
        pool = Access(self.ledger.url).pool("test", 2)
        await self._stack.enter_async_context(pool)
        scopes = ScopeProviders(pool, Statements(), self._jobs, runner="r1")
        self._stack.callback(scopes.close)
        return scopes

    def scopes(self, name: str) -> dict[str, bool]:
        """scope_id and whether it is planned."""
        return dict(
            self.ledger.values(
                "SELECT scope_id, retired_at IS NULL OR returned_at IS NOT NULL FROM schedules"
                " WHERE job_name = %s", name,
            )
        )  # fmt: skip


@pytest.fixture
async def asked(ledger: Ledger) -> AsyncIterator[Asked]:
    async with AsyncExitStack() as stack:
        yield Asked(ledger, stack)


def _raises() -> list[str]:
    raise RuntimeError("down")


def _fails_at_length() -> list[str]:
    raise OSError("postgresql://me:secret@host/db is away\0" + "x" * 5000)


async def _hangs() -> list[str]:
    await asyncio.sleep(60)
    return []


async def _exits() -> list[str]:
    raise SystemExit(3)


BAD: dict[str, Callable[[], Any]] = {
    "raises": _fails_at_length, "exits": lambda: sys.exit(3), "async exits": _exits,
    "hangs": _hangs, "nothing": lambda: None, "text": lambda: "ab", "number": lambda: [1],
    "empty": lambda: [""], "zero": lambda: ["a\0"], "surrogate": lambda: ["\ud800"],
    "long": lambda: ["x" * 201],
}  # fmt: skip


@pytest.mark.long
async def test_a_bad_answer_retires_nothing_and_costs_no_other_job(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its error is kept without passwords and at a bounded length."""
    monkeypatch.setattr(scopes_module, "PATIENCE_SECONDS", 3.0)

    def provider(bad: Callable[[], Any]) -> Callable[[], Any]:
        answers: list[Callable[[], Any]] = [lambda: ["a"], bad]

        def answer() -> Any:
            return answers.pop(0)()

        async def answer_async() -> Any:
            found = answer()
            return await found if inspect.isawaitable(found) else found

        return answer_async if inspect.iscoroutinefunction(bad) else answer

    for name, bad in BAD.items():
        asked.job(name, provider(bad))
    asked.job("good", lambda: ["g"])
    replica = await asked.replica()
    await replica.step()
    with capture_logs() as logs:
        await replica.step()
    failed = {x["job"] for x in logs if x["event"] == "scope_provider_failed"}
    assert failed == BAD.keys()
    assert all(asked.scopes(name) == {"a": True} for name in BAD)
    assert asked.scopes("good") == {"g": True}
    errors = dict(asked.ledger.values("SELECT job_name, error FROM scope_providers"))
    assert errors["exits"] == errors["async exits"] == "RuntimeError: it raised SystemExit(3)"
    assert errors["raises"].startswith("OSError: postgresql://me:***@host/db is awayxx")
    assert len(errors["raises"]) <= scopes_module.LONGEST_ERROR


HARD_TO_QUOTE = [
    "a", "b,c", 'd"e', "f\\g", "{h}", "NULL", "i i", "1:a", "ü", "\U0001f600", "j\u200bk",
    "x" * 200,
]  # fmt: skip


async def test_a_list_that_the_ledger_has_is_not_sent(asked: Asked) -> None:
    asked.job("job", lambda: reversed(HARD_TO_QUOTE))
    real = Statements.set_scopes
    with mock.patch.object(Statements, "set_scopes", autospec=True, side_effect=real) as sent:
        replica, other = await asked.replica(), await asked.replica()
        await replica.step()
        assert asked.scopes("job") == dict.fromkeys(HARD_TO_QUOTE, True)
        await replica.step()
        await other.step()
    assert sent.await_count == 1


async def test_the_list_is_compared_with_the_scopes_that_the_ledger_has_now(asked: Asked) -> None:
    asked.job("job", lambda: ["a", "b"])
    replica = await asked.replica()
    await replica.step()
    for edit in (
        "UPDATE schedules SET retired_at = db_now() WHERE scope_id = 'a'",
        "SELECT * FROM cronledger_internal.set_scopes('job', 'tenant', '{a}')",
        "SELECT * FROM cronledger_internal.set_scopes('job', 'tenant', '{a,b,c}')",
        "INSERT INTO schedules (job_name, scope_kind, scope_id, queue, planned_through,"
        " planned_revision, next_due_at) SELECT 'job', 'other', 'a', 'default', at, 1, at"
        " FROM db_now() at",
    ):
        asked.ledger.values(edit)
        await replica.step()
        planned = asked.ledger.values(
            "SELECT scope_kind, scope_id FROM schedules"
            " WHERE retired_at IS NULL OR returned_at IS NOT NULL ORDER BY 2"
        )
        assert planned == [("tenant", "a"), ("tenant", "b")], edit


async def test_a_long_list_is_read_outside_the_event_loop(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scopes_module, "FEW", 2)
    threads: list[threading.Thread] = []

    def names() -> Iterator[str]:
        threads.append(threading.current_thread())
        yield from "abc"

    async def provider() -> Iterator[str]:
        return names()

    asked.job("generated", provider)
    asked.job("long", lambda: ["a", "b", "c"])
    await (await asked.replica()).step()
    assert set(asked.scopes("generated")) == set(asked.scopes("long")) == {"a", "b", "c"}
    assert threading.main_thread() not in threads


async def test_one_replica_asks_at_a_time(asked: Asked) -> None:
    asking, go_on, calls = asyncio.Event(), asyncio.Event(), 0

    async def provider() -> list[str]:
        nonlocal calls
        calls += 1
        asking.set()
        await go_on.wait()
        return ["a"]

    asked.job("job", provider)
    one, other = await asked.replica(), await asked.replica()
    first = asyncio.create_task(one.step())
    await asking.wait()
    assert await other.step() is not None
    assert calls == 1
    go_on.set()
    await first
    await other.step()
    assert calls == 2
    assert set(asked.scopes("job")) == {"a"}


OVERDUE = (
    "SELECT job_name, reason, detail FROM overdue"
    " WHERE reason IN ('provider_failed', 'no_provider') ORDER BY 1"
)
LATER = timedelta(minutes=6)


def found(asked: Asked) -> list[tuple[str, str]]:
    """What the doctor says of scopes: severity and finding."""
    return [(finding.severity, finding.found) for finding in asked.ledger.findings(scopes_check)]


@pytest.mark.long
async def test_a_provider_that_fails_from_the_start_shows_in_sql_until_it_answers(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Callable[[], list[str]]] = [_raises, _raises, lambda: ["a"]]

    def provider() -> list[str]:
        return answers.pop(0)()

    asked.job("job", provider)
    replica = await asked.replica()
    await replica.step()
    await replica.step()
    asked.ledger.travel(by=timedelta(seconds=5))

    ((job, reason, detail),) = asked.ledger.values(OVERDUE)
    assert (job, reason) == ("job", "provider_failed")
    assert "failed 2 times" in detail
    assert detail.endswith("on r1: RuntimeError: down")
    assert found(asked) == [("problem", f"job: {detail}")]
    status = (
        "SELECT state, provider_asked_at > provider_answered_at, provider_failures, provider_error"
        " FROM job_status"
    )
    assert asked.ledger.values(status) == [("no_scope", None, 2, "RuntimeError: down")]
    why = command(asked.ledger.url, "why", "job", "03:00", exit_code=2)
    assert f"job 'job' has no scope; provider_failed: {detail}" in " ".join(why.output.split())

    await replica.step()
    assert asked.ledger.values(OVERDUE) == []
    assert found(asked) == [("ok", "all scope providers return")]
    assert asked.ledger.values(status) == [("active", False, 0, None)]


@pytest.mark.long
async def test_a_provider_that_no_runner_asks_shows_in_sql(asked: Asked) -> None:
    asked.job("job", lambda: ["a"])
    asked.job("pushed", lambda: ["a"], schedule=None)
    assert asked.ledger.values(OVERDUE) == []
    asked.ledger.travel(by=LATER)
    ((job, reason, detail),) = asked.ledger.values(OVERDUE)
    assert (job, reason) == ("job", "no_provider")
    assert detail == "no live runner calls its scope provider: it was never called"
    assert found(asked) == [("problem", f"job: {detail}")]

    replica = await asked.replica()
    await replica.step()
    assert asked.ledger.values(OVERDUE) == []
    asked.ledger.travel(by=LATER)
    ((_, reason, detail),) = asked.ledger.values(OVERDUE)
    assert reason == "no_provider"
    assert "it was last called at" in detail
    await replica.step()
    assert asked.ledger.values(OVERDUE) == []


@pytest.mark.long
async def test_a_provider_is_nothing_to_a_job_with_scopes_of_its_own_or_none(asked: Asked) -> None:
    for name in ("listed", "whole", "retired", "deleted"):
        asked.job(name, _raises)
    await (await asked.replica()).step()
    asked.ledger.values("UPDATE jobs SET scopes = '{a}' WHERE name = 'listed'")
    asked.ledger.values("UPDATE jobs SET scope_kind = 'global' WHERE name = 'whole'")
    asked.ledger.values("SELECT retire('retired')")
    asked.ledger.values("DELETE FROM jobs WHERE name = 'deleted'")
    asked.ledger.travel(by=LATER)
    assert asked.ledger.values(OVERDUE) == []
    kept = asked.ledger.values("SELECT job_name FROM scope_providers ORDER BY 1")
    assert kept == ["listed", "retired", "whole"]


@pytest.mark.long
async def test_scopes_that_the_database_refuses_cost_no_other_job_its_own(asked: Asked) -> None:
    asked.job("bad", lambda: ["a"])
    asked.job("good", lambda: ["a"])
    asked.ledger.values(
        "ALTER TABLE schedules ADD CHECK (NOT (job_name = 'bad' AND scope_id = 'a'))"
    )
    await (await asked.replica()).step()
    assert asked.scopes("good") == {"a": True}
    asked.ledger.travel(by=timedelta(seconds=5))
    ((job, reason, detail),) = asked.ledger.values(OVERDUE)
    assert (job, reason) == ("bad", "provider_failed")
    assert "the scopes could not be stored" in detail


@pytest.mark.long
async def test_a_provider_that_hangs_is_not_called_again_before_it_returns(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scopes_module, "PATIENCE_SECONDS", 0.2)
    calls, go_on = [], threading.Event()

    def provider() -> list[str]:
        calls.append(1)
        go_on.wait(60)
        return ["a"]

    asked.job("job", provider)
    replica = await asked.replica()
    errors = []
    for _ in range(2):
        await replica.step()
        errors += asked.ledger.values("SELECT error FROM scope_providers")
    assert errors == [
        "it did not return within 0.2 s",
        "TimeoutError: an earlier call has not returned yet",
    ]
    assert len(calls) == 1
    monkeypatch.undo()  # a busy machine needs longer to start a thread
    go_on.set()
    while asked.scopes("job") == {}:
        await replica.step()
    assert len(calls) == 2
