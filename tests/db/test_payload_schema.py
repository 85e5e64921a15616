"""The JSON Schema of a job's payload: where it comes from, and where people find it."""

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, WithJsonSchema

from cronledger import App, Context
from tests.db.support import commands
from tests.db.support.engine import Ledger, Runner

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


@pytest.fixture
def command(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., str]]:
    """Call the command line in an empty directory, from which it imports the module `shop`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def call(*arguments: str) -> str:
        sys.modules.pop("shop", None)
        importlib.invalidate_caches()
        return commands.command(database_url, *arguments).stdout

    yield call
    sys.modules.pop("shop", None)


def test_an_app_stores_the_schema_of_its_handlers_and_a_change_of_the_type_is_an_edit(
    ledger: Ledger, command: Callable[..., str]
) -> None:
    shop = Path("shop.py")
    shop.write_text(ORDER)
    command("jobs", "apply", "shop:app")
    schema = ledger.one("SELECT payload_schema FROM job_details WHERE name = 'ship'")
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
    def anything(payload: Any) -> None: ...

    def hostile(payload: Hostile) -> None: ...

    def big(payload: Annotated[int, WithJsonSchema({"title": "x" * 65536})]) -> None: ...

    def optional(ctx: Context, payload: list[int] | None = None) -> None: ...

    app = App("many")
    functions: list[Callable[..., Any]] = [anything, hostile, big, optional]
    for function in functions:
        app.job(name=function.__name__)(function)
    found = {name: job.payload_schema for name, job in app.jobs.items()}
    assert found.pop("optional") == {
        "anyOf": [{"items": {"type": "integer"}, "type": "array"}, {"type": "null"}]
    }
    assert set(found.values()) == {None}


async def test_a_file_declares_it_and_neither_sql_nor_replicas_check_by_it(
    ledger: Ledger, one: Runner, command: Callable[..., str]
) -> None:
    Path("jobs.toml").write_text(
        '[jobs.a]\nexternal = true\npayload_schema = { type = "object", required = ["n"] }\n'
    )
    command("jobs", "apply", "jobs.toml")
    stored = ledger.values("SELECT name, payload_schema FROM job_details")
    assert stored == [("a", {"type": "object", "required": ["n"]})]
    assert ledger.one("SELECT trigger('a', payload => '[]')") is not None
    with ledger.unchecked():  # a replica does not read it, whatever its numbers are
        unreadable = f'{{"maximum": 1{"0" * 5000}}}'
        ledger.job("b", schedule="* * * * *", payload_schema=unreadable)
    ledger.travel(by=timedelta(minutes=1))
    assert "b" in [s.claimed.key.job_name for s in await one.settle()]
