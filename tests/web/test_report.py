"""F119: reports of runs by requests with a token in the path."""

import asyncio
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from cronledger.web import run_reports
from cronledger.web.pages import report
from tests.db.support import rows
from tests.db.support.rows import Db, now, value
from tests.docs.support.pages import ROOT, blocks
from tests.processes import clean_environ
from tests.unreachable import CLOSED
from tests.waiting import until
from tests.web.support.browsing import SAME_ORIGIN, TOKENS, app, client, page_of
from tests.web.support.command import Start, address
from tests.web.support.logins import Logins
from tests.web.support.outages import away

GUIDE = ROOT / "docs" / "howto" / "observe.md"
TOKEN = "t" * 42 + "0"
UNKNOWN = "t" * 42 + "1"
RID = "1f2b1d0c-8f6e-4d3a-9b52-0f7f1f4c9a11"
CREATE = "SELECT cronledger.create_report_token(%s, 'seen', host => 'web1')"


@pytest.fixture(autouse=True)
def token(db: Db) -> int:
    """TOKEN reports the runs of an observed job."""
    rows.job(db, "seen", handler="observed", target="{}")
    made: int = value(db, CREATE, sha256(TOKEN.encode()).hexdigest())
    return made


@pytest.fixture
def cron(by_token: TestClient) -> TestClient:
    """A program on another machine, at a page with a sign-in."""
    return by_token


def waiting(cron: TestClient) -> Counter[str]:
    found: Counter[str] = cron.app.state.site.run_reports.waiting  # type: ignore[attr-defined]
    return found


async def never(_: object) -> None:
    """Wait for a body that does not arrive."""
    await asyncio.Event().wait()


def stored(db: Db) -> list[Mapping[str, Any]]:
    return list(db.execute("SELECT * FROM cronledger.reports ORDER BY id").fetchall())


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
def test_a_success_is_reported_by_each_method_without_a_sign_in(
    cron: TestClient, db: Db, method: str
) -> None:
    before = now(db)
    answer = cron.request(method, f"/report/{TOKEN}")
    assert answer.status_code == 200
    assert answer.text == ("" if method == "HEAD" else "OK\n")
    assert answer.headers["cache-control"] == "no-store" and "set-cookie" not in answer.headers
    (row,) = stored(db)
    assert (row["job_name"], row["exit_status"], row["error"]) == ("seen", 0, None)
    assert (row["host"], row["source"]) == ("web1", "http")
    assert before < row["started_at"] == row["ended_at"] < now(db)
    for table in ("report_tokens", "reports", "operator_actions"):
        assert TOKEN not in str(db.execute(f"SELECT * FROM cronledger.{table}").fetchall())


@pytest.mark.parametrize(
    ("event", "status", "error"),
    [
        ("/fail", None, run_reports.FAILED), ("/255", 255, None),
    ],
)  # fmt: skip
def test_a_start_and_an_end_with_one_rid_are_one_run_and_count_once(
    cron: TestClient, db: Db, event: str, status: int | None, error: str | None
) -> None:
    for phase in ("/start", "/start", event, event, "/start"):
        sent = cron.post(f"/report/{TOKEN}{phase}?rid={RID.upper()}", content="no space")
        assert sent.status_code == 200
    (row,) = stored(db)
    assert (row["run_key"], row["exit_status"], row["error"]) == (RID, status, error)
    assert row["started_at"] < row["ended_at"] and row["output"] == "no space"


def test_a_body_is_the_output_without_what_the_ledger_cannot_store(
    cron: TestClient, db: Db
) -> None:
    body = b"a\0b \xff postgresql://me:hunter2@db/x"
    assert cron.post(f"/report/{TOKEN}/1", content=body).status_code == 200
    assert stored(db)[0]["output"] == "a\ufffdb \ufffd postgresql://me:***@db/x"


def test_an_unknown_address_says_nothing_about_tokens_and_jobs(cron: TestClient, db: Db) -> None:
    for path in (
        UNKNOWN, f"{UNKNOWN}/start", f"{TOKEN}/256", f"{TOKEN}/-1", f"{TOKEN}/log", f"{TOKEN}/",
        f"{TOKEN}/start/1", TOKEN[:-1], "", "%2e%2e%2fjobs",
    ):  # fmt: skip
        answer = cron.post(f"/report/{path}")
        assert (answer.status_code, answer.text) == (404, "There is no such address.\n"), path
    assert stored(db) == []


