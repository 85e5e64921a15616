"""An open page while its database, its server or its session is away. It recovers by itself."""

import os
import re
import socket
from contextlib import ExitStack, suppress

import pytest
from playwright.sync_api import expect
from starlette.requests import HTTPConnection

from cronledger.settings import Settings
from cronledger.web import create_app
from cronledger.web.access.identity import Identity, Role
from tests.db.support import rows
from tests.db.support.rows import Db
from tests.web.browser.conftest import Serve, Visit
from tests.web.support.browsing import TOKENS
from tests.web.support.command import Start
from tests.web.support.command import address as address_of
from tests.web.support.outages import away
from tests.web.support.serving import served

pytestmark = pytest.mark.browser

AS_OF = r"^as of \d\d:\d\d:\d\d UTC, the "


def test_an_open_page_shows_what_it_read_until_its_database_is_back(
    site: str, visit: Visit, db: Db, database_url: str
) -> None:
    rows.job(db, "report")
    rows.runner(db, "replica-1")
    page = visit(f"{site}/runners")
    expect(page.locator("#runners")).to_contain_text("replica-1")
    with away(database_url):
        expect(page.locator("#database")).to_contain_text("This page shows what it read")
        expect(page.locator("#lamp")).to_have_text(re.compile(AS_OF + "database is away"))
        expect(page.locator("#runners")).to_contain_text("replica-1")
    expect(page.locator("#database")).to_be_empty()
    expect(page.locator("#lamp")).to_have_text("live")


def port_below_the_range_of_the_kernel() -> int:
    """Return a free port that the kernel gives to nobody else while no server has it."""
    for port in range(21_000 + os.getpid() % 5_000, 32_000):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("no port is free")


def test_a_page_whose_server_restarts_says_so_and_recovers(
    start: Start, visit: Visit, complaints: list[str], db: Db
) -> None:
    rows.job(db, "report", queue="slow")
    listen = f"127.0.0.1:{port_below_the_range_of_the_kernel()}"
    first = start("--listen", listen)
    url = address_of(first)
    page = visit(f"{url}runners")
    expect(page.locator("#queues")).to_contain_text("slow")
    first.process.kill()
    first.process.wait()
    expect(page.locator("#lamp")).to_have_text(re.compile(AS_OF + "server is away"))
    db.execute("SELECT cronledger.pause_queue('slow', reason => 'incident')")
    address_of(start("--listen", listen))
    expect(page.locator("#queues")).to_contain_text("incident")
    expect(page.locator("#lamp")).to_have_text("live")
    assert all("net::ERR_" in complaint for complaint in complaints)
    complaints.clear()


def test_an_open_page_whose_session_ends_leads_to_the_sign_in(
    serve: Serve, visit: Visit, complaints: list[str]
) -> None:
    page = visit(serve(web_auth="token", web_tokens=TOKENS) + "/runners")
    page.get_by_label("Token").fill("alice-secret")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Runners and queues")
    page.context.clear_cookies()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    assert all("EventSource" in complaint for complaint in complaints)
    complaints.clear()


def test_an_open_page_whose_reader_loses_the_right_says_so(
    database_url: str, visit: Visit, stack: ExitStack, complaints: list[str]
) -> None:
    people = [Identity("zoe", Role.VIEWER)]

    def identify(_: HTTPConnection) -> Identity | None:
        return people[0] if people else None

    made = create_app(identify=identify, settings=Settings.load({}), url=database_url)
    page = visit(stack.enter_context(served(made)) + "/runners")
    expect(page.get_by_role("heading", level=1)).to_have_text("Runners and queues")
    people.clear()
    expect(page.locator("#lamp")).to_have_text(re.compile(AS_OF + "server is away"))
    page.goto("about:blank")  # the page would go on trying, and each time report the 403
    assert all("403" in complaint for complaint in complaints)
    complaints.clear()
