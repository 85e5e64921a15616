"""The statements of the page: what they name and promise, and plans with and without filters."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from cronledger.ledger import queries
from tests.db.support import rows
from tests.db.support.rows import Db, one

PAGE = Path(__file__).parents[2] / "src" / "cronledger" / "web"
OWN = {path.stem: path for path in (PAGE / "sql").glob("*.sql")}
LEDGER = {path.stem: path for path in (PAGE.parent / "ledger" / "sql").glob("*.sql")}
SHARED = {
    name for path in PAGE.rglob("*.py")
    for name in re.findall(r"\bread\(\s*\"(\w+)\"", path.read_text("utf-8"))
} - OWN.keys()  # fmt: skip
STATEMENTS = sorted(OWN.keys() | SHARED)
WINDOW = ("list_timeline", "list_density")


def head(name: str) -> str:
    return (OWN | LEDGER)[name].read_text("utf-8")


def body(name: str) -> str:
    return re.sub(r"--.*", "", head(name))


def test_a_name_means_one_statement() -> None:
    assert "list_queues" in SHARED
    assert OWN.keys().isdisjoint(LEDGER)


def test_a_statement_names_only_what_its_login_may_use(db: Db) -> None:
    granted: dict[str, set[str]] = defaultdict(set)
    for row in db.execute("SELECT role, object FROM cronledger.decided_grants()"):
        granted[row["role"]].add(row["object"])
    for name in STATEMENTS:
        role = "operator" if name.startswith(("show_payload", "show_target")) else "viewer"
        named = set(re.findall(r"\{schema\}\.(\w+)", body(name)))
        assert named <= granted["PUBLIC"] | granted[f"cronledger_{role}"], name


def test_a_statement_is_bounded_and_explained() -> None:
    assert STATEMENTS
    for name in STATEMENTS:
        text = head(name)
        assert text.startswith("-- ") and "No lock." in text, name
        assert not name.startswith("list_") or "LIMIT" in body(name), name


def end(db: Db) -> datetime:
    """Return the last Sunday at noon: the 500 minutes before it lie in one partition."""
    now = rows.now(db).astimezone(UTC)
    noon = now.replace(hour=12, minute=0, second=0, microsecond=0)
    return noon - timedelta(days=now.weekday() + 1)


@pytest.fixture
def filled(db: Db) -> Db:
    """Forty jobs with 500 executions each, of the 500 minutes before `end`."""
    for number in range(40):
        name = f"job-{number:02}"
        rows.job(db, name)
        newest = rows.execution(db, job=name, plan_time=end(db) - timedelta(minutes=1))
        rows.copies(db, newest, 499)
    db.execute("ANALYZE cronledger.executions")
    return db


def plan(db: Db, name: str, **params: Any) -> dict[str, Any]:
    """The plan of a statement with the settings of the page."""
    text = queries.text(name, "cronledger", "cronledger.web")
    with db.transaction():
        db.execute("SET LOCAL plan_cache_mode = force_custom_plan")
        db.execute("SET LOCAL enable_sort = off")
        found = db.execute(f"EXPLAIN (FORMAT JSON, VERBOSE) {text}".encode(), params)
        (value,) = one(found).values()
    ((top,),) = [value if isinstance(value, list) else json.loads(value)]
    result: dict[str, Any] = top["Plan"]
    return result


def nodes(found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield found
    for one_ in found.get("Plans", ()):
        yield from nodes(one_)


def window(db: Db, **params: Any) -> dict[str, Any]:
    at = end(db)
    bounds = {"since": at - timedelta(hours=1), "until": at, "max_rows": 2001}
    density = {"by": "runner", "buckets": 120, "lanes": 20}
    return bounds | {"planned_from": at - timedelta(hours=2)} | density | params


@pytest.mark.own_database  # plans depend on sizes and statistics
@pytest.mark.long
def test_a_window_is_read_by_an_index_with_and_without_a_job(filled: Db) -> None:
    partitions = filled.execute(
        "SELECT DISTINCT c.relname FROM cronledger.executions e"
        " JOIN pg_class c ON c.oid = e.tableoid"
    )
    with_rows = {row["relname"] for row in partitions}
    for name, job in product(WINDOW, (None, "job-07")):
        found = nodes(plan(filled, name, **window(filled, job=job)))
        scans = [node for node in found if node.get("Relation Name") in with_rows]
        assert scans, name
        for scan in scans:
            condition = scan.get("Index Cond", "") + scan.get("Recheck Cond", "")
            by_index = "Index Name" in scan or "Bitmap" in scan["Node Type"]
            assert by_index, f"{name}: {scan['Node Type']} of {scan['Relation Name']}"
            assert ("job-07" in condition) is (job is not None), scan
            assert "IS NULL OR" not in json.dumps(scan)
    # The condition of a label is part of the plan.
    filters = ("search", "queue", "source", "owner", "state", "result", "among", "names")
    params: dict[str, Any] = dict.fromkeys(filters)
    params |= {"failing": "{}", "overdue": "{}", "sort": "name", "descending": False, "skipped": 0}
    params |= {"max_scopes": 20, "max_read": 300_000}
    for name in ("list_shown_jobs", "list_job_states"):
        found = nodes(plan(filled, name, **params, label="team=data", max_rows=100))
        written = json.dumps(list(found))
        assert "has_label(" not in written
        assert "split_part" in written or "'team'" in written


def test_without_a_filter_by_owner_the_ledger_reads_no_jobs_for_it(db: Db) -> None:
    params: dict[str, Any] = dict.fromkeys(
        ("outcomes", "reason", "runner", "owner", "label", "before_time", "before_job",
         "before_scope_kind", "before_scope_id", "before_kind")
    )  # fmt: skip
    at = rows.now(db)
    params |= {"since": at - timedelta(hours=1), "until": at, "of_kinds": ["execution", "skip"]}
    params |= {"max_rows": 101, "max_read": 20_000}

    def subplans(**chosen: str) -> int:
        found = nodes(plan(db, "list_ledger", **params | chosen))
        return sum(
            "SubPlan" in node.get("Subplan Name", "") and node.get("Relation Name") == "jobs"
            and "owner" in node.get("Filter", "") for node in found
        )  # fmt: skip

    assert subplans() == 0
    assert subplans(owner="data") == 1


def test_the_jobs_read_the_last_24_hours_by_indexes_for_their_order_alone(db: Db) -> None:
    filters = ("search", "queue", "source", "owner", "label", "state", "result")
    params: dict[str, Any] = dict.fromkeys(filters) | {"failing": "{}", "overdue": "{}"}
    params |= {"descending": True, "skipped": 0, "max_scopes": 20, "max_read": 300_000}
    for sort in ("24h", "p95", "name"):
        found = list(nodes(plan(db, "list_shown_jobs", **params, sort=sort, max_rows=100)))
        indexes = {node.get("Index Name", "") for node in found}
        is_read = sort == "24h"
        assert ({"rolled_up_hours_hour", "skips_plan_time"} <= indexes) is is_read
        assert any("finished_at_idx" in name for name in indexes) is is_read
        assert is_read or not {"rolled_up_hours", "skips"} & {
            node.get("Relation Name", "") for node in found
        }


def test_the_executions_planned_in_a_window_are_read_before_earlier_ones(db: Db) -> None:
    rows.job(db)
    at = rows.now(db)
    early, late = at - timedelta(minutes=90), at - timedelta(minutes=30)
    for plan_time in (early, late):
        rows.execution(db, plan_time=plan_time, started_at=plan_time, finished_at=at)
    statement = queries.text("list_timeline", "cronledger", "cronledger.web").encode()
    params = window(db, since=at - timedelta(hours=1), until=at, job=None)
    for most, found in ((1, [late]), (2, [late, early])):
        read = db.execute(statement, params | {"planned_from": early, "max_rows": most})
        assert [row["plan_time"] for row in read] == found