@pytest.mark.parametrize(
    "refused", [(400, "?rid=first", 0), (413, "", report.MOST_BYTES + 1), (408, "", 0)]
)
def test_a_token_revoked_before_the_body_takes_no_place_twice(
    cron: TestClient, db: Db, token: int, monkeypatch: pytest.MonkeyPatch,
    refused: tuple[int, str, int],
) -> None:  # fmt: skip
    status, query, size = refused
    assert cron.get(f"/report/{TOKEN}").status_code == 200
    db.execute("SELECT cronledger.revoke_report_token(%s)", [token])
    if status == 408:
        monkeypatch.setattr(report, "BODY_SECONDS", 0.01)
        monkeypatch.setattr(report, "_body", never)
    for wanted in (status, 404):
        sent = cron.post(f"/report/{TOKEN}{query}", content=b"x" * size)
        assert sent.status_code == wanted
    assert waiting(cron) == {}


def test_other_methods_wrong_values_and_large_bodies_are_refused(cron: TestClient, db: Db) -> None:
    for method in ("PUT", "DELETE", "OPTIONS"):
        answer = cron.request(method, f"/report/{TOKEN}")
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, POST")
    answer = cron.get(f"/report/{TOKEN}?rid=first")
    assert (answer.status_code, answer.text) == (400, "rid is not a UUID.\n")
    largest = b"x" * report.MOST_BYTES
    assert cron.post(f"/report/{TOKEN}", content=largest + b"x").status_code == 413
    assert stored(db) == []
    assert cron.post(f"/report/{TOKEN}", content=largest).status_code == 200
    assert stored(db)[0]["output"] == "x" * 65_536


def test_too_many_reports_are_told_when_to_come_again(cron: TestClient, db: Db) -> None:
    db.execute(
        "UPDATE cronledger.report_tokens"
        " SET minute_count = 300, minute_from = cronledger.db_clock()"
    )
    limited = cron.get(f"/report/{TOKEN}")
    assert limited.status_code == 429 and 1 <= int(limited.headers["retry-after"]) <= 60
    db.execute("UPDATE cronledger.report_tokens SET minute_count = 0")
    for job, count in (("seen", run_reports.MOST_OF_JOB), ("other", run_reports.MOST_WAITING)):
        waiting(cron)[job] = count
        busy = cron.get(f"/report/{TOKEN}")
        assert (busy.status_code, busy.headers["retry-after"]) == (429, "1")
        assert cron.get(f"/report/{UNKNOWN}").status_code == 404
        del waiting(cron)[job]
    assert stored(db) == []


def test_look_ups_of_tokens_are_limited_and_a_known_token_needs_none(
    database_url: str, logins: Logins, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_reports, "MOST_LOOKUPS", 3)
    monkeypatch.setattr(run_reports, "LOCK_TIMEOUT", timedelta(minutes=1))
    monkeypatch.setattr(run_reports, "PATIENCE", 60.0)
    with client(app(database_url, logins)) as page, ThreadPoolExecutor() as threads:
        reports = page.app.state.site.run_reports  # type: ignore[attr-defined]
        for has_reported in (False, True):
            with db.transaction():
                db.execute("LOCK TABLE cronledger.report_tokens")
                sent = [threads.submit(page.get, f"/report/{UNKNOWN}") for _ in range(3)]
                until("all wait", lambda: reports.lookups == 3)
                report = threads.submit(page.get, f"/report/{TOKEN}")
                if has_reported:  # a known token waits for no look-up
                    until("it is recorded", lambda: reports.waiting["seen"] == 1)
                else:
                    busy = report.result()
                    assert (busy.status_code, busy.headers["retry-after"]) == (429, "1")
            assert [one.result().status_code for one in sent] == [404] * 3
            if has_reported:
                assert report.result().status_code == 200
            assert page.get(f"/report/{TOKEN}").status_code == 200


def test_a_refused_report_has_the_reason(
    cron: TestClient, db: Db, caplog: pytest.LogCaptureFixture
) -> None:
    db.execute("DELETE FROM cronledger.schedules")
    refused = cron.get(f"/report/{TOKEN}")
    assert refused.status_code == 409
    assert refused.text == (
        "The ledger refused the report: job 'seen' has no scope global/global\n"
        "To list its scopes, open the page of the job.\n"
    )
    assert "web_report_refused" in caplog.text and TOKEN not in caplog.text


def test_a_locked_schedule_delays_only_reports_of_its_job(
    cron: TestClient, db: Db, database_url: str
) -> None:
    rows.job(db, "free", handler="observed", target="{}")
    db.execute(CREATE.replace("seen", "free"), [sha256(UNKNOWN.encode()).hexdigest()])
    with ThreadPoolExecutor() as threads, rows.connected(database_url) as other:
        with other.transaction():
            other.execute("SELECT FROM cronledger.schedules WHERE job_name = 'seen' FOR UPDATE")
            sent = [threads.submit(cron.get, f"/report/{TOKEN}") for _ in range(4)]
            until("all wait", lambda: waiting(cron)["seen"] == 4)
            assert cron.get(f"/report/{UNKNOWN}").status_code == 200
            assert [row["job_name"] for row in stored(db)] == ["free"]
        assert [one.result().status_code for one in sent] == [200] * 4


