"""Fixtures of the tests in browsers. A console error or a violation of the policy fails a test.

All of them run in Chromium, and the journeys (`JOURNEYS`) also in Firefox. Both are Debian's.
Playwright drives this Firefox by WebDriver BiDi, so that the tests are the same ones.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Error,
    Locator,
    Page,
    Playwright,
    expect,
    sync_playwright,
)
from starlette.applications import Starlette

from tests.waiting import until
from tests.web.support.browsing import app
from tests.web.support.logins import Logins
from tests.web.support.serving import served

Visit = Callable[..., Page]
Serve = Callable[..., str]
FLAGS = (
    "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
MILLISECONDS = 60_000
SCRIPT = "text/javascript"
FIREFOX = "firefox-esr"
HAS_FIREFOX = pytest.mark.skipif(
    shutil.which(FIREFOX) is None, reason="firefox-esr is missing; `make test-web` installs it"
)
JOURNEYS = {
    "test_addresses_and_times", "test_instrument", "test_journeys", "test_refresh_in_place",
}  # fmt: skip
PAINTED = "performance.getEntriesByName('first-contentful-paint').length > 0"


def strike(page: Page, key: str) -> None:
    """Press a key once the page has been painted, because Chromium drops earlier ones."""
    _wait_until_painted(page)
    page.keyboard.press(key)


def enter_text(page: Page, text: str) -> None:
    """Type a text into the focused field, once the page has been painted (see `strike`)."""
    _wait_until_painted(page)
    page.keyboard.type(text)


def _wait_until_painted(page: Page) -> None:
    """Ask from outside of the page, whose policy forbids the polling of `wait_for_function`."""
    until("the page is painted", lambda: bool(page.evaluate(PAINTED)))


def open_address(page: Page, address: str) -> None:
    """Open an address and wait until it is loaded.

    Over WebDriver BiDi, Playwright can take the navigation for a second one to the same address
    that interrupts it. Then this waits for that one.
    """
    try:
        page.goto(address)
    except Error as error:
        if f'interrupted by another navigation to "{address}"' not in error.message:
            raise
        page.wait_for_url(address)


def press(target: Locator, by: str) -> None:
    """Use a link or a button, by mouse or by keyboard."""
    if by == "mouse":
        target.click()
    else:
        target.focus()
        target.press("Enter")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the journeys in Firefox as well."""
    if "engine" not in metafunc.fixturenames:
        return
    engines: list[Any] = ["chromium"]
    if metafunc.module.__name__.rpartition(".")[2] in JOURNEYS:
        engines.append(pytest.param(FIREFOX, marks=HAS_FIREFOX))
    metafunc.parametrize("engine", engines, scope="session")


@pytest.fixture(scope="session")
def playwright() -> Iterator[Playwright]:
    expect.set_options(timeout=MILLISECONDS)
    with sync_playwright() as made:
        yield made


@pytest.fixture(scope="session")
def engine() -> str:
    return "chromium"


@pytest.fixture(scope="session")
def browser_of(playwright: Playwright, engine: str) -> Iterator[Browser]:
    browser = _firefox(playwright) if engine == FIREFOX else _chromium(playwright)
    yield browser
    browser.close()


def _chromium(playwright: Playwright) -> Browser:
    program = shutil.which("chromium")
    assert program is not None, "chromium is missing; `make test-web` installs it"
    sandbox = [] if os.geteuid() else ["--no-sandbox"]
    return playwright.chromium.launch(executable_path=program, args=[*FLAGS, *sandbox])


def _firefox(playwright: Playwright) -> Browser:
    return playwright.firefox.launch(channel="moz-firefox", executable_path=shutil.which(FIREFOX))


@pytest.fixture
def complaints() -> list[str]:
    """What the console has reported. A test that expects something removes it."""
    return []


@pytest.fixture
def visit(browser_of: Browser, complaints: list[str], stack: ExitStack) -> Iterator[Visit]:
    """Open an address in a context of its own, which ends before the servers of `stack`."""
    contexts: list[BrowserContext] = []

    def note(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            complaints.append(message.text)

    def opened(address: str, **options: Any) -> Page:
        context = browser_of.new_context(viewport={"width": 1280, "height": 800}, **options)
        if not options.get("java_script_enabled", True):
            context.route("**/*.js", lambda route: route.fulfill(content_type=SCRIPT))
        context.set_default_timeout(MILLISECONDS)
        contexts.append(context)
        page = context.new_page()
        page.on("console", note)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        open_address(page, address)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


@pytest.fixture
def serve(database_url: str, logins: Logins, stack: ExitStack) -> Serve:
    """Serve the page with these settings, below a path if `mount` has a parent for it."""

    def served_page(mount: Callable[[Starlette], Any] = lambda page: page, **settings: Any) -> str:
        return stack.enter_context(served(mount(app(database_url, logins, **settings))))

    return served_page


@pytest.fixture
def site(serve: Serve) -> str:
    """The address of the page, without a sign-in."""
    return serve()
