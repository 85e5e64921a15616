"""`cronledger metrics`: printed once, or served until a signal."""

import signal
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from cronledger import extras
from cronledger.logs import output
from tests.cli.conftest import Cli
from tests.cli.support.daemon import Run
from tests.cli.support.results import done, refused
from tests.db.support.scrapes import Scrape
from tests.waiting import until
from tests.web.support.command import Start, address, starter
from tests.web.support.patience import lengthen


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No limit of a command in this process passes only because the machine is busy."""
    lengthen(monkeypatch)


@pytest.fixture
def start(tmp_path: Path, database_url: str) -> Iterator[Start]:
    """Start the command on the database of the test, unless a variable names another one."""
    with starter(tmp_path, database_url, "metrics") as made:
        yield made


def served(run: Run) -> Scrape:
    """What is scraped once requests are accepted."""
    return Scrape(httpx2.get(address(run), timeout=60).raise_for_status().text)


def test_the_metrics_of_a_limited_number_of_jobs_are_printed_once(
    filled: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = done(filled, "metrics")
    found = Scrape(said.stdout)
    assert found.one("jobs") == 3
    assert found.of_job("hourly")["status_active"] == 1
    assert said.stderr == ""
    assert Scrape(filled("metrics", "--jobs", "1").stdout).one("job_series_omitted") == 2
    monkeypatch.setenv("CRONLEDGER_METRICS_JOBS", "2")
    assert Scrape(filled("metrics").stdout).one("job_series_omitted") == 1


@pytest.mark.long
def test_the_metrics_are_served_until_a_signal(start: Start) -> None:
    run = start("--listen", "127.0.0.1:0")
    until("the ledger was read within the limits", lambda: served(run).one("up") == 1)
    assert run.err.splitlines()[0] == f"cronledger metrics: {address(run)}"
    assert httpx2.get(address(run).removesuffix("/metrics"), timeout=60).status_code == 404
    run.signal(signal.SIGTERM)
    assert run.end() == 0


@pytest.mark.long
def test_a_database_that_is_away_is_down_and_not_an_end(start: Start) -> None:
    run = start(
        "--listen", "127.0.0.1:0", CRONLEDGER_DATABASE_URL="host=127.0.0.1 port=1 dbname=none"
    )
    found = served(run)
    assert found.keys() == {"up", "build_info"} and found.one("up") == 0
    assert run.until_event("metrics_read_failed")["error"].startswith("the database is unreachable")
    run.signal(signal.SIGINT)
    assert run.end() == 0


def test_a_database_without_a_ledger_is_refused(
    bare: Cli, empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "configure", lambda *_: None)
    monkeypatch.setenv("CRONLEDGER_DATABASE_URL", empty_database_url)
    served = ("--listen", "127.0.0.1:0")
    refused(bare("metrics", *served), "run `cronledger migrate`", code=4)


def test_a_bad_address_is_refused(cli: Cli) -> None:
    for listen in ("nonsense", "127.0.0.1", "unix:/tmp/x", "127.0.0.1:99999"):
        refused(cli("metrics", "--listen", listen), "use HOST:PORT")


def test_without_the_extra_the_command_names_it(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda _: None)
    refused(cli("metrics"), "run `pip install 'cronledger[metrics]'`")
