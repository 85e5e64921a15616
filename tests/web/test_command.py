"""`cronledger web`: its address, its exit codes, and its end."""

import signal
import socket
import stat
from pathlib import Path

import httpx2
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from tests.database import Databases
from tests.web.support.command import Start, address
from tests.web.support.logins import Logins


def test_the_page_is_served_until_a_signal(start: Start) -> None:
    run = start("--listen", "127.0.0.1:0")
    url = address(run)
    assert run.err.splitlines()[0] == f"cronledger web: {url}"
    assert "Overdue" in httpx2.get(url, timeout=60).raise_for_status().text
    run.signal(signal.SIGTERM)
    assert run.end() == 0


def test_a_unix_socket_is_for_its_user(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "page"
    run = start("--listen", f"unix:{path}")
    assert address(run) == f"unix:{path}"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with httpx2.Client(transport=httpx2.HTTPTransport(uds=str(path)), timeout=60) as browser:
        assert "Overdue" in browser.get("http://page/").raise_for_status().text
    run.signal(signal.SIGTERM)
    assert run.end() == 0
    assert not path.exists()


def test_a_socket_of_a_killed_page_is_replaced(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "page"
    run = start("--listen", f"unix:{path}")
    address(run)
    run.signal(signal.SIGKILL)
    run.process.wait()
    assert path.exists()
    assert address(start("--listen", f"unix:{path}")) == f"unix:{path}"


def test_an_address_in_use_is_an_error(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        run = start("--listen", f"127.0.0.1:{taken.getsockname()[1]}")
        assert run.end() == 1
    assert "Address already in use" in run.err and "Traceback" not in run.err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--listen", "0.0.0.0:0"), "is reached by other machines, and there is no sign-in"),
        (("--listen", "nonsense"), "use HOST:PORT, [IPv6]:PORT or unix:PATH"),
        (("--auth", "token"), "CRONLEDGER_WEB_TOKENS: is not set"),
        (("--auth", "proxy"), "CRONLEDGER_WEB_PROXY_PEERS: is not set"),
    ],
)
def test_what_would_be_open_or_useless_is_refused(
    start: Start, arguments: tuple[str, ...], text: str
) -> None:
    run = start(*arguments)
    assert run.end() == 2
    assert text in run.err and "Traceback" not in run.err


def test_a_database_without_a_ledger_is_refused(start: Start, empty_database_url: str) -> None:
    run = start("--listen", "127.0.0.1:0", CRONLEDGER_DATABASE_URL=empty_database_url)
    assert run.end() == 4
    assert "run `cronledger migrate`" in run.err


def test_the_page_waits_for_a_database_that_is_away(
    start: Start, database_url: str, databases: Databases
) -> None:
    run = start(
        "--listen", "127.0.0.1:0",
        CRONLEDGER_WEB_READ_URL="host=127.0.0.1 port=1 dbname=none",
    )  # fmt: skip
    page = httpx2.get(address(run), timeout=60).raise_for_status().text
    assert "The database does not respond." in page
    assert "This page has read nothing yet." in page


@pytest.mark.own_database  # its database is renamed
def test_a_refused_connection_ends_the_start(
    start: Start, database_url: str, databases: Databases
) -> None:
    name = sql.Identifier(str(conninfo_to_dict(database_url)["dbname"]))
    with psycopg.connect(databases.url("postgres"), autocommit=True) as c:
        c.execute(sql.SQL("ALTER DATABASE {} RENAME TO gone_for_now").format(name))
        try:
            run = start("--listen", "127.0.0.1:0")
            assert run.end() == 2
        finally:
            c.execute(sql.SQL("ALTER DATABASE gone_for_now RENAME TO {}").format(name))
    assert "does not exist" in run.err


def test_two_logins_need_no_third_one(start: Start, database_url: str, logins: Logins) -> None:
    run = start(
        "--listen", "127.0.0.1:0",
        CRONLEDGER_DATABASE_URL="",
        CRONLEDGER_WEB_READ_URL=logins.url(database_url, "viewer"),
        CRONLEDGER_WEB_ACT_URL=logins.url(database_url, "operator"),
    )  # fmt: skip
    assert "Overdue" in httpx2.get(address(run), timeout=60).raise_for_status().text


def test_the_command_serves_below_a_prefix(start: Start) -> None:
    run = start("--listen", "127.0.0.1:0", CRONLEDGER_WEB_PREFIX="/ops/cron")
    url = address(run)
    assert url.endswith("/ops/cron/")
    assert '"/ops/cron/static/page.css"' in httpx2.get(url, timeout=60).raise_for_status().text
    assert httpx2.get(url.replace("/ops/cron/", "/"), timeout=60).status_code == 404
    run.signal(signal.SIGTERM)
    assert run.end() == 0
