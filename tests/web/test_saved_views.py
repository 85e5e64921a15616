"""Views of the page Ledger that people save under a name: their own, in each ledger, F123."""

import re
from html import unescape

import pytest
from psycopg import errors
from starlette.testclient import TestClient

from tests.db.support.rows import Db, connected, value
from tests.web.support.browsing import (
    OPERATOR,
    VIEWER,
    act,
    assert_refused,
    post,
    text,
)
from tests.web.support.logins import Logins

SAVE, DELETE = "/ledger/views/save", "/ledger/views/delete"
FILTERS = "job=report&outcome=FAILED&outcome=SKIPPED&since=6h"


def saved(html: str) -> dict[str, str]:
    found = re.findall(r'<a class="view-link" href="([^"]*)"[^>]*>([^<]*)</a>', html)
    return {unescape(name): unescape(address) for address, name in found}


def test_the_present_filters_are_saved_under_a_name_and_deleted_F123(browser: TestClient) -> None:
    shown = act(browser, f"{SAVE}?{FILTERS}", name=" Failed imports ")
    assert "The view Failed imports is saved." in shown
    html = browser.get("/ledger").text
    assert saved(html) == {"Failed imports": f"/ledger?{FILTERS}"}
    assert 'aria-current="page">Failed imports' not in html
    opened = browser.get(saved(html)["Failed imports"]).text
    assert 'name="since" value="6h"' in opened and 'value="SKIPPED" checked' in opened
    assert 'aria-current="page">Failed imports' in opened
    assert "is replaced" in act(browser, f"{SAVE}?runner=r1", name="Failed imports")
    assert saved(browser.get("/ledger").text) == {"Failed imports": "/ledger?runner=r1"}
    assert "is deleted." in act(browser, f"{DELETE}?{FILTERS}", name="Failed imports")
    assert "was deleted already" in act(browser, DELETE, name="Failed imports")
    assert saved(browser.get("/ledger").text) == {}


def test_a_viewer_saves_views_which_nobody_else_sees_and_may_do_nothing_else_F123(
    by_token: TestClient,
) -> None:
    for headers, name in ((VIEWER, "mine"), (OPERATOR, "hers")):
        done = by_token.post(f"{SAVE}?job=a", data={"name": name}, headers=headers)
        assert done.status_code == 303
        assert saved(by_token.get("/ledger", headers=headers).text) == {name: "/ledger?job=a"}
    by_token.post(DELETE, data={"name": "hers"}, headers=VIEWER)
    assert "hers" in saved(by_token.get("/ledger", headers=OPERATOR).text)
    refused = by_token.post("/ledger/cancel", data={"id": "1"}, headers=VIEWER)
    assert_refused(refused, "grafana may read this page, but may not act on it", 403)


def test_a_view_that_cannot_be_saved_is_refused_F123(browser: TestClient) -> None:
    for query, name, message, status in (
        ("", " ", "the name of the view is empty", 409),
        ("", "n" * 81, "the name of the view has 81 characters", 409),
        (f"?job={'j' * 2000}", "long", "the address of the view has 2012 characters", 409),
        ("?since=yesterday", "x", "since: 'yesterday'", 400),
    ):
        assert_refused(post(browser, SAVE + query, name=name), message, status)
    assert saved(browser.get("/ledger").text) == {}


def test_a_person_has_fifty_views_and_a_ledger_a_thousand_F123(browser: TestClient, db: Db) -> None:
    """Whoever may call the function may invent persons."""
    fill = (
        "INSERT INTO cronledger.saved_views (person, name, address, created_at)"
        " SELECT %s, 'view ' || n, '/ledger', cronledger.db_now() FROM generate_series(2, %s) n"
    )
    act(browser, SAVE, name="view 1")
    (person,) = value(db, "SELECT array_agg(person) FROM cronledger.saved_views")
    db.execute(fill, [person, 50])
    refused = post(browser, SAVE, name="one more")
    assert_refused(refused, f"{person} has 50 saved views already", 409)
    assert "Delete a view first" in text(refused.text)
    assert "is replaced" in act(browser, SAVE, name="view 50")
    assert "is deleted." in act(browser, DELETE, name="view 50")
    db.execute(fill, ["another", 952])
    refused = post(browser, SAVE, name="one more")
    assert_refused(refused, "the ledger has 1,000 saved views already", 409)
    assert "is replaced" in act(browser, SAVE, name="view 49")


def test_a_view_leads_to_the_ledger_alone_and_only_functions_write_it_F123(
    database_url: str, logins: Logins, db: Db
) -> None:
    foreign = ("https://example.com/", "//example.com/ledger", "/jobs", "/ledger/x", "/ledger?a b")
    insert = "INSERT INTO cronledger.saved_views VALUES ('p', 'x', %s, now())"
    with connected(logins.url(database_url, "viewer")) as viewer:
        for address in foreign:
            with pytest.raises(errors.InvalidParameterValue, match="is not an address of the page"):
                viewer.execute("SELECT cronledger.save_view('x', %s)", [address])
            with pytest.raises(errors.CheckViolation):
                db.execute(insert, [address])
        assert value(viewer, "SELECT cronledger.save_view('x', '/ledger')") is True
        person = value(db, "SELECT person FROM cronledger.saved_views")
        assert person == logins.name("viewer")
        with pytest.raises(errors.InsufficientPrivilege):
            viewer.execute("DELETE FROM cronledger.saved_views")