def test_a_report_waits_a_moment_for_a_locked_schedule(
    database_url: str,
    logins: Logins,
    db: Db,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(run_reports, "LOCK_TIMEOUT", timedelta(milliseconds=20))
    with client(app(database_url, logins)) as page, db.transaction():
        db.execute("SELECT FROM cronledger.schedules FOR UPDATE")
        for _ in range(2):
            assert page.get(f"/report/{TOKEN}").status_code == 503
    assert caplog.text.count("web_report_failed") == 1


def test_the_proxies_treat_reports_alike() -> None:
    """Nobody has signed in there, so they pass on no identity."""
    found = []
    for file in ("examples/proxy/nginx.conf", "deploy/compose/nginx.conf"):
        _, _, rest = (ROOT / file).read_text("utf-8").partition("location ~ ^/(l/[^/]+/)?report/ {")
        lines = [line.strip() for line in rest.partition("}")[0].splitlines()]
        found.append([x for x in lines if x and not x.startswith(("#", "proxy_pass"))])
    example, compose = found
    assert example == compose
    cleared = {f'proxy_set_header X-Forwarded-{name} "";' for name in ("User", "Groups")}
    assert cleared | {"access_log off;", "error_log /dev/null;"} < set(example)


def test_while_the_database_is_away_a_client_is_told_to_repeat(
    cron: TestClient, db: Db, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    db.close()
    with away(database_url):
        for _ in range(2):
            answer = cron.get(f"/report/{TOKEN}")
            assert answer.status_code == 503 and int(answer.headers["retry-after"]) > 0
            assert TOKEN not in answer.text
    assert caplog.text.count("web_report_failed") == 1
    assert TOKEN not in caplog.text
    assert cron.get(f"/report/{TOKEN}").status_code == 200
    with rows.connected(database_url) as again:
        assert len(stored(again)) == 1


@pytest.mark.long
def test_the_commands_of_the_documentation_report_a_run_and_no_log_has_the_token(
    start: Start, db: Db, database_url: str, tmp_path: Path
) -> None:
    rows.job(db, "refresh-totals", handler="observed", target="{}")
    page = start("--listen", "127.0.0.1:0", CRONLEDGER_LOG_LEVEL="debug")
    own = address(page).removesuffix("/")
    shown = [x.text for x in blocks(GUIDE) if x.language == "sh" and "url" in x.text]
    script = "".join([*shown, 'echo "$token"\n'])
    script = script.replace("https://cron.example.com", own)
    program = tmp_path / "refresh-totals"
    program.write_text("#!/bin/sh\necho no space left >&2\nexit 3\n")
    program.chmod(0o755)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    ran = subprocess.run(
        ["bash", "-uc", script], cwd=tmp_path, capture_output=True, text=True, check=True,
        env=clean_environ() | {"CRONLEDGER_DATABASE_URL": database_url, "PATH": path},
    )  # fmt: skip
    (row,) = stored(db)
    assert (row["job_name"], row["host"]) == ("refresh-totals", "db1"), ran.stderr
    assert (row["exit_status"], row["output"]) == (3, "no space left")
    assert row["started_at"] < row["ended_at"] and row["run_key"] is not None
    made = ran.stdout.strip()
    get = ["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}"]
    for wanted, call in {
        "200": ["--head", f"{own}/report/{made}"], "404": [f"{own}/report/{made}x"],
    }.items():  # fmt: skip
        answer = subprocess.run([*get, *call], check=True, capture_output=True, text=True)
        assert answer.stdout == wanted
    assert made not in page.out + page.err


def test_a_token_opens_no_page_and_no_page_is_below_its_address(cron: TestClient, db: Db) -> None:
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    assert cron.get("/jobs", headers=bearer).status_code == 401
    assert cron.post("/queues/pause", data={"queue": "default"}, headers=bearer).status_code == 403
    for path in ("/report", "/reports/x", f"/report{TOKEN}"):
        assert cron.get(path).status_code == 303
    for path in ("jobs", "sign-in", "static/page.css", "ledger.json"):
        assert cron.get(f"/report/{path}", headers=SAME_ORIGIN).status_code == 404


def test_each_of_several_ledgers_has_its_reports(database_url: str, logins: Logins, db: Db) -> None:
    page = page_of(
        {"shop": database_url, "other": CLOSED}, logins, web_auth="token", web_tokens=TOKENS
    )
    with client(page, "203.0.113.9") as browser:
        assert browser.post(f"/l/shop/report/{TOKEN}").status_code == 200
        assert browser.post(f"/l/other/report/{TOKEN}").status_code == 503
        # A redirect to the sign-in would look like a success.
        assert browser.get(f"/report/{TOKEN}").status_code == 404
    assert len(stored(db)) == 1
