"""`redact_revisions`: a value disappears from the earlier revisions of a job."""

import json
from typing import Any, LiteralString

import pytest
from psycopg import errors
from psycopg.types.json import Jsonb

from cronledger.engine.claiming.revisions import parse_job
from cronledger.rules.model import Job
from tests.db.support.rows import Db, value

SECRET = "hunter2"
URL = f"https://u:{SECRET}@example.org/hook/{SECRET}"


def edit(db: Db, name: str, handler: str, target: dict[str, Any], payload: Any = None) -> None:
    db.execute(
        "INSERT INTO cronledger.jobs (name, handler, target, payload) VALUES (%s, %s, %s, %s)"
        " ON CONFLICT (name) DO UPDATE SET target = excluded.target, payload = excluded.payload",
        [name, handler, Jsonb(target), Jsonb(payload)],
    )


def redact(db: Db, name: str, *path: str) -> int:
    number: int = value(
        db, "SELECT cronledger.redact_revisions(%s, %s, 'leaked', 'ann')", name, list(path)
    )
    return number


def definitions(db: Db, name: str) -> list[dict[str, Any]]:
    text: LiteralString = (
        "SELECT definition FROM cronledger.job_revisions WHERE job_name = %s ORDER BY revision"
    )
    return [row["definition"] for row in db.execute(text, [name]).fetchall()]


def test_a_variable_is_removed_from_every_earlier_revision_and_the_audit_trail_shows_it(
    db: Db,
) -> None:
    edit(db, "j", "command", {"command": ["a"], "env": {"P": SECRET, "Q": "q"}})
    edit(db, "j", "command", {"command": ["b"], "env": {"P": SECRET}})
    assert redact(db, "j", "target", "env", "P") == 0, "the present value stays"
    edit(db, "j", "command", {"command": ["b"], "env": {"P": {"env": "NAME"}}})
    edit(db, "j", "command", {"command": ["c"], "env": {"P": {"env": "OTHER"}}})
    assert redact(db, "j", "target", "env", "P") == 2
    assert [one["target"].get("env") for one in definitions(db, "j")] == [
        {"P": "***", "Q": "q"}, {"P": "***"}, {"P": {"env": "NAME"}}, {"P": {"env": "OTHER"}},
    ]  # fmt: skip
    assert redact(db, "j", "target", "env", "P") == 0
    row = db.execute(
        "SELECT * FROM cronledger.audit WHERE verb = 'redact_revisions' AND outcome = 'done'"
    ).fetchone()
    assert row is not None
    assert (row["object"], row["requested_by"], row["reason"]) == ("j", "ann", "leaked")
    assert row["arguments"] == {"path": ["target", "env", "P"], "revisions": 2}


PLACES: list[tuple[str, dict[str, Any], Any, list[str], Any]] = [
    ("http", {"url": URL}, None, ["target", "url"], "https://example.org/***"),
    ("http", {"url": "http://h", "headers": {"A": SECRET}}, None, ["target", "headers", "A"],
     "***"),
    ("http", {"url": "http://h", "body": {"k": [SECRET, 7]}}, None, ["target", "body"],
     {"k": ["***", "***"]}),
    ("command", {"command": ["a", SECRET]}, None, ["target", "command"], ["***", "***"]),
    ("command", {"command": f"a {URL}"}, None, ["target", "command"], "***"),
    ("sql", {"sql": f"SELECT '{SECRET}'"}, None, ["target", "sql"], "***"),
    ("command", {"command": "a"}, {"pin": 1234, "no": None}, ["payload"],
     {"pin": "***", "no": None}),
]  # fmt: skip


def test_a_redacted_revision_can_still_be_planned(db: Db) -> None:
    for n, (handler, target, payload, path, left) in enumerate(PLACES):
        name = f"j{n}"
        edit(db, name, handler, target, payload)
        db.execute("DELETE FROM cronledger.jobs")  # its history remains
        assert redact(db, name, *path) == 2
        for one in definitions(db, name):
            assert SECRET not in json.dumps(one)
            found = one
            for key in path:
                found = found[key]
            assert found == left
            parse_job({**dict.fromkeys(Job.model_fields), **one, **periods(db, one)})


def periods(db: Db, definition: dict[str, Any]) -> dict[str, Any]:
    """The row of the definition, whose durations are no text."""
    row = db.execute(
        "SELECT (jsonb_populate_record(NULL::cronledger.jobs, %s)).*", [Jsonb(definition)]
    ).fetchone()
    assert row is not None
    return {name: value for name, value in row.items() if name not in ("target", "payload")}


def test_other_fields_and_unknown_jobs_are_refused(db: Db) -> None:
    edit(db, "j", "command", {"command": "a"})
    paths: list[list[str] | None] = [
        [], ["target"], ["target", "env"], ["target", "python"], ["schedule"],
        ["target", "env", "A", "env"], None,
    ]  # fmt: skip
    for path in paths:
        with pytest.raises(errors.InvalidParameterValue, match=r"job j: path .* redacted"):
            db.execute("SELECT cronledger.redact_revisions('j', %s)", [path])
    with pytest.raises(errors.NoDataFound, match="job nope does not exist"):
        redact(db, "nope", "payload")
