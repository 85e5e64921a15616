"""Several ledgers on one page: the overview, the pages of each, and the sign-in of all."""

import re
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.testclient import TestClient

from cronledger.web import overview
from cronledger.web.access import sessions
from tests.db.support import rows
from tests.db.support.rows import Db
from tests.unreachable import CLOSED, silent
from tests.waiting import PATIENCE, until
from tests.web.support.browsing import (
    HOST,
    OPERATOR,
    SAME_ORIGIN,
    TOKENS,
    act,
    client,
    known_parts,
    links,
    page_of,
    panel,
    post,
    sign_in,
    text,
)
from tests.web.support.command import Start, address, starter
from tests.web.support.logins import Logins
from tests.web.support.outages import away
from tests.web.test_links import mounted

Open = Callable[..., TestClient]


@pytest.fixture
def mute() -> Iterator[str]:
    with silent() as url:
        yield url


@pytest.fixture
def opened(database_url: str, second: str, logins: Logins) -> Iterator[Open]:
    """Open a page with the ledgers `shop` and `billing`, and further ones."""
    with ExitStack() as stack:

        def page(
            peer: str = "127.0.0.1", further: dict[str, str] | None = None, **settings: Any
        ) -> TestClient:
            ledgers = {"shop": database_url, "billing": second, **(further or {})}
            return stack.enter_context(client(page_of(ledgers, logins, **settings), peer))

        yield page


