"""The page Execution: one execution, its attempts, what changed, and what may be done."""

import asyncio
import json
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.errors import InsufficientPrivilege
from psycopg.types.json import Jsonb
from starlette.testclient import TestClient

from cronledger.ledger.following import Following
from cronledger.settings import Settings
from cronledger.web import following
from cronledger.web.application import make_site
from cronledger.web.reading import Fetch, Reader, Reading
from tests.db.support import rows
from tests.db.support.rows import Db, value
from tests.waiting import PATIENCE
from tests.web.support.browsing import OPERATOR, VIEWER, act, app, client, panel, text
from tests.web.support.logins import Logins

PARTS = {
    "result": "SELECT FROM cronledger.execution_status WHERE result ->> 'rows' = '7'",
    "output": "SELECT FROM cronledger.execution_status WHERE output = 'said so'",
    "payload": "SELECT FROM cronledger.execution_payloads WHERE payload ->> 'user' = 'ada'",
    "target": "SELECT FROM cronledger.job_targets WHERE target ->> 'url' LIKE '%deploy%'",
}
"""What a role may read of an execution and of its job."""
SECRETS = {"user": "ada", "Password": "hunter2", "deep": [{"token": ["hunter2"]}]}


def page(browser: TestClient, execution: int) -> str:
    found = browser.get(f"/execution/{execution}")
    assert found.status_code == 200, text(found.text)
    return found.text


@pytest.mark.long
def test_an_execution_has_its_course(browser: TestClient, db: Db) -> None:
    rows.job(db)
    at = rows.now(db) - timedelta(minutes=9)
    crash = {
        "attempt": 1, "runner_id": "r0", "started_at": at.isoformat(),
        "lease_token": "secret-token", "last_seen": (at + timedelta(seconds=30)).isoformat(),
        "error_code": "runner_crashed",
    }  # fmt: skip
    execution = rows.execution(
        db, "FAILED", attempt=2, plan_time=at, attempts=Jsonb([crash]),
        started_at=at + timedelta(minutes=1), finished_at=at + timedelta(minutes=3),
    )["id"]  # fmt: skip
    shown = page(browser, execution)
    assert "FAILED: boom" in panel(shown, "execution") and "it broke" in panel(shown, "execution")
    attempts = panel(shown, "attempts")
    assert "1 won r0" in attempts and "runner_crashed" in attempts
    assert "2 stolen r1" in attempts
    assert shown.count("<rect") == 2 and "secret-token" not in shown
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    traced = rows.execution(db, trace_id=trace)["id"]
    assert f"Trace {trace}" in panel(page(browser, traced), "execution")
    given = rows.execution(db, window_start=at - timedelta(hours=1))["id"]
    assert "Window " in panel(page(browser, given), "execution")
    for attempt, claimed in ((0, "not yet"), (1, "released")):
        waits = rows.execution(db, "PENDING", scope_id=str(attempt), attempt=attempt)["id"]
        assert f"Claimed {claimed} Ended not yet" in panel(page(browser, waits), "execution")


def test_what_changed_since_the_last_success_is_named(browser: TestClient, db: Db) -> None:
    rows.job(db, grace="1 min")
    rows.runner(db, "r1", version="1.0")
    rows.runner(db, "r2", version="2.0")
    at = rows.now(db)
    good = rows.execution(db, "SUCCESS", plan_time=at - timedelta(hours=2))["id"]
    db.execute("UPDATE cronledger.jobs SET grace = '2 min'")
    bad = rows.execution(
        db, "FAILED", plan_time=at - timedelta(hours=1), revision=2, runner_id="r2"
    )["id"]
    changes = panel(page(browser, bad), "changes")
    assert f"execution {good}" in changes and "which took 2.0s" in changes
    assert "revision 1 2" in changes and "runner r1 r2" in changes
    assert "version of the runner 1.0 2.0" in changes
    assert "grace 00:01:00 00:02:00" in changes
    neighbours = panel(page(browser, good), "neighbours")
    assert neighbours.index("FAILED") < neighbours.index("SUCCESS")


