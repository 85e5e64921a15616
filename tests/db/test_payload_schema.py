"""The JSON Schema of a job's payload: where it comes from, and where people find it."""

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import psycopg
import pytest
from click.testing import CliRunner
from psycopg.rows import dict_row
from pydantic import BaseModel, Field, WithJsonSchema

from cronledger import App, Context
from cronledger.cli import main
from cronledger.sources.apply import apply
from tests.db.support.engine import Ledger, runners

ORDER = """
from pydantic import BaseModel
from cronledger import App

app = App("shop")

class Order(BaseModel):
    number: int
    tags: set[str] = {"a", "b", "c", "d", "e", "f"}

@app.job("* * * * *", payload={"number": 7})
def ship(payload: Order) -> int:
    return payload.number
"""


def schemas(url: str) -> dict[str, Any]:
    with psycopg.connect(url, row_factory=dict_row) as c:
        rows = c.execute("SELECT name, payload_schema FROM cronledger.job_details").fetchall()
    return {row["name"]: row["payload_schema"] for row in rows}


@pytest.fixture
def command(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., str]]:
    """Call the command line in an empty directory, from which it imports the module `shop`."""
    monkeypatch.setenv("CRONLEDGER_DATABASE_URL", database_url)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def call(*arguments: str) -> str:
        sys.modules.pop("shop", None)
        importlib.invalidate_caches()
        done = CliRunner().invoke(main, arguments)
        assert done.exit_code == 0, done.output
        return done.stdout

    yield call
    sys.modules.pop("shop", None)


def test_an_app_stores_the_schema_of_its_handlers_and_a_change_of_the_type_is_an_edit(
    ledger: Ledger, database_url: str, command: Callable[..., str]
) -> None:
    shop = Path("shop.py")
    shop.write_text(ORDER)
    command("jobs", "apply", "shop:app")
    schema = schemas(database_url)["ship"]
    assert schema["required"] == ["number"]
    assert schema["properties"]["number"] == {"title": "Number", "type": "integer"}
    # Sorted, because each process has its own order of a set.
    assert schema["properties"]["tags"]["default"] == ["a", "b", "c", "d", "e", "f"]
    applied = json.loads(command("jobs", "apply", "shop:app", "--json"))
    assert (applied["unchanged"], applied["changed"]) == (1, [])
    assert json.loads(command("jobs", "show", "ship", "--json"))["payload_schema"] == schema
    assert "payload_schema" in command("jobs", "show", "ship")

    shop.write_text(ORDER.replace("number: int", "number: int | None"))
    (change,) = json.loads(command("jobs", "diff", "shop:app", "--json"))["jobs"]
    assert list(change["fields"]) == ["payload_schema"]
    command("jobs", "apply", "shop:app")
    kept = ledger.values(
        "SELECT definition -> 'payload_schema' -> 'properties' -> 'number' ? 'anyOf'"
        " FROM job_revisions ORDER BY revision"
    )
    assert kept == [False, True]


class Hostile(BaseModel):
    """Its schema cannot be generated."""

    x: Annotated[int, Field(json_schema_extra=lambda _: 1 / 0)]


def test_there_is_none_for_any_json_and_for_what_has_no_schema() -> None:
    app = App("many")

    @app.job()
    def nothing() -> None: ...

    @app.job()
    def anything(payload: Any) -> None: ...

    @app.job()
    def plain(payload) -> None: ...  # type: ignore[no-untyped-def]

    @app.job()
    def hostile(payload: Hostile) -> None: ...

    @app.job()
    def big(payload: Annotated[int, WithJsonSchema({"title": "x" * 65536})]) -> None: ...

    @app.job()
    def optional(ctx: Context, payload: list[int] | None = None) -> None: ...

    found = {name: job.payload_schema for name, job in app.jobs.items()}
    assert found.pop("optional") == {
        "anyOf": [{"items": {"type": "integer"}, "type": "array"}, {"type": "null"}]
    }
    assert set(found.values()) == {None}


async def test_a_file_declares_it_and_neither_sql_nor_replicas_check_by_it(
    ledger: Ledger, database_url: str, command: Callable[..., str]
) -> None:
    Path("jobs.toml").write_text(
        '[jobs.a]\nexternal = true\npayload_schema = { type = "object", required = ["n"] }\n'
    )
    command("jobs", "apply", "jobs.toml")
    assert schemas(database_url) == {"a": {"type": "object", "required": ["n"]}}
    assert ledger.one("SELECT trigger('a', payload => '[]')") is not None
    with ledger.unchecked():  # a replica does not read it, whatever its numbers are
        unreadable = f'{{"maximum": 1{"0" * 5000}}}'
        ledger.job("b", schedule="* * * * *", payload_schema=unreadable)
    ledger.travel(by=timedelta(minutes=1))
    async with runners(database_url, {}) as (one,):
        assert "b" in [s.claimed.key.job_name for s in await one.settle()]


def test_a_job_without_a_schema_has_the_same_definition_as_before(
    ledger: Ledger, database_url: str
) -> None:
    ledger.job("old")
    assert ledger.values("SELECT definition ? 'payload_schema' FROM job_revisions") == [False]
    assert apply(database_url, [], source="file").refused is None
