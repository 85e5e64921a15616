"""The page in a program: when it reads its settings, and how it ends with the server."""

import re
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest

from cronledger.rules.problems import ConfigurationError
from cronledger.web import create_app
from tests.cli.support.daemon import Run
from tests.db.support import rows
from tests.db.support.rows import Db
from tests.docs.support.pages import ROOT
from tests.processes import clean_environ
from tests.waiting import PATIENCE
from tests.web.support.browsing import client, panel

VARIABLE = "CRONLEDGER_DATABASE_URL"


@pytest.mark.long
def test_the_page_reads_its_settings_when_it_starts(
    database_url: str, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = create_app()  # as a module does that `check`, pytest or mypy imports
    with pytest.raises(ConfigurationError, match=VARIABLE), client(page):
        pass
    rows.job(db, "report")
    monkeypatch.setenv(VARIABLE, database_url)
    for name in ("first", "second"):
        monkeypatch.setenv("CRONLEDGER_LEDGER_NAME", name)
        with client(page) as browser:
            shown = browser.get("/jobs").text
        assert "report" in panel(shown, "jobs")
        assert name in shown


def test_a_page_that_has_not_started_names_the_remedy(database_url: str) -> None:
    page = create_app(url=database_url)
    remedy = r"page\.router\.lifespan_context\(page\)"
    with pytest.raises(RuntimeError, match=remedy):
        client(page).get("/")
    served = client(page, raise_server_exceptions=False).get("/")
    assert served.status_code == 500
    assert re.search(remedy, served.text)


@pytest.mark.parametrize(
    ("number", "loop"), [(signal.SIGTERM, "asyncio"), (signal.SIGINT, "uvloop")]
)
@pytest.mark.long
def test_a_signal_ends_the_open_pages_of_a_program_before_its_replica_drains(
    tmp_path: Path, database_url: str, number: signal.Signals, loop: str
) -> None:
    environment = clean_environ() | {
        VARIABLE: database_url, "PYTHONPATH": str(ROOT), "CRONLEDGER_LOG_FORMAT": "json",
    }  # fmt: skip
    uvicorn = (sys.executable, "-m", "uvicorn", "tests.web.support.program:api")
    run = Run(tmp_path, environment, "--port", "0", "--loop", loop, program=uvicorn)
    with ExitStack() as stack:
        stack.callback(run.process.wait)
        stack.callback(run.process.kill)
        listens = re.compile(r"running on (http://\S+)")
        run.until(lambda: listens.search(run.err))
        (url,) = listens.findall(run.err)
        assert httpx2.get(url, timeout=60).json() == {"word": "own", "replica": "running"}
        assert "report" in httpx2.get(f"{url}/ops/cron/jobs", timeout=60).text
        with httpx2.stream("GET", f"{url}/ops/cron/events", timeout=PATIENCE) as stream:
            lines = stream.iter_lines()
            assert next(lines).startswith("retry: ")
            run.signal(number)
            for _ in lines:
                pass  # until the server ends the stream
        run.until_event("runner_stopped")
        assert run.end() in (0, -number)