def test_an_execution_names_what_it_waits_for_and_can_be_cancelled(
    browser: TestClient, db: Db
) -> None:
    rows.job(db)
    at = rows.now(db).replace(minute=0, second=0, microsecond=0)
    row = rows.execution(
        db, "PENDING", plan_time=at, due_at=at, gated_at=at, next_attempt_at=None,
        waits_until=at + timedelta(hours=2),
    )  # fmt: skip
    rows.insert(
        db, "gates", job_name="job", scope_kind="global", scope_id="global", plan_time=at,
        upstream_job="extract", upstream_kind="global", upstream_id="global",
        missing="extract <03:00>",
    )  # fmt: skip
    shown = page(browser, row["id"])
    assert "Waits for extract <03:00>" in panel(shown, "execution")
    assert "Waits until" in panel(shown, "execution")
    assert "Cancel" in text(shown)


@pytest.mark.long
def test_a_person_sees_the_same_on_the_page_and_in_the_database(
    by_token: TestClient, database_url: str, logins: Logins, db: Db
) -> None:
    target = {"url": "https://a:hunter2@deploy.example/x", "headers": {"X-Key": "hunter2"}}
    rows.job(db, handler="http", target=Jsonb(target))
    execution = rows.execution(
        db, payload=Jsonb(SECRETS), result=Jsonb({"rows": 7, "secret": "hunter2"}), output="said so"
    )["id"]
    for headers, group in ((OPERATOR, "operator"), (VIEWER, "viewer")):
        shown = by_token.get(f"/execution/{execution}", headers=headers).text
        job = by_token.get("/job/job", headers=headers).text
        on_page = {
            "result": "&#34;rows&#34;: 7" in shown, "output": "said so" in shown,
            "payload": "&#34;ada&#34;" in shown, "target": "deploy" in text(job),
        }  # fmt: skip
        assert "hunter2" not in shown + job
        in_database = {}
        with psycopg.connect(logins.url(database_url, group), autocommit=True) as c:
            for name, statement in PARTS.items():
                try:
                    in_database[name] = c.execute(statement.encode()).fetchone() is not None
                except InsufficientPrivilege:
                    in_database[name] = False
        assert on_page == in_database
        hidden = {name for name, sees in on_page.items() if not sees}
        assert hidden == ({"payload", "target"} if group == "viewer" else set())


def test_the_settings_name_what_is_hidden(database_url: str, logins: Logins, db: Db) -> None:
    rows.job(db)
    payload = {"Iban": "DE00", "accounts": [{"iban": "DE11"}], "token": "visible"}
    execution = rows.execution(db, payload=Jsonb(payload))["id"]
    with client(app(database_url, logins, web_redact=["IBAN"])) as browser:
        shown = page(browser, execution)
    assert "DE00" not in shown and "DE11" not in shown and "visible" in shown


def test_an_execution_that_does_not_exist_is_refused(browser: TestClient) -> None:
    for id, status in {"42": 404, "x": 400, "": 400, "9" * 19: 400}.items():
        assert browser.get(f"/execution/{id}").status_code == status


@pytest.mark.long
def test_an_execution_is_retried_and_cancelled(browser: TestClient, db: Db) -> None:
    rows.job(db)
    execution = str(rows.execution(db, "FAILED")["id"])
    assert f"Execution {execution} has one more attempt" in act(
        browser, "/execution/retry", id=execution
    )
    assert value(db, "SELECT next_attempt_at IS NOT NULL FROM cronledger.executions")
    assert f"Execution {execution} was waiting" in act(browser, "/execution/cancel", id=execution)
    assert value(db, "SELECT status FROM cronledger.executions") == "CANCELLED"
    # An unknown end needs a confirmation.
    execution = str(rows.execution(db, "FAILED", error_code="stale_timeout")["id"])
    assert "It has ended, and may run again" in text(page(browser, int(execution)))
    refused = act(browser, "/execution/retry", id=execution)
    assert "the end of attempt 1 is unknown (stale_timeout)" in refused
    assert "has one more attempt" in act(browser, "/execution/retry", id=execution, force="yes")


