"""A person in front of the page, without a browser: requests, and the text of what comes back."""

import re
from collections.abc import Mapping
from hashlib import sha256
from html import unescape
from pathlib import Path
from typing import Any

from httpx2 import Response
from starlette.applications import Starlette
from starlette.testclient import TestClient

from cronledger.settings import Settings
from cronledger.sources.ledgers import settings_of
from cronledger.web import create_app
from cronledger.web.several import several
from tests.waiting import PATIENCE
from tests.web.support.logins import Logins

HOST = "http://127.0.0.1"
SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}
TOKENS = [
    f"{name}:{role}:{sha256(f'{name}-secret'.encode()).hexdigest()}"
    for name, role in (("alice", "operator"), ("grafana", "viewer"))
]
OPERATOR, VIEWER = ({"Authorization": f"Bearer {name}-secret"} for name in ("alice", "grafana"))


def login_urls(database_url: str, logins: Logins) -> dict[str, str]:
    """The settings of a page that uses the two logins on this database."""
    return {
        "web_read_url": logins.url(database_url, "viewer"),
        "web_act_url": logins.url(database_url, "operator"),
    }


def app(database_url: str, logins: Logins, **settings: Any) -> Starlette:
    """The page on this database. A busy server exceeds the timeout of the page."""
    given = {**login_urls(database_url, logins), "connect_timeout": f"{PATIENCE:.0f}s", **settings}
    return create_app(settings=Settings.load(given), url=database_url)


def page_of(ledgers: Mapping[str, str], logins: Logins, **settings: Any) -> Starlette:
    """The page over these databases by name."""
    process = Settings.load({"connect_timeout": f"{PATIENCE:.0f}s", **settings})
    found = {}
    for name, url in ledgers.items():
        given = {"url": url, **login_urls(url, logins)}
        found[name] = settings_of(Path("ledgers.toml"), name, given, process)
    return several(process, found)


def client(page: Starlette, peer: str = "127.0.0.1", **parameters: Any) -> TestClient:
    return TestClient(
        page, base_url=HOST, client=(peer, 50_000), follow_redirects=False, **parameters
    )


def post(browser: TestClient, path: str, /, **data: Any) -> Response:
    return browser.post(path, data=data, headers=SAME_ORIGIN)


def sign_in(browser: TestClient, **headers: str) -> str:
    """Sign in as alice, who is an operator, and return the cookie with its attributes."""
    data, given = {"token": "alice-secret"}, SAME_ORIGIN | headers
    entered = browser.post("/sign-in", data=data, headers=given)
    assert entered.status_code == 303
    cookie: str = entered.headers["set-cookie"]
    return cookie


def act(browser: TestClient, path: str, /, **data: Any) -> str:
    """Send a form, and return the text of the page afterwards."""
    done = post(browser, path, **data)
    if done.status_code != 303:
        return text(done.text)
    return text(browser.get(done.headers["location"]).text)


def assert_refused(response: Response, message: str, status: int = 400) -> None:
    """The page refuses a request, and says why."""
    assert response.status_code == status, response.text
    assert message in text(response.text)


def next_page(html: str, words: str = "") -> str:
    """Return the address of the following rows, whose link begins with these words, or ""."""
    found = re.search(rf'rel="next" href="([^"]*)">{words}', html)
    return unescape(found[1]) if found else ""


def expire(browser: TestClient) -> None:
    """Let the page read the ledger again with the next request."""
    browser.app.state.site.reader.expire()  # type: ignore[attr-defined]


def known_parts(html: str) -> dict[str, str]:
    """The header with which an open page asks for the parts that have changed."""
    opened = re.findall(r'id="([^"]+)" data-part="([^"]+)"', html)
    return {"Known-Parts": " ".join(f"{name}={digest}" for name, digest in opened)}


def text(html: str) -> str:
    """What a person reads: no tags, and one blank between words."""
    body = re.sub(r"(?s)<(title|style|script|svg)\b.*?</\1>", " ", html)
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", body)).split())


def panel(html: str, name: str) -> str:
    return text(_section(html, name))


def links(html: str, name: str) -> list[str]:
    return [unescape(found) for found in re.findall(r'href="([^"]*)"', _section(html, name))]


def _section(html: str, name: str) -> str:
    found = re.search(rf'(?s)<section[^>]*id="{name}".*?</section>', html)
    assert found is not None, f"there is no panel {name}"
    return found[0]
