"""The form for a run now: the fields of the JSON Schema of the payload."""

import json
import re
from html import unescape
from typing import Any, Literal

import pytest
from psycopg.types.json import Jsonb
from pydantic import BaseModel, Field
from starlette.testclient import TestClient

from tests.db.support import rows
from tests.db.support.rows import Db
from tests.web.support.browsing import app, assert_refused, client, expire, post, text
from tests.web.support.logins import Logins


class Address(BaseModel):
    city: str


class Order(BaseModel):
    """What Apps derive the schema from."""

    number: int = Field(ge=1, description="The number of the order.")
    price: float | None = None
    express: bool = False
    size: Literal["small", "large"] = "small"
    note: str = Field(default="none", max_length=10)
    address: Address | None = None
    tags: list[str] = []
    until: str | None = Field(default=None, json_schema_extra={"format": "date"})
    at: str | None = Field(default=None, json_schema_extra={"format": "date-time"})
    api_key: str | None = Field(default=None, min_length=8)


MANY: dict[str, Any] = {f"p{number}": {} for number in range(51)}
SCHEMA = Order.model_json_schema()


def job(db: Db, schema: Any = SCHEMA) -> None:
    rows.job(db, payload_schema=Jsonb(schema))


def run(browser: TestClient, **given: str) -> Any:
    return post(browser, "/job-run", name="job", **{f"value.{x}": y for x, y in given.items()})


def payloads(db: Db) -> list[Any]:
    found = db.execute("SELECT payload FROM cronledger.executions ORDER BY id").fetchall()
    return [row["payload"] for row in found]


def property_of(html: str, name: str) -> str:
    parts = re.split(r'(?=<div class="property)', html)
    (found,) = [part for part in parts if f'name="value.{name}"' in part]
    return found


def test_each_simple_property_has_a_field(browser: TestClient, db: Db) -> None:
    job(db)
    page = browser.get("/job-run?name=job").text
    shown = {name: property_of(page, name) for name in Order.model_fields}
    assert 'inputmode="numeric"' in shown["number"] and "required" in shown["number"]
    assert "The number of the order." in text(shown["number"])
    assert 'inputmode="decimal"' in shown["price"]
    assert "<select" in shown["express"] and "default false" in text(shown["express"])
    assert "<select" in shown["size"] and "large" in text(shown["size"])
    assert 'default "none"' in text(shown["note"])
    assert "<textarea" in shown["address"] and "<textarea" in shown["tags"]
    assert 'type="date"' in shown["until"] and 'type="datetime-local"' in shown["at"]
    assert "Payload as JSON" not in text(page)
    assert "Payload as JSON" in text(browser.get("/job-run?name=job&as=json").text)


def test_what_is_entered_becomes_the_payload(browser: TestClient, db: Db) -> None:
    job(db)
    done = run(
        browser, number="7", price="2.5", express="true", size='"large"', note=" a <b> ",
        address='{"city": "Kiel"}', tags="", until="2026-11-22", at="2026-11-22T03:00",
        api_key="",
    )  # fmt: skip
    assert done.status_code == 303, text(done.text)
    assert payloads(db) == [{
        "number": 7, "price": 2.5, "express": True, "size": "large", "note": " a <b> ",
        "address": {"city": "Kiel"}, "until": "2026-11-22", "at": "2026-11-22T03:00:00Z",
    }]  # fmt: skip
    db.execute("UPDATE cronledger.jobs SET payload = %s", [Jsonb({"number": 1})])
    expire(browser)
    assert run(browser, number="", note="").status_code == 303
    assert payloads(db)[1] == {"number": 1}


BAD: tuple[tuple[dict[str, str], str, str], ...] = (
    ({"number": "seven"}, "number", "is not a whole number"),
    ({"number": "0"}, "number", "0 is less than the minimum of 1"),
    ({"note": "x"}, "number", "is required"),
    ({"number": "1", "price": "1e999"}, "price", "is not a number"),
    ({"number": "1", "express": "yes"}, "express", "is neither true nor false"),
    ({"number": "1", "size": '"huge"'}, "size", "is not one of small, large"),
    ({"number": "1", "address": '{"city": }'}, "address", "line 1, column 10"),
    ({"number": "1", "address": "{}"}, "address", "'city' is a required property"),
    ({"number": "1", "until": "22.11."}, "until", "is not a date"),
    ({"number": "1", "at": "noon"}, "at", "is not an instant"),
    ({"number": "9" * 400}, "number", "is not a whole number"),
)


@pytest.mark.long
def test_a_bad_value_is_shown_again_beside_its_field(browser: TestClient, db: Db) -> None:
    job(db)
    for given, name, problem in BAD:
        refused = run(browser, **given)
        assert refused.status_code == 400
        shown = property_of(refused.text, name)
        assert problem in text(shown) and 'aria-invalid="true"' in shown
        assert refused.text.count('aria-invalid="true"') == 1
        for other, entered in given.items():
            assert entered in unescape(property_of(refused.text, other))
    refused = run(browser, number="1", weight="3")
    assert_refused(refused, "The job has another schema now, without weight.")
    assert payloads(db) == []


def test_a_secret_is_neither_shown_nor_repeated(database_url: str, logins: Logins, db: Db) -> None:
    job(db)
    with client(app(database_url, logins, web_redact=("API_Key",))) as browser:
        page = browser.get("/job-run?name=job").text
        assert 'type="password"' in property_of(page, "api_key")
        refused = run(browser, number="1", api_key="hunter2")
        assert refused.status_code == 400 and "hunter2" not in refused.text
        shown = text(property_of(refused.text, "api_key"))
        assert "is refused by `minLength` of the schema Enter it again." in shown
        assert run(browser, number="1", api_key="hunter2hunter2").status_code == 303
    assert payloads(db) == [{"number": 1, "api_key": "hunter2hunter2"}]


