"""/metrics of the page: the same metrics as those of the command, behind the page's access."""

import pytest
from starlette.testclient import TestClient

from cronledger import extras
from tests.db.support import rows
from tests.db.support.rows import Db
from tests.db.support.scrapes import Scrape
from tests.web.support.browsing import app, client, text
from tests.web.support.logins import Logins


@pytest.mark.long
def test_the_metrics_name_their_ledger_and_have_the_limit_of_the_settings(
    database_url: str, logins: Logins, db: Db
) -> None:
    for number in range(3):
        rows.job(db, f"job-{number}")
    with client(app(database_url, logins, ledger_name="shop", metrics_jobs=2)) as browser:
        assert "<title>Now · shop</title>" in browser.get("/").text
        found = Scrape(browser.get("/metrics").text)
    assert found["up"] == {("shop",): 1}
    assert found.labels["job_scopes"] == ("job", "ledger")
    assert all("ledger" in labels for labels in found.labels.values())
    assert found["job_series_omitted"] == {("shop",): 1} and len(found["job_info"]) == 2


def test_prometheus_gets_the_format_that_it_prefers(browser: TestClient, db: Db) -> None:
    rows.job(db, "report")
    response = browser.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert response.headers["cache-control"] == "no-store"
    found = Scrape(response.text)
    assert found.one("up") == 1 and ("report",) in found["job_scopes"]
    accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    response = browser.get("/metrics", headers={"Accept": accept})
    assert response.headers["content-type"].startswith("application/openmetrics-text")
    assert response.text.endswith("# EOF\n")


@pytest.mark.long
def test_without_the_extra_the_page_names_it(
    browser: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda _: None)
    missing = browser.get("/metrics")
    assert missing.status_code == 404
    assert "run `pip install 'cronledger[metrics]'`" in text(missing.text)
    assert browser.get("/").status_code == 200
