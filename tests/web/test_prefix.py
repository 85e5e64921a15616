"""The page below a prefix, inside another program."""

import re
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.testclient import TestClient

from cronledger.settings import Settings
from cronledger.web import create_app
from cronledger.web.access.identity import Identity, Role
from tests.db.support import rows
from tests.db.support.rows import Db
from tests.web.support.browsing import HOST, SAME_ORIGIN, TOKENS, app, text
from tests.web.support.logins import Logins


def mounted(page: Starlette) -> FastAPI:
    lifespan: Any = page.router.lifespan_context
    outer = FastAPI(lifespan=lambda _: lifespan(page))
    outer.mount("/ops/cron", page)
    return outer


@pytest.mark.long
def test_below_a_prefix_every_address_has_it(database_url: str, logins: Logins, db: Db) -> None:
    rows.job(db, schedule="0 * * * *")
    db.execute("UPDATE cronledger.schedules SET planned_through = cronledger.db_now()")
    execution = rows.execution(db, "RUNNING")["id"]
    urls = {"web_read_url": "viewer", "web_act_url": "operator"}
    settings = Settings.load({name: logins.url(database_url, role) for name, role in urls.items()})
    zoe = Identity("zoe", Role.OPERATOR)
    outer = mounted(create_app(identify=lambda _: zoe, settings=settings, url=database_url))
    with TestClient(outer, HOST, root_path="/outer", follow_redirects=False) as browser:
        for path in (
            "", "job/job", "job-run?name=job", "job-pause?name=job&until=1h",
            "job-backfill?name=job&from=6h", "why/job/03:00", "forecast", "jobs",
        ):  # fmt: skip
            shown = browser.get(f"/outer/ops/cron/{path}")
            assert shown.status_code == 200 and "zoe operator" in text(shown.text), path
            addresses = re.findall(r'(?:href|src|action)="([^"]*)"', shown.text)
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
