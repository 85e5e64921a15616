"""F71: dashboards are complete, their metrics exist, and their SQL runs as a viewer."""

import json
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from tests.db.support.rows import connected, execution, job, now
from tests.deploy.support.files import DEPLOY
from tests.deploy.support.metrics import unknown_in

Panel = dict[str, Any]
SOURCES = {
    "ledger.json": "prometheus",
    "replicas.json": "prometheus",
    "postgresql.json": "grafana-postgresql-datasource",
}
WIDTH = 24
WEEK = timedelta(weeks=1)


def dashboard(name: str) -> dict[str, Any]:
    """Return a dashboard."""
    found: dict[str, Any] = json.loads((DEPLOY / "grafana" / name).read_text("utf-8"))
    return found


PANELS = [
    pytest.param(name, panel, id=f"{name}: {panel['title']}")
    for name in SOURCES
    for panel in dashboard(name)["panels"]
]


def test_each_file_is_a_dashboard_of_its_own() -> None:
    assert {path.name for path in (DEPLOY / "grafana").glob("*.json")} == SOURCES.keys()
    for key in ("uid", "title"):
        assert len({dashboard(name)[key] for name in SOURCES}) == len(SOURCES)


@pytest.mark.parametrize("name", SOURCES)
def test_a_dashboard_can_be_imported(name: str) -> None:
    found = dashboard(name)
    assert re.fullmatch(r"[a-z0-9-]{1,40}", found["uid"])
    assert found["description"] and found["tags"] == ["cronledger"]
    assert found["schemaVersion"] >= 36
    assert found["time"].keys() == {"from", "to"}
    # Grafana assigns `id` when it imports a dashboard.
    assert "id" not in found
    variables = {one["name"]: one for one in found["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == SOURCES[name]
    used = set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(found)))
    assert used == variables.keys()
    ids = [panel["id"] for panel in found["panels"]]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("name", SOURCES)
def test_panels_do_not_overlap(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard(name)["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= WIDTH
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"])
                 for y in range(at["y"], at["y"] + at["h"])}  # fmt: skip
        assert not cells & taken, panel["title"]
        taken |= cells


@pytest.mark.parametrize(("name", "panel"), PANELS)
def test_a_panel_is_described(name: str, panel: Panel) -> None:
    assert panel["title"] and panel["description"].endswith(".")
    assert panel["type"] in ("stat", "table", "timeseries")
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["datasource"] == {"type": SOURCES[name], "uid": "${datasource}"}
    references = [target["refId"] for target in panel["targets"]]
    assert references
    assert len(set(references)) == len(references)


def expressions() -> Iterator[Any]:
    """Yield each expression for Prometheus, those of variables too."""
    for name, kind in SOURCES.items():
        if kind == "prometheus":
            found = dashboard(name)
            for variable in found["templating"]["list"]:
                if variable["type"] == "query":
                    yield pytest.param(variable["query"], id=f"{name}: ${variable['name']}")
            for panel in found["panels"]:
                for target in panel["targets"]:
                    title = f"{name}: {panel['title']} {target['refId']}"
                    yield pytest.param(target["expr"], id=title)


@pytest.mark.parametrize("expression", [*expressions()])
def test_the_metrics_of_an_expression_exist(expression: str) -> None:
    assert list(unknown_in(expression)) == []


def test_a_legend_names_labels_of_its_metric() -> None:
    for name, kind in SOURCES.items():
        for panel in dashboard(name)["panels"] if kind == "prometheus" else ():
            for target in panel["targets"]:
                for label in re.findall(r"{{(\w+)}}", target.get("legendFormat", "")):
                    # unknown_in() reports a label that no metric of the expression has.
                    assert list(unknown_in(f"sum by ({label}) ({target['expr']})")) == []


def expanded(sql: str, now: datetime) -> str:
    """Return the statement that Grafana sends for the two weeks around an instant."""
    start, end = ((now + WEEK * sign).isoformat() for sign in (-1, 1))
    sql = re.sub(r"\$__timeFilter\((\w+)\)", rf"\1 BETWEEN '{start}' AND '{end}'", sql)
    sql = sql.replace("$__timeFrom()", f"'{start}'").replace("$__timeTo()", f"'{end}'")
    sql = sql.replace("$job", "'job','other'")
    assert "$" not in sql, sql
    return sql


STATEMENTS = [
    pytest.param(target, id=panel["title"])
    for panel in dashboard("postgresql.json")["panels"]
    for target in panel["targets"]
]


@pytest.mark.parametrize("target", STATEMENTS)
def test_a_viewer_runs_the_statement_of_a_panel(target: dict[str, Any], database_url: str) -> None:
    with connected(database_url) as db:
        job(db)
        execution(db, "FAILED")
        execution(db, "SUCCESS", plan_time=now(db) - WEEK / 2)
        db.execute("SET ROLE cronledger_viewer")
        found = db.execute(expanded(target["rawSql"], now(db)).encode())
        assert found.description is not None
        columns = {column.name: column.type_code for column in found.description}
        if target["format"] == "time_series":
            assert columns["time"] == psycopg.adapters.types["timestamptz"].oid
        # Grafana shows these types as text at best.
        oids = {psycopg.adapters.types[x].oid for x in ("interval", "jsonb", "uuid")}
        assert not oids & set(columns.values())
        assert target["format"] == "time_series" or "LIMIT" in target["rawSql"]


def test_the_statement_of_the_variable_lists_jobs(database_url: str) -> None:
    variables = {x["name"]: x for x in dashboard("postgresql.json")["templating"]["list"]}
    with connected(database_url) as db:
        job(db, "report")
        db.execute("SET ROLE cronledger_viewer")
        rows = db.execute(variables["job"]["query"].encode()).fetchall()
    assert [row["name"] for row in rows] == ["report"]
