"""Traces on the command line."""

import pytest
from opentelemetry.trace import SpanKind, StatusCode

from tests.cli.conftest import Ask, Cli
from tests.cli.support.results import read, refused
from tests.spans import Spans, attributes, context, traceparent

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
COMMANDS = (
    ("enqueue", "manual"),
    ("trigger", "tenants", "--scope", "acme"),
    ("backfill", "hourly", "--from", "5h", "--to", "3h"),
)


def _created(ask: Ask) -> list[str | None]:
    """Return the traceparents of the executions that a command has created."""
    found = ask("SELECT traceparent FROM cronledger.executions WHERE id > 3 ORDER BY id")
    return [parent for (parent,) in found]


def test_show_prints_the_traces(filled: Cli, ask: Ask) -> None:
    ask(
        "UPDATE cronledger.executions SET trace_id = %s, traceparent = %s WHERE id = 1",
        TRACE, PARENT,
    )  # fmt: skip
    lines = [line.split() for line in filled("executions", "show", "1").stdout.splitlines()]
    assert ["trace_id", TRACE] in lines and ["traceparent", PARENT] in lines
    shown = read(filled, "executions", "show", "1")
    assert (shown["trace_id"], shown["traceparent"]) == (TRACE, PARENT)
    assert "trace" not in filled("executions", "show", "2").stdout


def test_a_command_that_enqueues_is_a_span(filled: Cli, ask: Ask, spans: Spans) -> None:
    parents: list[str] = []
    for command in COMMANDS:
        job, items = command[1], 2 if command[0] == "backfill" else None
        assert filled(*command).exit_code == 0
        span = spans.named(f"enqueue {job}")[-1]
        parents += [traceparent(span)] * (items or 1)
        assert _created(ask) == parents
        assert (span.kind, span.parent) == (SpanKind.PRODUCER, None)
        assert attributes(span)["cronledger.job"] == job
        assert attributes(span).get("cronledger.items") == items
    assert len(set(parents)) == len(COMMANDS)


def test_a_command_continues_the_trace_of_its_environment_also_when_it_is_refused(
    filled: Cli, ask: Ask, spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a command that a traced command of a job calls."""
    monkeypatch.setenv("TRACEPARENT", PARENT)
    monkeypatch.setenv("TRACESTATE", "vendor=1")
    assert filled("enqueue", "hourly").exit_code == 0
    span = spans.one("enqueue hourly")
    assert span.parent is not None
    found = f"00-{context(span).trace_id:032x}-{span.parent.span_id:016x}-01"
    assert (found, span.parent.trace_state.get("vendor")) == (PARENT, "1")
    assert _created(ask) == [traceparent(span)]
    refused(filled("enqueue", "hourly", "--key", "k" * 5000))
    assert spans.named("enqueue hourly")[-1].status.status_code is StatusCode.ERROR


@pytest.mark.usefixtures("spans")
def test_without_the_extra_only_what_enqueues_or_runs_is_refused(
    filled: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cronledger.tracing.interface.LIBRARY", "no_such_library.trace")
    assert filled("jobs", "list").exit_code == 0
    for command in (["enqueue", "hourly"], ["run"]):
        refused(filled(*command), "CRONLEDGER_TRACING", "pip install 'cronledger[tracing]'")
