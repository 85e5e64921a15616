"""The page below a prefix, inside another program."""

import re
from typing import Any

from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.testclient import TestClient

from cronledger.settings import Settings
from cronledger.web import create_app
from cronledger.web.access.identity import Identity, Role
from tests.db.support import rows
from tests.db.support.rows import Db
from tests.web.support.browsing import HOST, SAME_ORIGIN, app, text
from tests.web.support.logins import Logins
from tests.web.test_access import TOKENS


def mounted(page: Starlette) -> FastAPI:
    lifespan: Any = page.router.lifespan_context
    outer = FastAPI(lifespan=lambda _: lifespan(page))
    outer.mount("/ops/cron", page)
    return outer


def test_below_a_prefix_every_address_has_it(database_url: str, logins: Logins, db: Db) -> None:
    rows.job(db)
    execution = rows.execution(db, "RUNNING")["id"]
    settings = Settings.load(
        {
            "web_read_url": logins.url(database_url, "viewer"),
            "web_act_url": logins.url(database_url, "operator"),
        }
    )
    outer = mounted(
        create_app(
            identify=lambda _: Identity("zoe", Role.OPERATOR), settings=settings, url=database_url
        )
    )
    with TestClient(outer, HOST, root_path="/outer", follow_redirects=False) as browser:
        shown = browser.get("/outer/ops/cron/")
        assert shown.status_code == 200 and "zoe operator" in text(shown.text)
        addresses = re.findall(r'(?:href|src|action)="([^"]*)"', shown.text)
        assert len(addresses) > 3
        assert [x for x in addresses if not x.startswith(("/outer/ops/cron/", "#"))] == []
        assert browser.get("/outer/ops/cron/static/page.css").status_code == 200
        assert browser.get("/outer/ops/cron/nowhere").status_code == 404
        done = browser.post(
            "/outer/ops/cron/execution/cancel", data={"id": str(execution)}, headers=SAME_ORIGIN
        )
        assert done.headers["location"] == f"/outer/ops/cron/execution?id={execution}"
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