@pytest.fixture(autouse=True)
def patient_overview(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine exceeds the limits for a ledger."""
    monkeypatch.setattr(overview, "PATIENCE", PATIENCE)
    monkeypatch.setattr(sessions, "PATIENCE", PATIENCE)


def failing(db: Db) -> int:
    """The job `report` of the first ledger fails. Return the id of its execution."""
    rows.runner(db)
    rows.job(db, "report", owner="data")
    rows.schedule(db, next_due_at=rows.now(db) + timedelta(hours=1))  # otherwise soon overdue
    error = {"error_code": "exit_code", "error_msg": "no space left"}
    return int(rows.execution(db, "FAILED", "report", **error)["id"])


def test_the_overview_has_what_needs_attention_in_each_ledger_F95(opened: Open, db: Db) -> None:
    execution = failing(db)
    browser = opened()
    shown = browser.get("/")
    assert shown.status_code == 200
    assert "2 of 2 respond" in text(shown.text)
    shop, billing = (panel(shown.text, f"ledger-{name}") for name in ("shop", "billing"))
    for words in ("1 failing", "0 overdue", "0 with alerts", "0 running", "0 paused"):
        assert words in shop
    assert "report" in shop and "exit_code: no space left" in shop and "data" in shop
    assert "1 running" in billing
    assert f"/l/shop/execution/{execution}" in links(shown.text, "ledger-shop")
    for link in links(shown.text, "ledger-shop") + links(shown.text, "ledger-billing"):
        assert link.startswith(("/l/shop/", "/l/billing/"))
        assert browser.get(link).status_code == 200, link

    def is_unchanged() -> bool:
        known = known_parts(browser.get("/").text)
        return browser.get("/", headers=known).status_code == 204

    until("an unchanged overview is not sent again", is_unchanged)


def test_each_ledger_has_its_pages_below_its_name_and_a_switcher(opened: Open, db: Db) -> None:
    failing(db)
    browser = opened()
    jobs = browser.get("/l/shop/jobs").text
    assert "report" in text(jobs) and "invoices" not in text(jobs)
    assert "invoices" in text(browser.get("/l/billing/jobs").text)
    switcher = re.findall(r'<details class="switcher">.*?</details>', jobs, re.DOTALL)[0]
    assert re.findall(r'href="([^"]*)"( aria-current="page")?', switcher) == [
        ("/", ""), ("/l/shop/jobs", ' aria-current="page"'), ("/l/billing/jobs", ""),
    ]  # fmt: skip
    # A page of one job leads to the first page of another ledger.
    assert 'href="/l/billing/"' in browser.get("/l/shop/job/report").text
    addresses = re.findall(r'(?:href|src|action|data-events)="([^"]*)"', jobs)
    others = ("/", "/l/billing/jobs")
    assert [x for x in addresses if not x.startswith(("/l/shop/", "#")) and x not in others] == []
    assert browser.get("/l/shop").headers["location"] == "/l/shop/"
    assert browser.get("/l/nowhere").status_code == 404
    assert browser.get("/l/nowhere/").status_code == 404
    assert browser.get("/jobs").status_code == 404
    assert 'aria-label="Search"' not in browser.get("/").text


def test_an_action_changes_the_ledger_of_its_page(opened: Open, db: Db) -> None:
    failing(db)
    browser = opened()
    done = act(browser, "/l/shop/job-pause", name="report", reason="incident")
    assert "incident" in done
    assert "1 paused" in panel(browser.get("/").text, "ledger-shop")
    assert "0 paused" in panel(browser.get("/").text, "ledger-billing")


@pytest.mark.long
def test_a_ledger_that_is_away_harms_no_other_F95(
    opened: Open, db: Db, second: str, mute: str
) -> None:
    failing(db)
    browser = opened(further={"closed": CLOSED, "mute": mute})

    def shown(name: str) -> str:
        html = browser.get("/").text
        assert "1 failing" in panel(html, "ledger-shop")
        return panel(html, f"ledger-{name}")

    assert "Away since this page asked first" in shown("closed")
    assert "Connection refused" in shown("closed")
    assert "timeout expired" in shown("mute")
    assert "s3cret" not in browser.get("/").text
    assert "1 running" in shown("billing") and "Away" not in shown("billing")
    with away(second):
        # The first error is that of the session that ended.
        refused = "not currently accepting connections"
        until("it is noticed", lambda: refused in shown("billing"))
        found = shown("billing")
        assert "Away since" in found and "UTC" in found
        assert "It shows what was read" in found and "1 running" in found
        assert "report" in text(browser.get("/l/shop/jobs").text)
    until("it has recovered", lambda: "Away" not in shown("billing"))


@pytest.mark.long
def test_the_overview_does_not_wait_for_a_ledger_F95(
    opened: Open, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(db)
    monkeypatch.setattr(overview, "PATIENCE", 1.0)
    with silent(round(PATIENCE)) as mute:
        browser = opened(further={"mute": mute})

        def shown() -> bool:
            html = browser.get("/").text
            waits = "This ledger has not responded yet" in panel(html, "ledger-mute")
            return waits and "1 failing" in panel(html, "ledger-shop")

        until("the others are shown", shown)


@pytest.mark.long
def test_one_sign_in_is_for_all_ledgers_F95(opened: Open, db: Db, second: str) -> None:
    failing(db)
    browser = opened("203.0.113.9", web_auth="token", web_tokens=TOKENS)
    asked = browser.get("/l/shop/jobs")
    assert asked.headers["location"] == "/l/shop/sign-in?next=%2Fjobs"
    assert "Ledgers" not in text(browser.get("/l/shop/sign-in").text)  # names only to people
    assert browser.get("/").headers["location"] == "/sign-in?next=%2F"
    assert browser.get("/l/shop/jobs", headers=OPERATOR).status_code == 200
    data = {"token": "alice-secret", "next": "/jobs"}
    entered = browser.post("/l/shop/sign-in", data=data, headers=SAME_ORIGIN)
    assert entered.headers["location"] == "/l/shop/jobs"
    assert "Path=/;" in entered.headers["set-cookie"]
    for path in ("/", "/l/shop/jobs", "/l/billing/jobs"):
        assert "alice operator" in text(browser.get(path).text)
    assert post(browser, "/l/billing/sign-out").status_code == 303
    for path in ("/", "/l/shop/jobs", "/l/billing/jobs"):
        assert browser.get(path).status_code == 303, path


@pytest.mark.long
def test_a_sign_in_while_a_ledger_is_away_F95(
    opened: Open, second: str, mute: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "FRESH_SECONDS", 0.0)
    further = {"closed": CLOSED, "mute": mute}
    browser = opened("203.0.113.9", further=further, web_auth="token", web_tokens=TOKENS)
    with away(second):
        sign_in(browser)
        assert "alice operator" in text(browser.get("/l/shop/jobs").text)
    assert "alice operator" in text(browser.get("/l/shop/jobs").text)
    # The session could still be in the ledgers that are away.
    assert post(browser, "/sign-out").status_code == 503
    assert browser.get("/l/shop/jobs").status_code == 303


@pytest.mark.long
def test_the_command_serves_all_ledgers_or_the_one_that_is_named_F95(
    start: Start, tmp_path: Path, database_url: str, second: str
) -> None:
    file = tmp_path / "ledgers.toml"
    file.write_text(f'[ledgers]\nshop = "{database_url}"\naway = "{CLOSED}"\n')
    run = start("--listen", "127.0.0.1:0", CRONLEDGER_LEDGERS_FILE=str(file))
    shown = httpx2.get(address(run), timeout=PATIENCE).text
    assert "1 of 2 respond" in text(shown)
    run.signal(signal.SIGTERM)
    assert run.end() == 0
    file.write_text(f'[ledgers]\nbilling = "{second}"\naway = {{ url_env = "UNSET" }}\n')
    one = tmp_path / "one"
    one.mkdir()
    with starter(one, CLOSED, "--ledger") as begin:
        run = begin("billing", "web", "--listen", "127.0.0.1:0", CRONLEDGER_LEDGERS_FILE=str(file))
        jobs = httpx2.get(f"{address(run)}jobs", timeout=PATIENCE).text
    assert "invoices" in jobs and "switcher" not in jobs


def test_below_a_prefix_all_addresses_have_it(
    database_url: str, second: str, logins: Logins, db: Db
) -> None:
    failing(db)
    page = mounted(page_of({"shop": database_url, "billing": second}, logins))
    with TestClient(page, HOST, client=("127.0.0.1", 5)) as browser:
        for path in ("", "l/shop/", "l/billing/jobs"):
            html = browser.get(f"/ops/cron/{path}").text
            addresses = re.findall(r'(?:href|src|action|data-events)="([^"]*)"', html)
            assert len(addresses) > 10
            assert [x for x in addresses if not x.startswith(("/ops/cron/", "#"))] == [], path
        assert browser.get("/ops/cron/l/shop", follow_redirects=False).headers["location"] == (
            "/ops/cron/l/shop/"
        )