async def test_f84_a_stream_continues_where_the_page_is(
    database_url: str, logins: Logins, db: Db
) -> None:
    rows.job(db)
    execution = rows.execution(db, "RUNNING", attempt=1)["id"]
    chunk = "INSERT INTO cronledger.output_chunks VALUES (%s, 1, %s, cronledger.db_now(), %s)"
    db.execute(chunk, [execution, 1, "begun <b>\n"])
    settings = Settings.load({"web_act_url": logins.url(database_url, "operator")})
    site = make_site(settings, database_url)
    listening = psycopg.connect(database_url, autocommit=True)
    listening.execute("LISTEN cronledger")
    stream = site.followers.stream(site, Following(execution, attempt=1, number=0))
    try:
        assert (await anext(stream)).startswith("retry: ")
        assert "begun &lt;b&gt;" in await anext(stream)
        db.execute(chunk, [execution, 2, "\x1b[31mred\n"])
        event = await anext(stream)
        assert event.startswith("id: 1.2\nevent: output\n") and "fg-red" in event
        (note,) = listening.notifies(timeout=PATIENCE, stop_after=1)
        assert note.payload == f"follow {execution}"
        site.refresh.stop()
        assert [one async for one in stream] == []
    finally:
        await stream.aclose()
        await site.close()
        listening.close()


async def test_f84_followers_at_one_position_share_each_read(
    database_url: str, logins: Logins, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows.job(db)
    execution = rows.execution(db, "RUNNING", attempt=1)["id"]
    chunk = "INSERT INTO cronledger.output_chunks VALUES (%s, 1, %s, cronledger.db_now(), %s)"
    for number in (1, 2):
        db.execute(chunk, [execution, number, f"line {number}\n"])
    monkeypatch.setattr(following, "POLL_SECONDS", 7200)  # no second read while the test runs
    sent: list[str] = []

    def counted(self: Reader, statement: str, params: Mapping[str, object]) -> Fetch:
        fetch = statement_of(self, statement, params)

        async def fetch_counted(connection: psycopg.AsyncConnection[Any]) -> Reading:
            sent.append(statement)
            return await fetch(connection)

        return fetch_counted

    statement_of = Reader._statement
    monkeypatch.setattr(Reader, "_statement", counted)
    settings = Settings.load({"web_act_url": logins.url(database_url, "operator")})
    site = make_site(settings, database_url)
    numbers = [0] * 60 + [1] * 40
    streams = [
        site.followers.stream(site, Following(execution, attempt=1, number=number))
        for number in numbers
    ]
    try:
        assert len(streams) == following.MOST_FOLLOWERS
        await asyncio.gather(*map(anext, streams))
        events = await asyncio.gather(*map(anext, streams))
    finally:
        for stream in streams:
            await stream.aclose()
        await site.close()
    for number, event in zip(numbers, events, strict=True):
        assert "line 2" in event and ("line 1" in event) is (number == 0)
    assert sorted(sent) == ["call_announce_follow", "follow_output", "follow_output"]


def test_f84_the_stream_has_the_output_and_its_end(browser: TestClient, db: Db) -> None:
    rows.job(db)
    execution = rows.execution(
        db, "FAILED", attempt=1, output="".join(f"line {n}\n" for n in range(30)) + "\x1b[31mred<\n"
    )["id"]
    found = browser.get(f"/execution/output?id={execution}&attempt=1&number=7")
    assert found.headers["content-type"].startswith("text/event-stream")
    events = dict(re.findall(r"event: (\w+)\ndata: (.*)", found.text))
    assert json.loads(events["whole"]).endswith('line 29\n<span class="fg-red">red&lt;\n</span>')
    assert list(events) == ["whole", "end"]
    shown = page(browser, execution)
    last = panel(shown, "execution")
    assert "line 11 line 12" in last and "line 10" not in last and "red<" in last
    assert "line 0 line 1" in panel(shown, "output")
    file = browser.get(f"/execution/output.txt?id={execution}")
    assert file.text.endswith("line 29\n\x1b[31mred<\n")
    assert "attachment" in file.headers["content-disposition"]
    assert browser.get("/execution/output.txt?id=999").status_code == 404
    assert browser.get("/execution/output?id=x").status_code == 400
