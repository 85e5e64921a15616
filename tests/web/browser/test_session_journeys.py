"""Sessions in a real browser, which decides when it stores and sends a cookie."""

from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from starlette.applications import Starlette
from starlette.responses import HTMLResponse
from starlette.routing import Route

from tests.db.support import rows
from tests.db.support.rows import Db, value
from tests.web.browser.conftest import Serve, Visit
from tests.web.support.browsing import TOKENS, app
from tests.web.support.logins import Logins
from tests.web.support.serving import certificate_of, served

pytestmark = pytest.mark.browser


def sign_in(page: Page) -> None:
    page.get_by_label("Token").fill("alice-secret")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Runners and queues")


def other_site(page: str) -> Starlette:
    """A site with a link to the page, and with a form that would pause all queues."""
    body = (
        f'<a href="{page}/runners">Runners</a><form method="post" action="{page}/queues/pause-all">'
        '<input type="hidden" name="reason" value="attack"><button>Win</button></form>'
    )
    return Starlette(routes=[Route("/", lambda _: HTMLResponse(body))])


def test_a_link_from_another_site_opens_the_page_and_its_form_does_nothing(
    serve: Serve, visit: Visit, stack: ExitStack, db: Db, complaints: list[str]
) -> None:
    """Somebody who has signed in stays so."""
    rows.job(db, "report")
    address = serve(web_auth="token", web_tokens=TOKENS)
    page = visit(f"{address}/runners")
    sign_in(page)
    # For a browser, localhost and 127.0.0.1 are two sites.
    other = stack.enter_context(served(other_site(address))).replace("127.0.0.1", "localhost")
    page.goto(other)
    page.get_by_role("link", name="Runners").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Runners and queues")
    page.goto(other)
    page.get_by_role("button", name="Win").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Not permitted")
    assert value(db, "SELECT count(*) FROM cronledger.queues WHERE paused_at IS NOT NULL") == 0
    assert all("status of 40" in complaint for complaint in complaints), complaints
    complaints.clear()


def test_with_https_the_cookie_belongs_to_this_host_alone_until_the_sign_out(
    database_url: str, logins: Logins, visit: Visit, stack: ExitStack, tmp_path: Path
) -> None:
    made = app(database_url, logins, web_auth="token", web_tokens=TOKENS)
    address = stack.enter_context(served(made, certificate_of("127.0.0.1", tmp_path)))
    page = visit(f"{address}/runners", ignore_https_errors=True)
    sign_in(page)
    (cookie,) = page.context.cookies()
    assert cookie.get("name") == "__Host-cronledger_session"
    assert cookie.get("secure") is cookie.get("httpOnly") is True
    assert (cookie.get("sameSite"), cookie.get("path")) == ("Lax", "/")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    assert page.context.cookies() == []
    page.context.add_cookies([cookie])  # type: ignore[list-item] # as somebody who has copied it
    page.goto(f"{address}/runners")
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
