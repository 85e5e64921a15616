"""Traces: a span for each attempt, its link to the span that enqueued, and what carries it on."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from itertools import product
from typing import Any

import psycopg
import pytest
from multidict import CIMultiDict
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import SpanKind, StatusCode, TraceState, format_span_id
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from cronledger import AsyncClient, Client
from cronledger.client import LedgerError
from cronledger.declaring.app import Context, Retry
from cronledger.sources.apply import apply
from tests.db.support.frameworks import sqlalchemy_engine
from tests.db.support.rows import Db, value
from tests.db.support.sites import Site
from tests.db.support.whole_replica import Whole
from tests.spans import Spans, attributes, context, ends, parent_is, trace_id, traceparent
from tests.waiting import eventually

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def applied(whole: Whole, function: Callable[..., Any]) -> str:
    """Declare and store the job of a function. Return its name."""
    name = whole.job(function)
    apply(whole.url, [*whole.app.jobs.values()], source="test")
    return name


@pytest.mark.long
async def test_an_attempt_is_a_span_of_its_own_trace_and_current_in_its_handler(
    whole: Whole, spans: Spans
) -> None:
    async def report() -> str:
        with spans.tracer.start_as_current_span("inside"):
            return "done"

    def report_in_thread() -> bool:
        with spans.tracer.start_as_current_span("inside a thread"):
            return threading.current_thread() is threading.main_thread()

    job, in_thread = whole.job(report), whole.job(report_in_thread)
    with spans.tracer.start_as_current_span("host"), capture_logs([merge_contextvars]) as lines:
        async with whole.replica(tracing=True):
            row = await whole.run(job)
            assert (await whole.run(in_thread))["result"] is False
    span = spans.one("run report")
    assert (span.kind, span.parent, span.links) == (SpanKind.CONSUMER, None, ())
    assert attributes(span) == {
        "cronledger.job": "report", "cronledger.scope_kind": "global",
        "cronledger.scope_id": "global", "cronledger.plan_time": row["plan_time"].isoformat(),
        "cronledger.attempt": 1, "cronledger.queue": "default", "cronledger.handler": "python",
        "cronledger.trigger": "manual", "cronledger.execution_id": row["id"],
        "cronledger.outcome": "success",
    }  # fmt: skip
    assert span.status.status_code is StatusCode.UNSET
    assert parent_is(spans.one("inside"), span)
    assert parent_is(spans.one("inside a thread"), spans.one("run report_in_thread"))
    assert (row["trace_id"], row["traceparent"]) == (trace_id(span), None)
    traced = [x["event"] for x in lines if x.get("trace_id") == trace_id(span)]
    assert traced == ["execution_started", "execution_succeeded"]


@pytest.mark.long
async def test_a_retry_a_timeout_and_a_cancel_end_spans_of_their_own(
    whole: Whole, spans: Spans
) -> None:
    def flaky(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise Retry("0s", "no disk")
        raise ValueError("no luck\nat all")

    async def overruns() -> None:
        await asyncio.Event().wait()

    started, slow = _endless()
    whole.job(flaky, max_attempts=2)
    whole.job(overruns, run_timeout=timedelta(seconds=1))
    whole.job(slow)
    async with whole.replica(tracing=True):
        made = await whole.trigger("slow")
        pushed = "SELECT cronledger.enqueue('flaky', traceparent => %s)"
        row = await whole.end(await asyncio.to_thread(whole.one, pushed, PARENT))
        await whole.run("overruns")
        await started.wait()
        whole.rows("SELECT cronledger.cancel(%s)", made)
        cancelled = await whole.end(made)
    first, second = spans.named("run flaky")
    assert ends(first) == ("failed", "retry_requested", StatusCode.ERROR)
    assert ends(second) == ("failed", "handler_error", StatusCode.ERROR)
    assert "no disk" in (first.status.description or "")
    assert "no luck" in (second.status.description or "")
    assert [attributes(x)["cronledger.attempt"] for x in (first, second)] == [1, 2]
    assert trace_id(first) != trace_id(second) == row["trace_id"]
    assert [entry["trace_id"] for entry in row["attempts"]] == [trace_id(first)]
    links = [link.context for span in (first, second) for link in span.links]
    assert [format_span_id(x.span_id) for x in links] == ["b7ad6b7169203331"] * 2
    (shown,) = whole.rows(
        "SELECT traceparent, trace_id FROM cronledger.execution_status WHERE id = %s", row["id"]
    )
    assert shown == {"traceparent": PARENT, "trace_id": trace_id(second)}
    assert ends(spans.one("run overruns")) == ("failed", "timeout", StatusCode.ERROR)
    assert ends(spans.one("run slow")) == ("cancelled", "cancelled", StatusCode.UNSET)
    assert cancelled["trace_id"] == trace_id(spans.one("run slow"))


def _endless(name: str = "slow") -> tuple[asyncio.Event, Callable[[], Awaitable[None]]]:
    """Return a handler of this name that never returns, and the event of its start."""
    started = asyncio.Event()

    async def endless() -> None:
        started.set()
        await asyncio.Event().wait()

    endless.__name__ = name
    return started, endless


async def test_a_drain_releases_or_cancels_and_the_span_has_the_same_outcome(
    whole: Whole, spans: Spans
) -> None:
    """The replica does not know of a request to cancel when it stops the handler."""
    jobs = ("released", "unwanted")
    started = []
    for name in jobs:
        event, handler = _endless(name)
        whole.job(handler, allow_stale_reentry=True)
        started.append(event)
    async with whole.replica(tracing=True) as replica:
        made = {name: await whole.trigger(name) for name in jobs}
        for event in started:
            await event.wait()
        whole.rows(
            "UPDATE cronledger.executions SET cancel_requested_at = cronledger.db_now()"
            " WHERE job_name <> 'released'"
        )
        report = await replica.drain(timeout=0)
    assert [whole.get(made[name])["status"] for name in jobs] == ["PENDING", "CANCELLED"]
    assert [ends(spans.one(f"run {name}")) for name in jobs] == [
        (outcome, "shutdown", StatusCode.UNSET) for outcome in ("released", "cancelled")
    ]
    assert (report.finished, report.released, report.failed) == (1, 1, 0)


@pytest.mark.long
async def test_the_span_lasts_as_long_as_the_handler_and_is_lost_with_its_outcome(
    whole: Whole, spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is sent once its outcome is written, however long that takes. An outcome that is never
    written is for instance that of a replica that drains while the database is down."""
    monkeypatch.setattr("cronledger.engine.runtime.runtime.FLUSH_SECONDS", 0.1)
    handled, may_write = asyncio.Event(), asyncio.Event()

    async def quick() -> None:
        handled.set()

    async def unwritable(*_: object) -> None:
        raise psycopg.OperationalError("the database is down")

    job = whole.job(quick)
    async with whole.replica(tracing=True) as replica:
        finisher = replica._runtime.components.finisher
        write = finisher._write_batch

        async def later() -> None:
            await may_write.wait()
            await write()

        monkeypatch.setattr(finisher, "_write_batch", later)
        written = await whole.trigger(job)
        await handled.wait()
        await eventually("its outcome is not written", lambda: finisher.waiting)
        assert spans.named("run quick") == []
        with spans.tracer.start_as_current_span("afterwards"):
            may_write.set()
        await whole.end(written)
        handled.clear()
        monkeypatch.setattr(finisher, "_write_batch", unwritable)
        lost = await whole.trigger(job)
        await handled.wait()
        report = await replica.drain()
    assert (whole.get(lost)["status"], report.unfinished) == ("RUNNING", 1)
    first, second = spans.named("run quick")
    ended, after = first.end_time, spans.one("afterwards").start_time
    assert ended is not None and after is not None and ended <= after
    assert (ends(first)[0], ends(second)[0]) == ("success", "lost")


