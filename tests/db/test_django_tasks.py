"""The contract of Django's task framework, and the jobs of tasks."""
# ruff: noqa: E402 - Django is set up before tasks are declared

from collections.abc import AsyncIterator
from contextlib import ExitStack
from datetime import datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connections, transaction
from django.test import override_settings
from django.utils import timezone

from cronledger.sources.apply import apply
from tests.db.support.django_process import SHOP, configure, on_database
from tests.db.support.whole_replica import Whole
from tests.spans import Spans, context, traceparent

configure()

from cronledger.contrib.django import framework
from cronledger.contrib.django.project import app
from cronledger.contrib.django.task_results import AttemptEndedError, ResultNotStoredError
from cronledger.contrib.django.tasks import CronledgerBackend, job
from tests.db.support.django_shop import tasks

STATUS = framework.TaskResultStatus
NAME = f"{SHOP}.tasks"


@pytest.fixture
async def shop(
    whole: Whole, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Whole]:
    """The jobs of the project in the ledger of the test, which Django uses."""
    whole.app = app
    apply(database_url, [*app.jobs.values()], source="test")
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    with on_database(database_url):
        yield whole
        # Those of the thread of aenqueue and aget_result, and those of the test.
        await sync_to_async(connections.close_all)()
        connections.close_all()


async def ended(shop: Whole, result: Any) -> Any:
    """The result once its execution has ended."""
    await shop.end(int(result.id))
    await result.arefresh()
    return result


async def test_a_task_is_part_of_the_transaction_of_its_caller(shop: Whole) -> None:
    def place() -> Any:
        with transaction.atomic():
            kept = tasks.add.enqueue(2, other=3)
        with pytest.raises(LookupError), transaction.atomic():
            lost = tasks.add.enqueue(4)
            raise LookupError
        with pytest.raises(framework.TaskResultDoesNotExist):
            tasks.add.get_result(lost.id)
        return kept

    result = place()
    connections.close_all()
    assert (result.status, result.is_finished, result.attempts) == (STATUS.READY, False, 0)
    assert (result.args, result.kwargs, result.errors) == ([2], {"other": 3}, [])
    with pytest.raises(ValueError, match="not finished"):
        _ = result.return_value
    async with shop.replica(runner_id="worker"):
        result = await ended(shop, await tasks.add.aget_result(result.id))
    assert (result.status, result.return_value) == (STATUS.SUCCESSFUL, 5)
    assert (result.worker_ids, result.errors) == (["worker"], [])
    assert result.enqueued_at <= result.started_at <= result.finished_at
    assert result.started_at == result.last_attempted_at
    assert shop.rows("SELECT count(*) FROM cronledger.executions")[0]["count"] == 1


@pytest.mark.long
async def test_an_attempt_of_a_task_links_to_its_enqueuer(shop: Whole, spans: Spans) -> None:
    result = tasks.add.enqueue(2, other=3)
    connections.close_all()
    async with shop.replica():
        await ended(shop, result)
    producer, run = (spans.one(f"{what} {NAME}.add") for what in ("enqueue", "run"))
    assert shop.get(int(result.id))["traceparent"] == traceparent(producer)
    assert [link.context.span_id for link in run.links] == [context(producer).span_id]


async def test_an_async_task_has_its_queue_its_context_and_its_arguments(shop: Whole) -> None:
    result = await tasks.describe.aenqueue(user=7)
    assert shop.get(int(result.id))["queue"] == "mail"
    async with shop.replica(queues=("default", "mail")):
        await ended(shop, result)
    assert result.return_value == {"status": "RUNNING", "attempt": 1, "args": True}


@pytest.mark.long
async def test_a_failed_attempt_is_ready_again_and_keeps_its_error(shop: Whole) -> None:
    once, twice = [await tasks.fails.aenqueue(times) for times in (1, 2)]
    async with shop.replica():
        await ended(shop, once)
        await ended(shop, twice)
    assert (once.status, once.return_value, once.attempts) == (STATUS.SUCCESSFUL, "found", 2)
    assert (twice.status, twice.attempts) == (STATUS.FAILED, 2)
    assert [error.exception_class for error in twice.errors] == [LookupError, LookupError]
    assert "LookupError: attempt 2" in twice.errors[-1].traceback
    with pytest.raises(ValueError, match="failed"):
        _ = twice.return_value
    shop.rows("SELECT cronledger.pause(%s)", f"{NAME}.fails")
    shop.rows("SELECT cronledger.retry(%s)", int(twice.id))
    await twice.arefresh()
    assert (twice.status, twice.is_finished, twice.finished_at) == (STATUS.READY, False, None)


