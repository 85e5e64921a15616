"""Addresses that people type, send and bookmark: `/job/NAME`, `/execution/ID`, `/why/JOB/TIME`."""

import re
from hashlib import sha256
from html import unescape
from typing import Any
from urllib.parse import quote

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.testclient import TestClient

from cronledger.settings import Settings
from cronledger.web import create_app
from cronledger.web.access.identity import Identity, Role
from tests.db.support import rows
from tests.db.support.rows import Db
from tests.web.support.browsing import HOST, SAME_ORIGIN, TOKENS, app, links, login_urls, text
from tests.web.support.logins import Logins

NAMES = ("a/b", "100%", "zürich ☂", "why?#", "back\\slash", "run")
"""Names of jobs that a path has to escape, or that look like a path of the page."""
NO_STEPS = ("..", "a//b", "/a", "a/", ".")
"""Names that browsers and proxies would shorten, if a path had them."""


def mounted(page: Starlette) -> FastAPI:
    lifespan: Any = page.router.lifespan_context
    outer = FastAPI(lifespan=lambda _: lifespan(page))
    outer.mount("/ops/cron", page)
    return outer


def job_links(page: str) -> list[str]:
    return [found for found in links(page, "jobs") if found.startswith(("/job/", "/job?"))]


def described(db: Db, names: tuple[str, ...]) -> dict[str, str]:
    """Add jobs of these names. Return the description of each."""
    found = {name: f"the job number {number}" for number, name in enumerate(names)}
    for name, description in found.items():
        rows.job(db, name, description=description)
    return found


def test_the_address_of_a_job_has_its_name(browser: TestClient, db: Db) -> None:
    jobs = described(db, NAMES)
    addresses = {name: f"/job/{quote(name, safe='/:')}" for name in NAMES}
    assert sorted(job_links(browser.get("/jobs").text)) == sorted(addresses.values())
    for name, address in addresses.items():
        shown = browser.get(address)
        assert shown.status_code == 200 and jobs[name] in shown.text
        typed = browser.get("/job", params={"name": name, "day": "2026-11-22"})
        assert (typed.status_code, typed.headers["location"]) == (308, f"{address}?day=2026-11-22")
        asked = browser.get("/why", params={"job": name, "time": "2026-11-22T03:00Z"})
        assert asked.status_code == 308
        why = asked.headers["location"]
        assert why == f"/why/{quote(name, safe='/:')}/2026-11-22T03:00Z"
        explained = text(browser.get(why).text)
        assert text(name).strip() in explained and "answer" in browser.get(why).text


def test_a_name_that_a_path_would_change_is_in_the_query(browser: TestClient, db: Db) -> None:
    jobs = described(db, NO_STEPS)
    addresses = {name: f"/job?name={quote(name, safe='')}" for name in NO_STEPS}
    assert sorted(job_links(browser.get("/jobs").text)) == sorted(addresses.values())
    for name, address in addresses.items():
        assert jobs[name] in browser.get(address).text


def test_a_scope_is_in_the_query_unless_it_is_the_only_one(browser: TestClient, db: Db) -> None:
    rows.job(db, "plain")
    rows.job(db, "shards", scope_kind="shard")
    db.execute("UPDATE cronledger.schedules SET scope_id = 'a' WHERE job_name = 'shards'")
    for name, kind, scope in (("plain", "global", "global"), ("shards", "shard", "a")):
        rows.execution(db, "RUNNING", name, scope_kind=kind, scope_id=scope)
    found = unescape(browser.get("/timeline").text)
    assert 'href="/job/plain"' in found
    assert 'href="/job/shards?scope_kind=shard&scope=a"' in found


def test_an_old_address_leads_to_the_new_one(database_url: str, logins: Logins, db: Db) -> None:
    rows.job(db)
    execution = rows.execution(db, "RUNNING")["id"]
    outer = mounted(app(database_url, logins))
    with TestClient(outer, HOST, client=("127.0.0.1", 1), follow_redirects=False) as browser:
        for old, new in (
            ("job?name=job&scope_kind=global&scope=global", "job/job"),
            (f"execution?id={execution}", f"execution/{execution}"),
            ("why?job=job&scope=a&time=03:00", "why/job/03:00?scope=a"),
        ):
            moved = browser.get(f"/ops/cron/{old}")
            assert (moved.status_code, moved.headers["location"]) == (308, f"/ops/cron/{new}")
        assert browser.get("/ops/cron/job/job").status_code == 200


@pytest.mark.long
def test_below_a_prefix_every_address_has_it(database_url: str, logins: Logins, db: Db) -> None:
    rows.job(db, schedule="0 * * * *")
    db.execute("UPDATE cronledger.schedules SET planned_through = cronledger.db_now()")
    execution = rows.execution(db, "RUNNING")["id"]
    settings = Settings.load(login_urls(database_url, logins))
    zoe = Identity("zoe", Role.OPERATOR)
    outer = mounted(create_app(identify=lambda _: zoe, settings=settings, url=database_url))
    with TestClient(outer, HOST, root_path="/outer", follow_redirects=False) as browser:
        for path in (
            "", "job/job", "job-run?name=job", "job-pause?name=job&until=1h",
            "job-backfill?name=job&from=6h", "why/job/03:00", "forecast", "jobs",
        ):  # fmt: skip
            shown = browser.get(f"/outer/ops/cron/{path}")
            assert shown.status_code == 200 and "zoe operator" in text(shown.text), path
            addresses = re.findall(r'(?:href|src|action|data-events)="([^"]*)"', shown.text)
            assert len(addresses) > 3
            assert [x for x in addresses if not x.startswith(("/outer/ops/cron/", "#"))] == [], path
        assert browser.get("/outer/ops/cron/static/page.css").status_code == 200
        assert browser.get("/outer/ops/cron/nowhere").status_code == 404
        done = browser.post(
            "/outer/ops/cron/execution/cancel", data={"id": str(execution)}, headers=SAME_ORIGIN
        )
        assert done.headers["location"] == f"/outer/ops/cron/execution/{execution}"
        assert "Path=/outer/ops/cron" in done.headers["set-cookie"]


def test_a_sign_in_below_a_prefix(database_url: str, logins: Logins) -> None:
    outer = mounted(app(database_url, logins, web_auth="token", web_tokens=TOKENS))
    with TestClient(outer, base_url=HOST, follow_redirects=False) as browser:
        asked = browser.get("/ops/cron/")
        assert asked.headers["location"] == "/ops/cron/sign-in?next=%2F"
        entered = browser.post(
            "/ops/cron/sign-in", data={"token": "alice-secret", "next": "/"}, headers=SAME_ORIGIN
        )
        assert entered.headers["location"] == "/ops/cron/"
        assert browser.get("/ops/cron/").status_code == 200


def test_a_report_below_a_prefix_needs_no_sign_in(
    database_url: str, logins: Logins, db: Db
) -> None:
    token = "t" * 43
    rows.job(db, handler="observed", target="{}")
    digest = sha256(token.encode()).hexdigest()
    db.execute("SELECT cronledger.create_report_token(%s, 'job')", [digest])
    outer = mounted(app(database_url, logins, web_auth="token", web_tokens=TOKENS))
    with TestClient(outer, base_url=HOST, follow_redirects=False) as below:
        assert below.post(f"/ops/cron/report/{token}/7").status_code == 200
        assert rows.value(db, "SELECT exit_status FROM cronledger.reports") == 7
        assert below.post(f"/report/{token}/7").status_code == 404