@pytest.mark.long
async def test_a_lost_lease_and_a_drain_that_gives_a_handler_up_end_one_span_each(
    whole: Whole, spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cronledger.engine.running.executor.Executor.GRACE", 0.1)
    begun, slow = _endless()
    started, leave = threading.Event(), threading.Event()

    def deaf() -> None:
        started.set()
        leave.wait()

    jobs = whole.job(slow), whole.job(deaf)
    async with whole.replica(tracing=True) as replica:
        lost, given_up = [await whole.trigger(job) for job in jobs]
        await begun.wait()
        await asyncio.to_thread(started.wait)
        # As another runner that has stolen it.
        whole.rows(
            "UPDATE cronledger.executions SET lease_token = gen_random_uuid() WHERE id = %s", lost
        )
        whole.rows("SELECT pg_notify('cronledger', 'cancel')")  # heartbeats are sent at once
        await eventually("its span has ended", lambda: spans.named("run slow"))
        await replica.drain(timeout=0)
        row = whole.get(given_up)
        leave.set()
        await eventually("the handler has ended", lambda: not replica.diagnostics().executions)
    outcome, _, status = ends(spans.one("run slow"))
    assert (outcome, status) == ("lost", StatusCode.ERROR)
    assert whole.get(lost)["trace_id"] is None
    assert ends(spans.one("run deaf")) == ("failed", "shutdown", StatusCode.ERROR)
    assert row["trace_id"] == trace_id(spans.one("run deaf"))


@pytest.mark.long
async def test_without_an_sdk_nothing_is_stored(
    whole: Whole, exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = trace.NoOpTracerProvider()
    monkeypatch.setattr("opentelemetry.trace.get_tracer", provider.get_tracer)
    whole.declare("tell", "command", {"command": 'echo "<${TRACEPARENT-none}>"'})
    async with whole.replica(tracing=True):
        row = await whole.run("tell")
    assert (row["output"], row["trace_id"]) == ("<none>\n", None)


@pytest.fixture(params=["on_start", "on_end"])
def broken_sdk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """An SDK whose processor raises in this method."""

    class Broken(SpanProcessor): ...

    def fails(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    setattr(Broken, request.param, fails)
    provider = TracerProvider()
    provider.add_span_processor(Broken())
    monkeypatch.setattr("opentelemetry.trace.get_tracer", provider.get_tracer)
    return str(request.param)


@pytest.mark.usefixtures("spans")
@pytest.mark.long
async def test_an_error_of_the_sdk_changes_no_call_and_no_execution(
    whole: Whole, broken_sdk: str
) -> None:
    def ship(payload: int) -> None: ...

    job = applied(whole, ship)
    calls: Any = ship
    with (
        capture_logs() as lines,
        Client(whole.url) as client,
        psycopg.connect(whole.url, autocommit=True) as connection,
    ):
        made = [client.enqueue(job, 1), calls.enqueue(2, conn=connection)]
        async with AsyncClient(whole.url) as asynchronous:
            made.append(await asynchronous.enqueue(job, 3))
        with pytest.raises(LedgerError, match="nowhere"):
            client.enqueue("nowhere")
    assert trace.get_current_span() is trace.INVALID_SPAN
    assert [line["event"] for line in lines] == ["span_failed"] * 4
    with capture_logs([merge_contextvars]) as lines:
        async with whole.replica(tracing=True):
            rows = [await whole.end(execution) for execution in made if execution]
    assert [row["traceparent"] is None for row in rows] == [broken_sdk == "on_start"] * 3
    assert [row["status"] for row in rows] == ["SUCCESS"] * 3
    failed = {line["execution_id"] for line in lines if line["event"] == "span_failed"}
    assert failed == {row["id"] for row in rows}


@pytest.mark.long
async def test_each_way_to_enqueue_is_a_span_to_which_the_attempt_links(
    whole: Whole, spans: Spans
) -> None:
    def ship(payload: int) -> None: ...

    job = applied(whole, ship)
    calls: Any = ship
    with (
        spans.tracer.start_as_current_span("request"),
        Client(whole.url) as client,
        psycopg.connect(whole.url) as connection,
        sqlalchemy_engine(whole.url) as engine,
        engine.begin() as other,
    ):
        made = [client.enqueue(job, 1), *client.enqueue_many(job, [2, 3]), client.trigger(job, 4)]
        made += [calls.enqueue(5, conn=connection), calls.enqueue(6, conn=other)]
        made.append(calls.trigger(7, conn=client))
        async with AsyncClient(whole.url) as asynchronous:
            made.append(await asynchronous.enqueue(job, 8))
            made += await asynchronous.enqueue_many(job, [9, 10])
            made.append(await calls.enqueue_async(11, conn=asynchronous))
    producers = {traceparent(span): span for span in spans.named("enqueue ship")}
    assert len(producers) == 9
    async with whole.replica(tracing=True):
        rows = [await whole.end(execution) for execution in made if execution]
    for row in rows:
        assert row["traceparent"] in producers, row["payload"]
        span = next(x for x in spans.named("run ship") if trace_id(x) == row["trace_id"])
        (link,) = span.links
        assert link.context.span_id == context(producers[row["traceparent"]]).span_id
        assert span.parent is None
    assert len(spans.named("run ship")) == len(made)
    request = spans.one("request")
    assert {span.kind for span in producers.values()} == {SpanKind.PRODUCER}
    assert all(parent_is(span, request) for span in producers.values())
    counted = [attributes(span).get("cronledger.items") for span in producers.values()]
    assert counted.count(2) == 2


class Marking(Sampler):
    """It gives each trace but those of `tell` a state that would end a comment in SQL."""

    def should_sample(
        self, parent_context: Any, trace_id: int, name: str, *_: Any, **__: Any
    ) -> SamplingResult:
        state = TraceState([] if name == "run tell" else [("vendor", "a*/b")])
        return SamplingResult(Decision.RECORD_AND_SAMPLE, trace_state=state)

    def get_description(self) -> str:
        return "marks each trace"


@pytest.mark.long
async def test_a_command_a_request_and_a_comment_in_sql_carry_the_trace_and_its_state_on(
    whole: Whole, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not those of the replica's own environment. A header of the job takes precedence."""
    provider, exporter = TracerProvider(sampler=Marking()), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("opentelemetry.trace.get_tracer", provider.get_tracer)
    spans = Spans(exporter)
    whole.rows("CREATE TABLE said (id int, text text)")
    said = dict(enumerate(["", ";", " -- all of them", ";\n-- all"]))
    for n, end in said.items():
        script = f"INSERT INTO said SELECT {n}, current_query(){end}"
        whole.declare(f"write{n}", "sql", {"sql": script})
    monkeypatch.setenv("TRACEPARENT", PARENT)
    monkeypatch.setenv("TRACESTATE", "of=replica")
    site.answer("/")
    target = {"url": f"{site.url}/", "allow_private": True}
    whole.declare("ask", "http", target)
    whole.declare("own", "http", {**target, "headers": {"Traceparent": PARENT}})
    tells = {"command": 'echo "$TRACEPARENT <$TRACESTATE>"', "env": {"TRACEPARENT": "of the job"}}
    whole.declare("tell", "command", tells)
    whole.declare("mark", "command", {"command": 'echo "$TRACESTATE"'})
    async with whole.replica(tracing=True):
        told = await whole.run("tell")
        assert (await whole.run("mark"))["output"] == "vendor=a*/b\n"
        await whole.run("ask")
        await whole.run("own")
        rows = [await whole.run(f"write{n}") for n in said]
    assert told["output"] == f"{traceparent(spans.one('run tell'))} <>\n"
    received = [CIMultiDict(headers)["traceparent"] for _, _, headers, _ in site.asked]
    assert received == [traceparent(spans.one("run ask")), PARENT]
    assert [(row["status"], row["rows_affected"]) for row in rows] == [("SUCCESS", 1)] * len(said)
    for n, end in said.items():  # a span is sent after its outcome is written
        text = whole.one("SELECT text FROM said WHERE id = %s", n)
        parent = traceparent(spans.one(f"run write{n}"))
        state = "tracestate='vendor%3Da%2A%2Fb'"
        assert text.endswith(f"{end}\n/*traceparent='{parent}',{state}*/")


@pytest.fixture
def jobs(db: Db, whole: Whole) -> Db:
    def work() -> None: ...

    applied(whole, work)
    return db


CALLS = {
    "enqueue": "SELECT cronledger.enqueue('work', traceparent => %s)",
    "keyed": "SELECT cronledger.enqueue('work', key => 'k', traceparent => %s)",
    "many": "SELECT (cronledger.enqueue_many('work', ARRAY['1'::jsonb], traceparent => %s))[1]",
    "many keyed": "SELECT (cronledger.enqueue_many('work', keys => ARRAY['a'],"
    " traceparent => %s))[1]",
    "trigger": "SELECT cronledger.trigger('work', traceparent => %s)",
}
BACKFILL = (
    "SELECT made FROM cronledger.backfill('work',"
    " ARRAY[date_trunc('second', cronledger.db_now())], traceparent => %s)"
)
STORED = "SELECT traceparent FROM cronledger.execution_status WHERE id = %s"


def test_functions_store_the_traceparent_and_merged_work_keeps_the_newest(jobs: Db) -> None:
    other = PARENT.replace("b7ad", "b7ae")
    for call in CALLS.values():
        for given in (PARENT, other, None):
            (made,) = jobs.execute(call.encode(), [given]).fetchall()
            kept = other if given is None and "key" in call else given
            assert value(jobs, STORED, *made.values()) == kept, call
    jobs.execute("DELETE FROM cronledger.executions")
    assert value(jobs, BACKFILL, PARENT) == 1
    assert value(jobs, "SELECT traceparent FROM cronledger.executions") == PARENT


def test_functions_refuse_a_malformed_traceparent(jobs: Db) -> None:
    malformed = (
        "", "abc", PARENT.upper(), PARENT + "-00", "ff" + PARENT[2:], PARENT[:-1],
        "00-" + "0" * 32 + PARENT[35:], PARENT[:36] + "0" * 16 + "-01", PARENT + "\n",
    )  # fmt: skip
    for call, bad in product([*CALLS.values(), BACKFILL], malformed):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="W3C trace context") as e:
            jobs.execute(call.encode(), [bad])
        assert "00-TRACE-SPAN-01" in (e.value.diag.message_hint or "")
    assert value(jobs, "SELECT count(*) FROM cronledger.executions") == 0


@pytest.mark.long
async def test_off_imports_nothing_and_stores_nothing(whole: Whole) -> None:
    def ship() -> None: ...

    applied(whole, ship)
    code = f"""
import asyncio, sys
from cronledger import App, Client, Replica
with Client({whole.url!r}) as client:
    made = client.enqueue("ship")
app = App()
async def main():
    async with Replica(app, url={whole.url!r}, applied=True):
        pass
asyncio.run(main())
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""
    ran = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert ran.stdout.splitlines()[-1] == "[]"
    async with whole.replica():
        (row,) = whole.rows("SELECT id FROM cronledger.executions")
        ended = await whole.end(row["id"])
    assert (ended["status"], ended["traceparent"], ended["trace_id"]) == ("SUCCESS", None, None)
