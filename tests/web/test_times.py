"""The zone in which a browser shows times and forms take them: a cookie, which the page checks."""

import re
from datetime import datetime, timedelta
from urllib.parse import quote
from zoneinfo import ZoneInfo

from starlette.testclient import TestClient

from cronledger.rules.instants import iso
from tests.db.support import rows
from tests.db.support.rows import Db, value
from tests.web.support.browsing import act, assert_refused, panel

HOUR = timedelta(hours=1)
FORMS = {
    "/ledger": ("since", "until"), "/timeline": ("since", "until"), "/pauses": ("from", "until"),
    "/job-pause?name=report": ("until",), "/job-skip?name=report": ("from", "through"),
    "/job-backfill?name=report": ("from", "to"), "/job-adopt?name=report": ("at",),
}  # fmt: skip


def test_a_zone_is_remembered_and_forgotten(browser: TestClient, db: Db) -> None:
    rows.job(db, timezone="Asia/Kolkata")
    address = f"/execution/{rows.execution(db)['id']}"
    for zone, shown in (("UTC", "UTC"), ("Asia/Tokyo", "JST"), ("", "IST")):
        chosen = browser.get("/times", params={"zone": zone, "next": address})
        assert (chosen.status_code, chosen.headers["location"]) == (303, address)
        assert f" {shown}" in panel(browser.get(address).text, "execution")


def test_an_unknown_zone_is_refused_and_no_other_site_is_reached(browser: TestClient) -> None:
    assert_refused(browser.get("/times?zone=Mars/Olympus"), "unknown time zone")
    away = browser.get("/times", params={"zone": "UTC", "next": "//evil.example"})
    assert away.headers["location"] == "/"
    browser.cookies.set("cronledger_times", "Mars/Olympus")
    assert browser.get("/").status_code == 200


def fields(shown: str, name: str) -> list[str]:
    """Return the values of the two fields of an instant: chosen, and typed."""
    forms = re.findall(r"<form[^>]*>.*?</form>", shown, re.DOTALL)
    form = next(one for one in forms if f'name="{name}"' in one)
    return re.findall(
        rf'<input(?: type="datetime-local" step="1")? name="{name}" value="(.*?)"', form
    )


def test_an_instant_can_be_chosen_in_the_zone_of_the_page_or_typed_F126(
    browser: TestClient, at: datetime
) -> None:
    browser.cookies.set("cronledger_times", "Europe/Berlin")
    for path, names in FORMS.items():
        shown = browser.get(path).text
        for name in names:
            assert fields(shown, name) == ["", ""], path
            of_zone = rf'name="{name}" value="" aria-label="[^"]*, Europe/Berlin"'
            assert re.search(of_zone, shown), path
        assert 'name="zone" value="Europe/Berlin"' in shown, path


def test_a_chosen_time_is_one_of_the_zone_that_the_form_names_F126(
    browser: TestClient, db: Db, at: datetime
) -> None:
    end = (at + timedelta(days=1)).astimezone(ZoneInfo("Europe/Berlin")).replace(hour=12)
    local = f"{end:%Y-%m-%dT%H:%M:%S}"
    act(browser, "/job-pause", name="report", until=["", local], zone="Europe/Berlin")
    assert value(db, "SELECT paused_until FROM cronledger.jobs WHERE name = 'report'") == end
    window = {"since": [local, ""], "until": ["", f"{end + HOUR:%Y-%m-%dT%H:%M}"]}
    shown = browser.get("/ledger", params=window | {"zone": "Europe/Berlin"}).text
    assert f"since={quote(iso(end))}" in shown  # what the page leads to has no zone


def test_an_instant_that_is_not_certain_is_refused_F126(browser: TestClient) -> None:
    for query, problem in (
        ("since=2h&since=2026-07-01T03:00", "since: '2h' and '2026-07-01T03:00' are given"),
        ("since=2026-03-29T02:30&zone=Europe/Berlin", "skip or repeat 2026-03-29T02:30"),
    ):
        assert_refused(browser.get(f"/ledger?{query}"), problem)
