"""`cronledger web`: its address, its exit codes, and its end."""

import signal
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import httpx2
import psycopg
import pytest
from click.testing import CliRunner, Result
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from cronledger.cli import main
from cronledger.logs import output
from tests.database import Databases
from tests.web.support.command import Start, address
from tests.web.support.logins import Logins

Refuse = Callable[..., Result]


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch, database_url: str) -> Refuse:
    """Call the command in this process, with arguments that it refuses."""
    monkeypatch.setattr(output, "configure", lambda *_: None)

    def call(*arguments: str, url: str = database_url) -> Result:
        environ = {"CRONLEDGER_DATABASE_URL": url}
        return CliRunner().invoke(main, ["web", *arguments], env=environ)

    return call


@pytest.mark.long
def test_the_page_is_served_by_two_logins_below_a_prefix_until_a_signal(
    start: Start, database_url: str, logins: Logins
) -> None:
    run = start(
        "--listen", "127.0.0.1:0",
        CRONLEDGER_DATABASE_URL="", CRONLEDGER_WEB_PREFIX="/ops/cron",
        CRONLEDGER_WEB_READ_URL=logins.url(database_url, "viewer"),
        CRONLEDGER_WEB_ACT_URL=logins.url(database_url, "operator"),
    )  # fmt: skip
    url = address(run)
    assert run.err.splitlines()[0] == f"cronledger web: {url}"
    assert url.endswith("/ops/cron/")
    page = httpx2.get(url, timeout=60).raise_for_status().text
    assert "Needs attention" in page and '"/ops/cron/static/page.css"' in page
    assert httpx2.get(url.replace("/ops/cron/", "/"), timeout=60).status_code == 404
    run.signal(signal.SIGTERM)
    assert run.end() == 0


@pytest.mark.long
def test_a_unix_socket_is_for_its_user_and_replaces_that_of_a_killed_page(
    start: Start, tmp_path: Path
) -> None:
    path = tmp_path / "page"
    killed = start("--listen", f"unix:{path}")
    assert address(killed) == f"unix:{path}"
    killed.signal(signal.SIGKILL)
    killed.process.wait()
    assert path.exists()
    run = start("--listen", f"unix:{path}")
    address(run)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with httpx2.Client(transport=httpx2.HTTPTransport(uds=str(path)), timeout=60) as browser:
        assert "Needs attention" in browser.get("http://page/").raise_for_status().text
    run.signal(signal.SIGTERM)
    assert run.end() == 0
    assert not path.exists()


@pytest.mark.long
def test_an_address_in_use_is_an_error(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        run = start("--listen", f"127.0.0.1:{taken.getsockname()[1]}")
        assert run.end() == 1
    assert "Address already in use; free it, or choose another with --listen" in run.err
    assert "Traceback" not in run.err


def test_an_access_that_would_be_open_or_useless_is_refused(refuse: Refuse) -> None:
    for option, given, text in (
        ("--listen", "0.0.0.0:0", "is reached by other machines, and there is no sign-in"),
        ("--listen", "nonsense", "use HOST:PORT, [IPv6]:PORT or unix:PATH"),
        ("--auth", "token", "CRONLEDGER_WEB_TOKENS: is not set"),
        ("--auth", "proxy", "CRONLEDGER_WEB_PROXY_PEERS: is not set"),
    ):
        said = refuse(option, given)
        assert said.exit_code == 2 and text in said.stderr, said.output


@pytest.mark.own_database  # which is renamed
def test_a_database_without_a_ledger_or_with_another_name_is_refused(
    refuse: Refuse, database_url: str, empty_database_url: str, databases: Databases
) -> None:
    said = refuse("--listen", "127.0.0.1:0", url=empty_database_url)
    assert said.exit_code == 4 and "run `cronledger migrate`" in said.stderr
    name = str(conninfo_to_dict(database_url)["dbname"])
    names = sql.Identifier(name), sql.Identifier(f"{name}_gone")  # other runs share the server
    rename = sql.SQL("ALTER DATABASE {} RENAME TO {}")
    with psycopg.connect(databases.url("postgres"), autocommit=True) as c:
        c.execute(rename.format(*names))
        try:
            said = refuse("--listen", "127.0.0.1:0")
        finally:
            c.execute(rename.format(*reversed(names)))
    assert said.exit_code == 2 and "does not exist" in said.stderr


@pytest.mark.long
def test_the_page_waits_for_a_database_that_is_away(start: Start) -> None:
    run = start(
        "--listen", "127.0.0.1:0",
        CRONLEDGER_WEB_READ_URL="host=127.0.0.1 port=1 dbname=none",
    )  # fmt: skip
    page = httpx2.get(address(run), timeout=60).raise_for_status().text
    assert "The database does not respond." in page
    assert "This page has not read any data yet." in page
    assert page.count("<strong>–</strong>") == 5 and "No job is paused" not in page