def test_references_constants_and_a_required_null_have_their_fields(
    browser: TestClient, db: Db
) -> None:
    schema = {
        "$ref": "#/$defs/Top",
        "$defs": {
            "Top": {
                "type": "object", "required": ["a"], "properties": {
                    "a": {"type": ["string", "null"]}, "colour": {"$ref": "#/$defs/Colour"},
                    "kind": {"const": "x"}, "level": {"enum": [1, None, "high"]},
                    "loop": {"$ref": "#/$defs/Loop"},
                },
            },
            "Colour": {"type": "string", "enum": ["red", "blue"]},
            "Loop": {"$ref": "#/$defs/Loop"},
        },
    }  # fmt: skip
    job(db, schema)
    page = browser.get("/job-run?name=job").text
    assert '<option value="&#34;blue&#34;"' in property_of(page, "colour")
    assert "empty: null" in text(property_of(page, "a"))
    assert run(browser, a="", colour='"blue"', kind='"x"', level="1").status_code == 303
    assert payloads(db) == [{"a": None, "colour": "blue", "kind": "x", "level": 1}]


def test_a_schema_without_simple_properties_keeps_the_field_for_json(
    browser: TestClient, db: Db
) -> None:
    schemas: tuple[tuple[Any, str, str, str], ...] = (
        ({"type": "array", "items": {"type": "integer"}}, "[1]", '["x"]', "0: 'x' is not of type"),
        ({"type": "object", "properties": MANY}, "{}", "1", "The payload: 1 is not"),
    )
    for number, (schema, good, bad, problem) in enumerate(schemas):
        name = f"job-{number}"
        rows.job(db, name, payload_schema=Jsonb(schema))
        page = text(browser.get(f"/job-run?name={name}").text)
        assert "Payload as JSON" in page and "Schema of the payload" in page
        assert_refused(post(browser, "/job-run", name=name, payload=bad), problem)
        assert len(payloads(db)) == number
        assert post(browser, "/job-run", name=name, payload=good).status_code == 303
        assert payloads(db)[number:] == [json.loads(good)]


def test_a_schema_that_is_invalid_or_elsewhere_is_neither_applied_nor_fetched(
    browser: TestClient, db: Db
) -> None:
    rows.job(db, "invalid", payload_schema=Jsonb({"type": "objekt", "properties": {"a": {}}}))
    form = text(browser.get("/job-run?name=invalid").text)
    assert "The schema of the payload is invalid: 'objekt'" in form
    assert post(browser, "/job-run", name="invalid", payload="{}").status_code == 303
    job(db, {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:1/schema"}}})
    refused = run(browser, a="1")
    assert_refused(refused, "the schema cannot be applied")
    assert "use `cronledger trigger`" in text(refused.text)


SECRETS: dict[str, Any] = {
    "type": "object", "required": ["db"], "$defs": {"Key": {"enum": ["quoted-1", "quoted-2"]}},
    "properties": {
        "password": {"type": "string", "default": "quoted-3", "examples": ["quoted-4"]},
        "token": {"const": "quoted-5"}, "api_key": {"$ref": "#/$defs/Key"},
        "db": {"type": "object", "default": {"password": "quoted-6"}, "minProperties": 2},
        "mode": {"enum": [{"secret": "quoted-7"}, {"secret": "quoted-8"}]},
    },
}  # fmt: skip


@pytest.mark.long
def test_a_schema_shows_no_values_of_hidden_properties(browser: TestClient, db: Db) -> None:
    job(db, SECRETS)
    for form in ("", "&as=json"):
        page = browser.get(f"/job-run?name=job{form}")
        assert page.status_code == 200 and "quoted" not in page.text
    assert run(browser, db="{}", api_key="quoted-1").status_code == 400
    assert run(browser, db='{"a": 1, "b": 2}', api_key="quoted-1").status_code == 303
    changed = json.loads(json.dumps(SECRETS).replace("quoted-", "quoted-x"))
    changed["properties"]["mode"] = {"type": "integer"}
    rows.job(db, "other", payload_schema=Jsonb(SECRETS))
    db.execute(
        "UPDATE cronledger.jobs SET payload_schema = %s WHERE name = 'other'", [Jsonb(changed)]
    )
    page = browser.get("/job/other")
    assert "quoted" not in page.text and '"integer"' in unescape(page.text)
    assert "minProperties" not in page.text


def test_a_nested_secret_is_neither_quoted_nor_repeated(browser: TestClient, db: Db) -> None:
    nested = '{"password": "hunter2"}'
    either = {"anyOf": [{"type": "string"}, {"type": "integer"}]}
    job(db)
    for schema in (SECRETS["properties"]["db"], either):
        given = Jsonb({"type": "object", "properties": {"db": schema}})
        db.execute("UPDATE cronledger.jobs SET payload_schema = %s", [given])
        expire(browser)
        refused = run(browser, db=nested)
        assert refused.status_code == 400 and "hunter2" not in refused.text
        assert "is refused by `" in text(refused.text) and "enter them again" in text(refused.text)
        refused = post(browser, "/job-run", name="job", payload=f'{{"db": {nested}}}')
        assert refused.status_code == 400 and "hunter2" not in refused.text
        assert '"password": null' in unescape(refused.text)
