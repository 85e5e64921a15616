"""F71: dashboards are complete, their metrics exist, and their SQL runs as a viewer."""

import json
import re
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from tests.db.support.rows import connected, execution, job, now
from tests.deploy.support.files import DEPLOY
from tests.deploy.support.metrics import unknown_in

SOURCES = {
    "ledger.json": "prometheus",
    "replicas.json": "prometheus",
    "postgresql.json": "grafana-postgresql-datasource",
}
WEEK = timedelta(weeks=1)


def dashboard(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DEPLOY / "grafana" / name).read_text("utf-8"))
    return found


def test_each_file_is_a_dashboard_of_its_own() -> None:
    assert {path.name for path in (DEPLOY / "grafana").glob("*.json")} == SOURCES.keys()
    for key in ("uid", "title"):
        assert len({dashboard(name)[key] for name in SOURCES}) == len(SOURCES)


@pytest.mark.parametrize("name", SOURCES)
def test_a_dashboard_can_be_imported_and_describes_its_panels(name: str) -> None:
    found = dashboard(name)
    assert re.fullmatch(r"[a-z0-9-]{1,40}", found["uid"])
    assert found["description"]
    # Grafana assigns `id` when it imports a dashboard.
    assert "id" not in found
    variables = {one["name"]: one for one in found["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == SOURCES[name]
    used = set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(found)))
    assert used == variables.keys()
    ids = [panel["id"] for panel in found["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in found["panels"]:
        assert panel["title"] and panel["description"].endswith("."), panel["title"]
        assert panel["type"] in ("stat", "table", "timeseries")
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["datasource"] == {"type": SOURCES[name], "uid": "${datasource}"}


@pytest.mark.parametrize("name", [name for name, kind in SOURCES.items() if kind == "prometheus"])
def test_metrics_and_labels_of_expressions_exist(name: str) -> None:
    found = dashboard(name)
    queries = [x["query"] for x in found["templating"]["list"] if x["type"] == "query"]
    for target in (target for panel in found["panels"] for target in panel["targets"]):
        queries.append(target["expr"])
        # unknown_in() reports a label that no metric of the expression has.
        labels = re.findall(r"{{(\w+)}}", target.get("legendFormat", ""))
        queries += [f"sum by ({label}) ({target['expr']})" for label in labels]
    assert {query: [*unknown_in(query)] for query in queries} == {query: [] for query in queries}


def expanded(sql: str, now: datetime) -> str:
    """Return the statement that Grafana sends for the two weeks around an instant."""
    start, end = ((now + WEEK * sign).isoformat() for sign in (-1, 1))
    sql = re.sub(r"\$__timeFilter\((\w+)\)", rf"\1 BETWEEN '{start}' AND '{end}'", sql)
    sql = sql.replace("$__timeFrom()", f"'{start}'").replace("$__timeTo()", f"'{end}'")
    sql = sql.replace("$job", "'job','other'")
    assert "$" not in sql, sql
    return sql


def test_a_viewer_runs_each_statement(database_url: str) -> None:
    found = dashboard("postgresql.json")
    variables = {x["name"]: x for x in found["templating"]["list"]}
    # Grafana shows these types as text at best.
    unwanted = {psycopg.adapters.types[x].oid for x in ("interval", "jsonb", "uuid")}
    with connected(database_url) as db:
        job(db)
        execution(db, "FAILED")
        execution(db, "SUCCESS", plan_time=now(db) - WEEK / 2)
        db.execute("SET ROLE cronledger_viewer")
        rows = db.execute(variables["job"]["query"].encode()).fetchall()
        assert [row["name"] for row in rows] == ["job"]
        for target in (target for panel in found["panels"] for target in panel["targets"]):
            result = db.execute(expanded(target["rawSql"], now(db)).encode())
            assert result.description is not None
            columns = {column.name: column.type_code for column in result.description}
            if target["format"] == "time_series":
                assert columns["time"] == psycopg.adapters.types["timestamptz"].oid
            else:
                assert "LIMIT" in target["rawSql"]
            assert not unwanted & set(columns.values()), target["rawSql"]
