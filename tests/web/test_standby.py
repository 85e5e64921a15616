"""A standby is read by the page, doctor and commands, and the primary is changed."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cronledger.cli import main
from cronledger.ledger.migrate import migrate
from cronledger.settings import Settings
from cronledger.web import create_app
from tests.cluster.support.servers import Pair, stopping
from tests.database import fast_directory, scratch_directory
from tests.db.support import rows
from tests.db.support.scrapes import Scrape
from tests.waiting import until
from tests.web.support.browsing import client, panel, post, text

MISSING = Pair.missing()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(MISSING is not None, reason=MISSING or "")]


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    """A primary and a standby, both with one job."""
    with scratch_directory(fast_directory()) as directory, stopping(made := Pair(directory)):
        migrate(made.primary.start())
        with rows.connected(made.primary.start()) as db:
            rows.job(db, "report", queue="slow")
        with rows.connected(made.standby.start()) as db:
            jobs = "SELECT count(*) FROM cronledger.job_details"
            until("the job has arrived", lambda: rows.value(db, jobs) == 1)
        yield made


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def test_doctor_and_commands_name_a_standby(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CRONLEDGER_DATABASE_URL", pair.standby.start())
    found = {x["check"]: x for x in json.loads(call("doctor", "--json").stdout)}
    assert "the server is a standby" in found["standby"]["found"]
    assert found["listening"]["severity"] == "unchecked"
    for arguments in (["trigger", "report"], ["jobs", "pause", "report"], ["refuse-database"]):
        refused = call(*arguments)
        assert refused.exit_code == 1
        assert "Error: the server is a standby, or its transactions are read" in refused.stderr
        assert "Hint: use the connection string of the primary" in refused.stderr


def test_a_standby_is_read_and_the_primary_is_changed(pair: Pair) -> None:
    primary = pair.primary.start()
    settings = Settings.load({"web_read_url": pair.standby.start(), "web_act_url": primary})
    page = create_app(settings=settings, url=primary)
    with client(page) as browser:

        def shown() -> str:
            page.state.site.reader.expire()
            return browser.get("/runners").text

        assert "slow active" in panel(shown(), "queues")
        assert "Read from a standby, whose last change is" in text(shown())
        assert Scrape(browser.get("/metrics").text)["queue_paused"] == {("slow",): 0}
        done = post(browser, "/queues/pause", queue="slow", reason="incident")
        assert done.status_code == 303
        until("the pause has arrived", lambda: "incident" in panel(shown(), "queues"))
