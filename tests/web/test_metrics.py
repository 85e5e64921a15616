"""/metrics of the page: the same metrics as those of the command, behind the page's access."""

import subprocess
import sys
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import pytest
from starlette.testclient import TestClient

from cronledger import extras
from cronledger.metrics import ledger_metrics
from tests.db.support import rows
from tests.db.support.rows import Db
from tests.db.support.scrapes import Scrape
from tests.processes import clean_environ
from tests.promtool import complaints, needs_promtool
from tests.web.support.browsing import app, client, text
from tests.web.support.logins import Logins
from tests.web.support.outages import away

TOKEN = f"prometheus:viewer:{sha256(b'scrape-secret').hexdigest()}"
BEARER = {"Authorization": "Bearer scrape-secret"}
PROXY: Mapping[str, Any] = {"web_auth": "proxy", "web_proxy_peers": ["10.0.0.0/24"]}


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each scrape reads the ledger."""
    monkeypatch.setattr(ledger_metrics, "FRESH_SECONDS", 0.0)
    monkeypatch.setattr(ledger_metrics, "RETRY_SECONDS", 0.0)


def test_the_page_and_its_metrics_name_their_ledger(
    database_url: str, logins: Logins, db: Db
) -> None:
    rows.job(db, "report")
    with client(app(database_url, logins, ledger_name="shop")) as browser:
        assert "<title>Now · shop</title>" in browser.get("/").text
        found = Scrape(browser.get("/metrics").text)
    assert found["up"] == {("shop",): 1}
    assert found.labels["job_scopes"] == ("job", "ledger")
    assert all("ledger" in labels for labels in found.labels.values())


def test_this_machine_scrapes_without_a_sign_in(browser: TestClient, db: Db) -> None:
    rows.job(db, "report")
    response = browser.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert response.headers["cache-control"] == "no-store"
    found = Scrape(response.text)
    assert found.one("up") == 1 and ("report",) in found["job_scopes"]


def test_prometheus_gets_the_format_that_it_prefers(browser: TestClient) -> None:
    accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    response = browser.get("/metrics", headers={"Accept": accept})
    assert response.headers["content-type"].startswith("application/openmetrics-text")
    assert response.text.endswith("# EOF\n")
    response = browser.get("/metrics", headers={"Accept": "text/plain;version=x"})
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")


def test_no_foreign_page_reads_the_metrics(browser: TestClient) -> None:
    for name, given in (("Host", "rebound.example"), ("X-Forwarded-For", "203.0.113.9")):
        refused = browser.get("/metrics", headers={name: given})
        assert refused.status_code == 403 and "cronledger_up" not in refused.text


def test_with_tokens_prometheus_sends_its_token(database_url: str, logins: Logins) -> None:
    made = app(database_url, logins, web_auth="token", web_tokens=[TOKEN])
    with client(made, "203.0.113.9") as other:
        assert Scrape(other.get("/metrics", headers=BEARER).text).one("up") == 1
        for headers in ({}, {"Authorization": "Bearer guess"}):
            refused = other.get("/metrics", headers=headers)
            # Not the form, which is a redirect and another page.
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
            assert "cronledger_up" not in refused.text


def test_with_a_proxy_prometheus_passes_the_proxy(database_url: str, logins: Logins) -> None:
    made = app(database_url, logins, **PROXY)
    user = {"X-Forwarded-User": "prometheus"}
    with client(made, "10.0.0.7") as proxy:
        assert Scrape(proxy.get("/metrics", headers=user).text).one("up") == 1
        assert proxy.get("/metrics").status_code == 403
    with client(app(database_url, logins, **PROXY), "203.0.113.9") as other:
        assert other.get("/metrics", headers=user).status_code == 403


def test_without_the_extra_the_page_names_it(
    browser: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda _: None)
    missing = browser.get("/metrics")
    assert missing.status_code == 404
    assert "run `pip install 'cronledger[metrics]'`" in text(missing.text)
    assert browser.get("/").status_code == 200


def test_the_library_is_imported_by_the_first_scrape_only() -> None:
    program = (
        "import sys, cronledger.cli.metrics, cronledger.web.application as page\n"
        "page.create_app(url='host=127.0.0.1')\n"
        "assert 'prometheus_client' not in sys.modules"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], env=clean_environ(), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, "")


def test_two_servers_cost_one_reading(
    browser: TestClient, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_metrics, "FRESH_SECONDS", 3600.0)
    first = Scrape(browser.get("/metrics").text)
    rows.job(db)
    again = Scrape(browser.get("/metrics").text)
    assert again == first


@pytest.mark.usefixtures("fresh")
def test_without_its_database_nothing_is_known_until_it_is_back(
    browser: TestClient, db: Db, database_url: str
) -> None:
    rows.job(db)
    assert Scrape(browser.get("/metrics").text).one("jobs") == 1
    with away(database_url):
        response = browser.get("/metrics")
        assert response.status_code == 200
        found = Scrape(response.text)
        assert found.keys() == {"up", "build_info"} and found.one("up") == 0
    assert Scrape(browser.get("/metrics").text).one("jobs") == 1


def test_the_setting_limits_the_jobs_of_the_page(database_url: str, logins: Logins, db: Db) -> None:
    for number in range(3):
        rows.job(db, f"job-{number}")
    with client(app(database_url, logins, metrics_jobs=2)) as browser:
        found = Scrape(browser.get("/metrics").text)
    assert (found.one("job_series_limit"), found.one("job_series_omitted")) == (2, 1)
    assert len(found["job_info"]) == 2


@needs_promtool
def test_promtool_accepts_the_metrics_of_the_page(browser: TestClient, db: Db) -> None:
    rows.job(db)
    assert complaints(browser.get("/metrics").content) == ""