@pytest.mark.long
async def test_what_is_no_exception_of_the_task_has_an_error_of_its_own(shop: Whole) -> None:
    cancelled = await tasks.add.aenqueue(1)
    shop.rows("SELECT cronledger.cancel(%s)", int(cancelled.id))
    large, wrong = [await tasks.returns.aenqueue(value) for value in (99_999, "a set")]
    async with shop.replica():
        for result in (cancelled, large, wrong):
            await ended(shop, result)
    assert cancelled.status == STATUS.FAILED
    assert cancelled.errors[0].exception_class is AttemptEndedError
    assert (large.status, large.return_value) == (STATUS.SUCCESSFUL, None)
    assert large.errors[0].exception_class is ResultNotStoredError
    assert (wrong.status, wrong.errors[0].exception_class) == (STATUS.FAILED, TypeError)


async def test_a_deferred_task_is_due_later(shop: Whole) -> None:
    at = timezone.now() + timedelta(days=100)
    result = await tasks.add.using(run_after=at).aenqueue(1)
    assert shop.get(int(result.id))["due_at"] == at


async def test_a_schedule_runs_a_task_that_can_be_enqueued_too(shop: Whole) -> None:
    declared = app.jobs[f"{NAME}.report"]
    assert (declared.schedule, declared.timezone) == ("0 9 * * *", "Europe/Berlin")
    assert (declared.overlap, app.jobs[f"{NAME}.add"].overlap) == ("skip", "allow")
    result = await tasks.report.aenqueue("weekly")
    async with shop.replica():
        await ended(shop, result)
        fired = await shop.run(f"{NAME}.report")
    assert (result.return_value, fired["result"]) == ("weekly", "daily")
    scheduled = await tasks.report.aget_result(str(fired["id"]))
    assert (scheduled.return_value, scheduled.args) == ("daily", [])


@pytest.mark.long
async def test_the_signals_have_the_states_of_a_task(shop: Whole) -> None:
    seen: list[tuple[Any, str, type]] = []

    def receive(sender: type, task_result: Any, signal: Any, **_: Any) -> None:
        seen.append((signal, task_result.status, sender))

    signals = (framework.task_enqueued, framework.task_started, framework.task_finished)
    with ExitStack() as stack:
        for signal in signals:
            signal.connect(receive)
            stack.callback(signal.disconnect, receive)
        async with shop.replica(queues=("default", "mail")):
            for task, given in ((tasks.add, [1]), (tasks.add, []), (tasks.describe, [])):
                await ended(shop, await task.aenqueue(*given))
    assert [signal for signal, _, _ in seen] == [*signals] * 3
    assert [status for _, status, _ in seen] == [
        status for end in ("SUCCESSFUL", "FAILED", "SUCCESSFUL")
        for status in ("READY", "RUNNING", end)
    ]  # fmt: skip
    assert {sender for _, _, sender in seen} == {CronledgerBackend}


def test_what_a_job_cannot_do_is_refused() -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"priority": 1}, "does not support setting priority"),
        ({"queue_name": "nowhere"}, "Queue 'nowhere' is not valid"),
        ({"queue_name": "mail"}, "declare another task for this queue"),
        ({"run_after": datetime(2030, 1, 1)}, "aware"),  # noqa: DTZ001
    ]
    for changes, message in refused:
        with pytest.raises(framework.InvalidTask, match=message):
            tasks.add.using(**changes)


async def test_only_tasks_have_results(shop: Whole) -> None:
    shop.declare("plain", "command", {"command": ["true"]})
    apply(shop.url, shop.jobs, source="other")
    made = await shop.trigger("plain")
    for unknown in (str(made), "0", "-1", "²", "one", "9" * 30):
        with pytest.raises(framework.TaskResultDoesNotExist):
            await tasks.add.aget_result(unknown)
    other = await tasks.report.aenqueue()
    with pytest.raises(Exception, match="does not match"):
        await tasks.add.aget_result(other.id)
    with pytest.raises(TypeError):
        await tasks.add.aenqueue({1, 2})


def test_declarations_that_cannot_work_are_refused() -> None:
    with pytest.raises(TypeError, match="above @task"):
        job("@daily")(tasks.add.func)
    with pytest.raises(TypeError, match="give its parameters defaults"):
        job("@daily")(tasks.add)
    with pytest.raises(TypeError, match="queue_name"):
        job(queue="mail")(tasks.add)


def test_the_system_check_names_a_backend_that_cannot_work() -> None:
    backend = CronledgerBackend("default", {"OPTIONS": {"size": 1}})
    assert [found.id for found in backend.check()] == ["cronledger.E003"]
    assert CronledgerBackend("default", {}).check() == []
    with override_settings(INSTALLED_APPS=["django.contrib.contenttypes"]):
        assert [found.id for found in CronledgerBackend("default", {}).check()] == [
            "cronledger.E002"
        ]
