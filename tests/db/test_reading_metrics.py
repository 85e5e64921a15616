"""How the metrics of the ledger are read: one snapshot, bounded in series and in time, cached."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import timedelta
from importlib import resources
from time import monotonic
from typing import Any

import psycopg
import pytest

from cronledger.ledger import queries
from cronledger.ledger.access import Access
from cronledger.ledger.senders import AsyncConnections
from cronledger.metrics import ledger_metrics
from cronledger.metrics.ledger_families import METRICS
from cronledger.metrics.ledger_metrics import LedgerMetrics
from cronledger.metrics.ledger_snapshot import PACKAGE, SET
from tests.bench import dataset
from tests.bench.plans import nodes
from tests.cluster.support.proxy import Proxy
from tests.database import Databases
from tests.db.support import rows
from tests.db.support.rows import Db
from tests.db.support.scrapes import Scrape, scrape, viewer
from tests.docs.support.pages import ROOT

STATEMENTS = sorted(
    file.name.removesuffix(".sql") for file in (resources.files(PACKAGE) / "sql").iterdir()
)
Change = Callable[[str, str], str]
SIZE = dataset.Size(40, 400, 8_000, 40, 400, 40, 40)


@pytest.fixture
async def metrics(database_url: str) -> AsyncIterator[LedgerMetrics]:
    """The metrics as a viewer reads them."""
    connections = AsyncConnections(Access(viewer(database_url)), "tests", 2)
    yield LedgerMetrics(connections.lend, "cronledger", job_limit=1_000)
    await connections.close()


@pytest.fixture
def change(monkeypatch: pytest.MonkeyPatch) -> Callable[[Change], None]:
    """Let a function of the test see each statement by name, and return what is sent."""
    original = queries.text

    def use(changed: Change) -> None:
        def text(name: str, schema: str, package: str = "cronledger.ledger") -> str:
            return changed(name, original(name, schema, package))

        monkeypatch.setattr(queries, "text", text)

    return use


async def scraped(metrics: LedgerMetrics) -> Scrape:
    return Scrape((await metrics.exposition())[0].decode())


@pytest.mark.long
def test_the_limit_hides_no_job_with_a_problem_and_prefers_the_longest_overdue(
    database_url: str, db: Db
) -> None:
    for number in range(12):
        rows.job(db, f"job-{number:02}", schedule=None)  # nothing else becomes due meanwhile
    at = rows.now(db)
    rows.execution(db, "FAILED", "job-09")
    rows.execution(db, "FAILED", "job-08", plan_time=at - timedelta(minutes=5))
    rows.execution(db, "SUCCESS", "job-08", plan_time=at - timedelta(minutes=4))
    rows.execution(db, "PENDING", "job-11", plan_time=at - timedelta(hours=1))
    rows.execution(db, "PENDING", "job-07")
    db.execute("SELECT cronledger.pause('job-07')")  # on purpose
    found = scrape(database_url, job_limit=3)
    assert set(found["job_scopes"]) == {("job-00",), ("job-09",), ("job-11",)}
    assert found.one("jobs") == 12
    assert found.one("job_series_limit") == 3
    assert found.one("job_series_omitted") == 9
    assert found["overdue"]["paused",] == 1

    rows.execution(db, "PENDING", "job-10", plan_time=at - timedelta(hours=2))
    for number in range(7):  # as after an edit of many jobs
        rows.execution(db, "PENDING", f"job-{number:02}", plan_time=at - timedelta(seconds=10))
    for limit, last in ((2, {"job-10"}), (3, {"job-10", "job-11"})):
        shown = scrape(database_url, job_limit=limit)["job_scopes"]
        assert {name for (name,) in shown} == {"job-09", *last}


async def test_all_values_are_those_of_one_instant(
    metrics: LedgerMetrics, change: Callable[[Change], None], db: Db
) -> None:
    def between(name: str, text: str) -> str:
        if name == "list_jobs":  # after the first statements of the transaction
            rows.job(db, "late")
            rows.execution(db, "RUNNING", "late")
            rows.runner(db, "late")
        return text

    change(between)
    found = await scraped(metrics)
    assert rows.value(db, "SELECT count(*) FROM cronledger.jobs") == 1
    assert found.one("jobs") == 0 and sum(found["runners"].values()) == 0
    assert "queue_running" not in found


async def test_scrapes_of_fifteen_seconds_are_one_reading(
    metrics: LedgerMetrics, change: Callable[[Change], None], db: Db,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    sent: list[str] = []

    def counted(name: str, text: str) -> str:
        sent.append(name)
        return text

    change(counted)
    clock = 1_000.0
    monkeypatch.setattr(ledger_metrics, "monotonic", lambda: clock)
    first = await asyncio.gather(*(metrics.exposition() for _ in range(20)))
    assert len(set(first)) == 1
    assert sorted(sent) == STATEMENTS
    rows.job(db)
    clock += 14.9
    assert await metrics.exposition() == first[0]
    clock += 0.2
    assert (await scraped(metrics)).one("jobs") == 1
    assert len(sent) == 2 * len(STATEMENTS)


async def test_old_values_are_not_served_when_reading_fails(
    metrics: LedgerMetrics, change: Callable[[Change], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_metrics, "FRESH_SECONDS", 0.0)
    monkeypatch.setattr(ledger_metrics, "RETRY_SECONDS", 0.0)
    assert (await scraped(metrics)).one("up") == 1
    broken = True
    change(lambda name, text: "SELECT 1/0" if broken and name == "count_skips" else text)
    found = await scraped(metrics)
    assert found.keys() == {"up", "build_info"} and found.one("up") == 0
    broken = False
    assert (await scraped(metrics)).one("up") == 1


async def test_a_statement_and_a_wait_for_a_lock_have_limits(
    metrics: LedgerMetrics, change: Callable[[Change], None]
) -> None:
    names = ("statement_timeout", "lock_timeout", "transaction_isolation", "transaction_read_only")
    settings = ", ".join(f"current_setting('{name}')" for name in names)
    asked = f"SELECT concat_ws(' ', {settings}) AS kind, 1 AS count"
    change(lambda name, text: asked if name == "count_violations" else text)
    assert (await metrics.read()).violations[0]["kind"] == "5s 2s repeatable read on"


async def test_a_server_that_hangs_is_not_waited_for(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Proxy(viewer(database_url)) as proxy:
        connections = AsyncConnections(Access(proxy.dsn), "tests", 1)
        metrics = LedgerMetrics(connections.lend, "cronledger", job_limit=1_000)
        await metrics.read()
        # The connection is kept. A request to cancel would wait for the server, too.
        proxy.black_hole()
        monkeypatch.setattr(ledger_metrics, "PATIENCE", 0.2)
        began = monotonic()
        with pytest.raises(TimeoutError, match="could not be read within"):
            await metrics.read()
        assert monotonic() - began < 9  # psycopg waits for 5 s to cancel, and for 5 s afterwards
        proxy.heal()
        monkeypatch.undo()
        assert (await metrics.read()).job_limit == 1_000
        await connections.close()


def test_each_statement_names_its_locks_and_each_list_has_a_limit() -> None:
    for name in STATEMENTS:
        text = queries.text(name, "{schema}", PACKAGE)
        assert text.startswith("-- ") and re.search(r"No(?: |\n-- )lock\.", text), name
        assert not name.startswith("list_") or "LIMIT" in text, name


def test_the_document_lists_every_metric_with_its_labels() -> None:
    section = (
        (ROOT / "docs" / "metrics.md").read_text("utf-8").partition("\n## Ledger metrics\n")[2]
    )
    table = section.partition("\n### Names\n")[2].partition("\n### ")[0]
    found = re.findall(r"^\| `(\w+)` \| (.*?) ?\| [^|]+ \|$", table, re.MULTILINE)
    listed = [(name, tuple(re.findall(r"`(\w+)`", labels))) for name, labels in found]
    assert listed == [(metric.name, metric.labels) for metric in METRICS]


def plan(db: Db, name: str, **params: Any) -> list[Mapping[str, Any]]:
    """The nodes of the plan of a statement, as a viewer gets it."""
    text = queries.text(name, "cronledger", PACKAGE)
    with db.transaction():
        db.execute("SET LOCAL ROLE cronledger_viewer")
        db.execute(SET)
        # Early in a week its partition has few rows, and reading all of them costs less.
        db.execute("SET LOCAL enable_seqscan = off")
        found = rows.one(db.execute(f"EXPLAIN (FORMAT JSON) {text}".encode(), params))
    return [*nodes(found["QUERY PLAN"][0]["Plan"])]


PARAMETERS: dict[str, dict[str, Any]] = {
    "list_jobs": {"overdue": [], "max_jobs": 1_000, "max_scopes": 10, "max_failures": 1_000},
    "list_queues": {"max_rows": 100},
    "list_undelivered": {"max_rows": 100, "max_read": 1_000},
    "count_breaches": {"max_read": 10_000},
    "count_failures": {"max_read": 10_000},
    "read_lateness": {"max_read": 1_000},
}


@pytest.fixture(scope="module")
def history(databases: Databases) -> Iterator[Db]:
    """A ledger of the benchmark's shape, which tests only read."""
    name = databases.create(databases.template())
    with psycopg.connect(databases.url(name), autocommit=True) as c:
        dataset.fill(c, SIZE)
    with rows.connected(databases.url(name)) as db:
        yield db
    databases.drop(name)


SELECTIVE = """
SELECT c.relname FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid
WHERE x.indpred IS NOT NULL AND pg_get_expr(x.indpred, x.indrelid) <> '(attempt >= 0)'
"""
"""The indexes that hold a part of the rows only."""


@pytest.mark.long
def test_no_statement_scans_executions(history: Db) -> None:
    filled = history.execute(
        "SELECT DISTINCT c.relname FROM cronledger.executions e"
        " JOIN pg_class c ON c.oid = e.tableoid"
    ).fetchall()
    selective = {row["relname"] for row in history.execute(SELECTIVE.encode())}
    for name in STATEMENTS:
        found = [
            node
            for node in plan(history, name, **PARAMETERS.get(name, {}))
            if {"relname": node.get("Relation Name")} in filled
        ]
        for node in found:
            is_bounded = "Index Cond" in node or "Recheck Cond" in node
            assert is_bounded or node.get("Index Name") in selective, (name, node)
        assert found or name not in READ_EXECUTIONS, name


READ_EXECUTIONS = {"count_overdue", "list_jobs", "count_failures", "read_lateness", "count_crashes"}
