"""Traces on the command line."""

import json

import psycopg
import pytest

from tests.cli.conftest import Cli

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_f70_show_prints_the_traces(filled: Cli, database_url: str) -> None:
    with psycopg.connect(database_url) as c:
        c.execute(
            "UPDATE cronledger.executions SET trace_id = %s, traceparent = %s WHERE id = 1",
            [TRACE, PARENT],
        )
    lines = [line.split() for line in filled("executions", "show", "1").stdout.splitlines()]
    assert ["trace_id", TRACE] in lines and ["traceparent", PARENT] in lines
    shown = json.loads(filled("executions", "show", "1", "--json").stdout)
    assert (shown["trace_id"], shown["traceparent"]) == (TRACE, PARENT)
    assert "trace" not in filled("executions", "show", "2").stdout


def test_f70_run_without_the_extra_exits_2(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRONLEDGER_TRACING", "true")
    monkeypatch.setattr("cronledger.tracing.interface.LIBRARY", "no_such_library.trace")
    ended = cli("run")
    assert ended.exit_code == 2
    assert "CRONLEDGER_TRACING" in ended.stderr
    assert "pip install 'cronledger[tracing]'" in ended.stderr
