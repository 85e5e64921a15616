"""The pictures of the README and of the documentation, which `make pictures` renews."""

import os
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.db.support.rows import Db
from tests.docs.support.pages import ROOT
from tests.web.browser.conftest import Visit
from tests.web.browser.test_looks import TOO_WIDE
from tests.web.support.picture_ledger import DAY, open_picture_ledger

pytestmark = pytest.mark.browser

WRITE = "CRONLEDGER_TEST_PICTURES"
PICTURES = ROOT / "docs" / "pictures"
ADDRESSES = {"jobs": "/jobs", "accounted-day": f"/job/{DAY}", "forecast": "/forecast?days=1"}
HEIGHTS = {"jobs": 750, "accounted-day": 446, "forecast": 516}
NAMES = """() => {
    document.querySelector('.brand span').textContent = 'shop';
    document.querySelector('.who-name').textContent = 'alice';
}"""


def test_the_pictures_of_the_documentation_can_be_renewed(
    site: str, visit: Visit, db: Db, database_url: str
) -> None:
    open_picture_ledger(db, database_url)
    page = visit(site, color_scheme="light", java_script_enabled=True)
    for name, address in ADDRESSES.items():
        page.set_viewport_size({"width": 1280, "height": HEIGHTS[name]})
        page.goto(f"{site}{address}")
        expect(page.locator("main svg").first).to_be_visible()
        if name == "accounted-day":
            expect(page.locator("#day .sum")).to_contain_text("3 overlap, 2 missed")
        assert page.evaluate(TOO_WIDE) == [], name
        page.evaluate(NAMES)
        picture = page.screenshot()
        if os.environ.get(WRITE):
            PICTURES.mkdir(exist_ok=True)
            (PICTURES / f"{name}.png").write_bytes(picture)


def test_the_pictures_of_the_documentation_are_small_and_shown() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    shown = "\n".join(page.read_text("utf-8") for page in pages)
    assert {picture.stem for picture in PICTURES.glob("*.png")} == set(ADDRESSES)
    for name in ADDRESSES:
        path = Path(PICTURES / f"{name}.png")
        assert path.stat().st_size < 150_000, name
        assert f"pictures/{name}.png)" in shown, name
