"""Fixtures of the tests in Chromium. A console error or a violation of the policy fails a test."""

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
    Locator,
    Page,
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


def press(target: Locator, by: str) -> None:
    """Use a link or a button, by mouse or by keyboard."""
    if by == "mouse":
        target.click()
    else:
        target.focus()
        target.press("Enter")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """Debian's Chromium. Playwright's own one is not used."""
    program = shutil.which("chromium")
    assert program is not None, "chromium is missing; `make test-web` installs it"
    expect.set_options(timeout=MILLISECONDS)
    sandbox = [] if os.geteuid() else ["--no-sandbox"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=[*FLAGS, *sandbox])
        yield browser
        browser.close()


@pytest.fixture
def complaints() -> list[str]:
    """What the console has reported. A test that expects something removes it."""
    return []


@pytest.fixture
def visit(chromium: Browser, complaints: list[str], stack: ExitStack) -> Iterator[Visit]:
    """Open an address in a context of its own, which ends before the servers of `stack`."""
    contexts: list[BrowserContext] = []

    def note(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            complaints.append(message.text)

    def opened(address: str, **options: Any) -> Page:
        context = chromium.new_context(viewport={"width": 1280, "height": 800}, **options)
        context.set_default_timeout(MILLISECONDS)
        contexts.append(context)
        page = context.new_page()
        page.on("console", note)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(address)
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
