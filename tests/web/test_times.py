"""The zone in which a browser shows times: a cookie, which the page checks."""

from starlette.testclient import TestClient

from tests.db.support import rows
from tests.db.support.rows import Db
from tests.web.support.browsing import assert_refused, panel


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
