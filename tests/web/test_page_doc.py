"""docs/page.md: its snippets are run."""

import json
import os
import re
import subprocess
import tomllib
from datetime import timedelta
from hashlib import sha256

import psycopg
import pytest
from starlette.testclient import TestClient

from cronledger.settings import Settings
from cronledger.web import create_app
from cronledger.web.access.proxy import ProxyAccess
from tests.db.support import rows
from tests.db.support.rows import Db
from tests.docs.support.pages import ROOT, run_snippets, snippets
from tests.web.support.browsing import HOST, client, text
from tests.web.support.command import Start, address

PAGE = ROOT / "docs" / "page.md"


def snippet(language: str, containing: str) -> str:
    (found,) = snippets(PAGE.name, language, containing)
    return found


@pytest.mark.long
def test_the_program_of_the_documentation_serves_the_page_with_the_documented_panels(
    database_url: str, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A ledger without jobs shows how to begin. A schedule that nobody plans is soon overdue.
    rows.job(db, schedule=None)
    documented = run_snippets(PAGE.name, "create_app")
    monkeypatch.setenv("CRONLEDGER_DATABASE_URL", database_url)
    with TestClient(documented["web"], HOST) as browser:
        assert browser.get("/ops/cron/").status_code == 403
        page = browser.get("/ops/cron/", headers={"X-User": "zoe"}).text
    assert "zoe operator" in text(page)
    part = PAGE.read_text("utf-8").partition("\n## Now\n")[2].partition("\n## ")[0]
    named = re.findall(r"^\| (\w[\w ]+) \|", part, re.MULTILINE)[1:]
    shown = [text(title) for title in re.findall(r"(?s)<h2.*?</h2>", page.partition("</main>")[0])]
    assert named == shown


def test_the_logins_of_the_documentation_are_enough(database_url: str) -> None:
    with psycopg.connect(database_url) as c:  # rolled back: roles belong to the server
        c.execute(snippet("sql", "CREATE ROLE").encode())
        c.execute("SET LOCAL ROLE page_reader")
        c.execute("SELECT FROM cronledger.overdue")
        c.execute("RESET ROLE; SET LOCAL ROLE page_actor")
        c.execute("SELECT cronledger.pause_all()")
        c.rollback()


def test_the_token_of_the_documentation_is_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    script = snippet("sh", "openssl") + '\necho "$token $CRONLEDGER_WEB_TOKENS"\n'
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], capture_output=True, text=True, check=True
    )
    token, setting = ran.stdout.split()
    assert setting == f"alice:operator:{sha256(token.encode()).hexdigest()}"
    monkeypatch.setitem(os.environ, "CRONLEDGER_WEB_TOKENS", setting)
    assert Settings.load().web_tokens == (setting,)


@pytest.mark.long
def test_the_requests_of_a_program_in_the_documentation(start: Start, db: Db) -> None:
    rows.job(db)
    rows.execution(db, "FAILED")
    rows.execution(db, "SUCCESS", plan_time=rows.now(db) - timedelta(hours=1))
    tokens = f"alice:operator:{sha256(b'secret').hexdigest()}"
    run = start(
        "--listen", "127.0.0.1:0", CRONLEDGER_WEB_AUTH="token", CRONLEDGER_WEB_TOKENS=tokens
    )
    commands = snippet("sh", "ledger.json").replace("http://127.0.0.1:8642/", address(run))
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f"token=secret\n{commands}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert [row["outcome"] for row in json.loads(ran.stdout)["rows"]] == ["FAILED"]
    paused = "SELECT paused_by FROM cronledger.queues WHERE paused_reason = 'incident'"
    assert rows.value(db, paused) == "alice"


def test_the_proxy_of_the_documentation_is_valid() -> None:
    table = tomllib.loads(snippet("toml", "web_proxy_peers"))["cronledger"]
    page = create_app(settings=Settings.load(table), url="postgresql://h/d")
    with client(page):
        assert isinstance(page.state.site.access, ProxyAccess)
