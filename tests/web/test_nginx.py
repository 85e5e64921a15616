"""The page behind nginx with the configuration of examples/proxy: who gets in, and as whom."""

import signal
import subprocess
import threading
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from tomllib import loads

import httpx2
import pytest

from tests.cli.support.daemon import Run
from tests.db.support import rows
from tests.db.support.rows import Db, value
from tests.docs.support.pages import ROOT
from tests.waiting import until
from tests.web.support.browsing import SAME_ORIGIN, text
from tests.web.support.command import Start, address
from tests.web.support.nginx import EXAMPLE, Proxy, needs_nginx, nginx
from tests.web.test_page_doc import snippet
from tests.web.test_refresh import LISTENERS

pytestmark = [pytest.mark.slow, needs_nginx]

FORGED = {"X-Forwarded-User": "root", "X-Forwarded-Groups": "on-call"}
GROUPS = {
    "CRONLEDGER_WEB_AUTH": "proxy", "CRONLEDGER_WEB_OPERATOR_GROUPS": "on-call",
    "CRONLEDGER_WEB_VIEWER_GROUPS": "engineering",
}  # fmt: skip


@pytest.fixture
def page(start: Start, tmp_path: Path) -> Run:
    """A page on a unix socket, for the groups engineering and on-call."""
    listen = f"unix:{tmp_path / 'page'}"
    run = start("--listen", listen, CRONLEDGER_WEB_PROXY_PEERS="unix", **GROUPS)
    address(run)
    return run


@pytest.fixture
def proxy(page: Run, tmp_path: Path) -> Iterator[Proxy]:
    with nginx(tmp_path / "nginx", f"unix:{tmp_path / 'page'}") as made:
        yield made


def test_the_groups_of_the_sign_in_decide_and_no_header_from_outside(proxy: Proxy) -> None:
    with proxy.browser("zoe") as browser:
        assert "zoe@example.com operator" in text(browser.get("/").text)
    forged = [
        {}, FORGED, {name.lower(): given for name, given in FORGED.items()},
        {name.replace("-", "_"): given for name, given in FORGED.items()},
        {f"X-Auth-Request-{name}": "on-call" for name in ("User", "Email", "Groups")},
    ]  # fmt: skip
    with proxy.browser("ann") as browser:
        for headers in forged:
            assert "ann@example.com viewer" in text(browser.get("/", headers=headers).text)
    with proxy.browser("nameless") as browser:
        assert browser.get("/", headers=FORGED).status_code == 403
    with proxy.browser("groupless") as browser:
        refused = browser.get("/", headers=FORGED)
        assert refused.status_code == 403
        assert "groupless@example.com is in no group that may see this page." in text(refused.text)


def test_reports_of_runs_need_a_token_and_no_session(proxy: Proxy, db: Db) -> None:
    rows.job(db, "seen", handler="observed", target="{}")
    token = "t" * 43
    create = "SELECT cronledger.create_report_token(%s, 'seen')"
    db.execute(create, [sha256(token.encode()).hexdigest()])
    with proxy.browser(None) as browser:
        assert browser.post(f"/report/{token}/3", content="no space").text == "OK\n"
        assert browser.post(f"/report/{token}x/3").status_code == 404
    assert value(db, "SELECT exit_status FROM cronledger.reports") == 3


def test_without_a_session_everything_leads_to_the_sign_in(proxy: Proxy) -> None:
    address = "/ledger?job=report&outcome=FAILED&since=6h"
    for session in (None, "expired"):
        with proxy.browser(session) as browser:
            asked = browser.get(address, headers=FORGED)
            assert asked.status_code == 302
            # The whole address is kept for the time after the sign-in.
            assert asked.headers["location"] == f"https://sso.example.com/oauth2/start#{address}"
            for path in ("/static/page.css", "/events"):
                assert browser.get(path, headers={"Accept": "*/*"} | FORGED).status_code == 401
            assert browser.post("/queues/pause-all", headers=SAME_ORIGIN).status_code == 401
            # Whether a session is valid is nobody's business.
            assert browser.get("/oauth2/auth").status_code == 404


def test_only_operators_act_through_the_proxy(proxy: Proxy, db: Db) -> None:
    rows.job(db, queue="slow")
    paused = "SELECT array_agg(paused_by) FROM cronledger.queues WHERE paused_at IS NOT NULL"
    form = {"queue": "slow", "reason": "incident"}
    with proxy.browser("ann") as browser:
        refused = browser.post("/queues/pause", data=form, headers=SAME_ORIGIN | FORGED)
        assert refused.status_code == 403
    with proxy.browser("zoe") as browser:
        for headers in ({"Origin": "https://cron.example.com"}, {}):  # another port, and none
            assert browser.post("/queues/pause", data=form, headers=headers).status_code == 403
        assert value(db, paused) is None
        done = browser.post("/queues/pause", data=form, headers={"Origin": proxy.address})
        assert (done.status_code, done.headers["location"]) == (303, "/runners")
    assert value(db, paused) == ["zoe@example.com"]


def test_events_pass_the_proxy_at_once(proxy: Proxy, page: Run, db: Db) -> None:
    lines: list[str] = []
    seen = threading.Event()

    def read() -> None:
        with proxy.browser("ann") as browser, browser.stream("GET", "/events") as stream:
            arriving = stream.iter_lines()  # the end of this iterator would end the stream
            lines.append(next(arriving))
            seen.wait()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        until("the page has begun the stream, and listens", lambda: value(db, LISTENERS))
        page.signal(signal.SIGSTOP)  # it cannot end the stream
        until("what the page has sent has arrived", lambda: lines == ["retry: 1000"])
    finally:
        page.signal(signal.SIGCONT)
        seen.set()
        reader.join()


def test_the_checks_of_the_documentation_pass_and_the_configurations_fit_together(
    proxy: Proxy,
) -> None:
    host = f"--resolve {proxy.address.removeprefix('https://')}:127.0.0.1"
    commands = snippet("sh", "pause-all").replace("https://cron.example.com", proxy.address)
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c",
         commands.replace("curl ", f"curl {host} --cacert {proxy.certificate} ")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert ran.stdout.lower().splitlines() == [
        "location: https://sso.example.com/oauth2/start#/", "401",
    ]  # fmt: skip
    sign_in = loads((EXAMPLE / "oauth2-proxy.cfg").read_text("utf-8"))
    site = (EXAMPLE / "nginx.conf").read_text("utf-8")
    assert f"server {sign_in['http_address']};" in site
    host = sign_in["redirect_url"].removeprefix("https://").removesuffix("/oauth2/callback")
    assert f"server_name {host};" in site
    assert sign_in["set_xauthrequest"] and sign_in["reverse_proxy"]
    assert "unix:/run/cronledger/page" in (ROOT / "docs" / "page.md").read_text("utf-8")
    plain = httpx2.get(f"http://127.0.0.1:{proxy.plain_port}/jobs?a=b", timeout=60)
    assert plain.status_code == 301
    assert plain.headers["location"] == "https://cron.example.com/jobs?a=b"
