"""The embedded PostgreSQL: one server for many processes, through every kind of death."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import psycopg
import pytest

from cronledger.embedded import binaries as binaries_module
from cronledger.embedded.postmaster import private_directory, server_pid
from cronledger.embedded.server import Binaries, Embedded, EmbeddedError, find_binaries
from tests.database import chosen_binaries, fast_directory, scratch_directory
from tests.waiting import until

FAST = {"fsync": "off", "full_page_writes": "off"}
NOBODY = 65534
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be root")


@pytest.fixture(scope="session")
def binaries() -> Binaries:
    return find_binaries(chosen_binaries())


@pytest.fixture(scope="session")
def initialised(binaries: Binaries) -> Iterator[Path]:
    """A directory with a stopped server's data, to be copied: initdb is the slow part."""
    parent = private_directory(fast_directory() / f"cronledger-tests-{os.geteuid()}")
    with scratch_directory(parent) as scratch:
        with Embedded(scratch / "initialised", binaries.directory, FAST):
            pass
        yield scratch / "initialised"


@dataclass
class Place:
    """A directory of an embedded server, and what runs in it."""

    base: Path
    binaries: Binaries

    def embedded(self, settings: Mapping[str, str] = FAST) -> Embedded:
        return Embedded(self.base, self.binaries.directory, settings)

    @property
    def data(self) -> Path:
        return self.base / f"postgres-{self.binaries.major}"

    def runs(self) -> bool:
        return server_pid(self.data) is not None

    def pid(self) -> int:
        pid = server_pid(self.data)
        assert pid is not None, "no server runs"
        return pid

    def discard(self) -> None:
        if self.runs():
            os.kill(self.pid(), signal.SIGQUIT)
            until("it has ended", lambda: not self.runs())
        shutil.rmtree(self.base, ignore_errors=True)


@pytest.fixture
def empty(initialised: Path, binaries: Binaries) -> Iterator[Place]:
    made = Place(initialised.with_name("base"), binaries)
    yield made
    made.discard()


@pytest.fixture
def place(initialised: Path, empty: Place) -> Place:
    """A place with the data of a stopped server."""
    shutil.copytree(initialised, empty.base)
    return empty


class User:
    """Another process that uses the server until it is told to end or is killed."""

    SCRIPT = """
        import sys
        from pathlib import Path
        from cronledger.embedded.server import Embedded

        settings = {"fsync": "off", "full_page_writes": "off"}
        with Embedded(Path(sys.argv[1]), Path(sys.argv[2]), settings) as embedded:
            print(embedded.start(), flush=True)
            sys.stdin.read()
    """

    def __init__(self, place: Place) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(self.SCRIPT), place.base,
             place.binaries.directory],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def dsn(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        self.process.communicate()
        assert self.process.returncode == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def _value(dsn: str, statement: str) -> object:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(statement.encode()).fetchone()
        assert row is not None
        return row[0]


@pytest.mark.long
def test_data_is_kept_between_runs_and_a_large_log_is_moved_away(place: Place) -> None:
    with place.embedded({}) as embedded:
        dsn = embedded.start()  # the second start of one object is the first one's
        with psycopg.connect(dsn) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 7 AS n")
        assert _value(dsn, "SHOW fsync") == "on"
        assert _value(dsn, "SHOW listen_addresses") == ""
        assert _value(dsn, "SHOW server_encoding") == "UTF8"
    assert not place.runs()
    embedded.close()
    log = place.data / "server.log"
    os.truncate(log, 10 * 1024 * 1024 + 1)
    with place.embedded() as embedded:
        assert _value(embedded.start(), "SELECT n FROM kept") == 7
        assert log.stat().st_size < 100_000
        assert log.with_name("server.log.1").stat().st_size > 10_000_000


def test_a_running_server_is_found_and_none_is_started(place: Place) -> None:
    other = place.embedded()
    with place.embedded() as embedded:
        assert other.running() == embedded.start()
    for stopped in (other, Embedded(place.base / "none")):
        with pytest.raises(EmbeddedError, match="no embedded PostgreSQL is running"):
            stopped.running()
    assert not place.runs() and not (place.base / "none").exists()


@pytest.mark.slow
def test_ten_processes_at_once_make_and_share_one_server(empty: Place) -> None:
    users = [User(empty) for _ in range(10)]
    dsns = {user.dsn() for user in users}
    assert len(dsns) == 1
    assert (empty.data / "server.log").read_text().count("starting Postgre") == 1
    for user in users[1:]:
        user.end()
    assert _value(dsns.pop(), "SELECT current_database()") == "cronledger"
    users[0].end()
    assert not empty.runs()


@pytest.mark.long
def test_the_server_of_a_killed_only_user_is_adopted_and_then_stopped(place: Place) -> None:
    user = User(place)
    dsn = user.dsn()
    pid = place.pid()
    user.kill()
    assert place.pid() == pid, "the server must outlive the process that launched it"
    with place.embedded() as embedded:
        assert embedded.start() == dsn
        assert place.pid() == pid
    assert not place.runs()


@pytest.mark.long
def test_a_killed_postmaster_is_replaced(place: Place) -> None:
    with place.embedded() as first, place.embedded() as second:
        with psycopg.connect(first.start()) as connection:  # its backend is orphaned by the kill
            connection.execute("CREATE TABLE kept AS SELECT 7 AS n")
            connection.commit()
            killed = place.pid()
            os.kill(killed, signal.SIGKILL)
            second.close()
            assert _value(second.start(), "SELECT n FROM kept") == 7
        assert place.pid() != killed
        assert _value(first.start(), "SELECT n FROM kept") == 7, "the old DSN reaches the new one"
    assert not place.runs()


@linux
@pytest.mark.long
def test_a_stale_pid_file_that_names_a_zombie_or_a_stranger_is_no_server(place: Place) -> None:
    pid_file = place.data / "postmaster.pid"
    with subprocess.Popen(["true"]) as zombie:
        until("it is a zombie", lambda: " Z " in Path(f"/proc/{zombie.pid}/stat").read_text())
        for pid in (zombie.pid, os.getppid()):
            for file in (pid_file, pid_file.with_name(".s.PGSQL.5432.lock")):
                file.write_text(f"{pid}\n{pid_file.parent}\n1\n5432\n{pid_file.parent}\n\n1 1\n")
            with place.embedded() as embedded:
                assert _value(embedded.start(), "SELECT 1") == 1
            assert not pid_file.exists()


@pytest.mark.long
def test_a_user_killed_during_initdb_leaves_nothing_half_made(empty: Place, tmp_path: Path) -> None:
    # An initdb that does not end before somebody removes its directory (its second argument).
    initdb = shlex.quote(str(empty.binaries.directory / "initdb"))
    (tmp_path / "initdb").write_text(
        f'#!/bin/sh\n{initdb} "$@"\nwhile [ -d "$2" ]; do sleep 0.1; done\n'
    )
    (tmp_path / "initdb").chmod(0o755)
    for program in ("pg_ctl", "postgres"):
        (tmp_path / program).symlink_to(empty.binaries.directory / program)
    user = User(Place(empty.base, Binaries(tmp_path, empty.binaries.version)))
    until("it is under way", lambda: list(empty.base.glob("postgres-*.new-*/base")))
    user.kill()
    assert not empty.data.exists()
    with empty.embedded() as embedded:
        assert _value(embedded.start(), "SELECT 1") == 1
        names = {path.name for path in empty.base.iterdir()}
        data = empty.data.name
        assert names == {data, f"{data}.users", "postgres.lock"}


@pytest.mark.long
def test_a_forked_copy_that_closes_is_not_the_last_user(place: Place) -> None:
    script = f"""
        import os
        from pathlib import Path
        from cronledger.embedded.server import Embedded

        embedded = Embedded(Path({str(place.base)!r}), Path({str(place.binaries.directory)!r}))
        embedded.start()
        child = os.fork()
        if child == 0:
            embedded.close()
            os._exit(0)
        os.waitpid(child, 0)
        print(os.path.exists("{place.data}/postmaster.pid"))
        embedded.close()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "True\n"
    assert not place.runs()


@linux
def test_the_postmaster_has_a_session_of_its_own_and_no_file_of_ours(place: Place) -> None:
    with place.embedded():
        pid = place.pid()
        assert os.getsid(pid) not in (0, os.getsid(0)), "Ctrl-C in our terminal would reach it"
        data = place.data
        opened = [path.readlink() for path in Path(f"/proc/{pid}/fd").iterdir()]
        files = {p for p in opened if p.is_absolute() and not p.is_relative_to("/dev/null")}
        files = {p for p in files if not p.name.startswith("faketime_")}  # of a dated run
        assert data / "server.log" in files
        assert all(path.is_relative_to(data) for path in files), files
        if os.geteuid() == 0:
            mapped = Path(f"/proc/{pid}/uid_map").read_text().split()
            assert mapped == [str(NOBODY), "0", "1"], "root runs it in a user namespace"
            assert data.stat().st_uid == 0


@pytest.mark.long
def test_a_path_too_long_for_a_socket_gets_a_short_private_one(
    initialised: Path, binaries: Binaries
) -> None:
    far = Place(initialised.with_name("x" * 100), binaries)
    shutil.copytree(initialised, far.base)
    sockets = None
    try:
        with far.embedded() as embedded:
            dsn = embedded.start()
            sockets = Path(unquote(dsn.split("host=")[1].split("&")[0]))
            assert not sockets.is_relative_to(far.base)
            assert sockets.stat().st_mode & 0o777 == 0o700
            assert _value(dsn, "SELECT 1") == 1
    finally:
        far.discard()
        if sockets is not None:
            sockets.rmdir()


def test_a_directory_of_sockets_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "link").symlink_to(tmp_path)
    for name in ("open", "link"):
        with pytest.raises(EmbeddedError, match="mode 0700: remove it"):
            private_directory(tmp_path / name)


@pytest.mark.long
def test_a_server_that_does_not_start_says_why(place: Place) -> None:
    with pytest.raises(EmbeddedError, match=r'did not start(.|\n)*"work_mem": "much"'):
        place.embedded({"work_mem": "much"}).start()
    with place.embedded() as embedded:
        assert _value(embedded.start(), "SELECT 1") == 1


@pytest.mark.long
def test_data_of_another_major_version_is_refused(place: Place) -> None:
    (place.data / "PG_VERSION").write_text("12\n")
    with pytest.raises(EmbeddedError, match=r"contains data of PostgreSQL 12, .* binaries in"):
        place.embedded().start()
    place.data.rename(place.base / "postgres-12")
    with pytest.raises(EmbeddedError, match=r"\(postgres-12\) .* come with cronledger\[embedded\]"):
        place.embedded().start()


def test_no_binaries_names_both_remedies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(EmbeddedError, match=r"no PostgreSQL server \(initdb, pg_ctl, postgres\)"):
        find_binaries(tmp_path)
    monkeypatch.setattr(binaries_module, "_PACKAGE", "no_such_package")
    monkeypatch.setattr(binaries_module, "_SYSTEM", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EmbeddedError, match=r"cronledger\[embedded\].*CRONLEDGER_DATABASE_URL"):
        find_binaries()


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path, binaries: Binaries) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EmbeddedError, match=r"directory .*/file/base cannot be used"):
        Embedded(tmp_path / "file" / "base", binaries.directory).start()


@root
def test_root_without_user_namespaces_is_told_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, binaries: Binaries
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    remedy = "as an ordinary user, or set CRONLEDGER_DATABASE_URL"
    with pytest.raises(EmbeddedError, match=rf"the program unshare.*{remedy}"):
        Embedded(tmp_path / "base", binaries.directory).start()
    unshare = tmp_path / "unshare"
    unshare.write_text("#!/bin/sh\necho 'unshare failed: Operation not permitted' >&2\nexit 1\n")
    unshare.chmod(0o755)
    with pytest.raises(EmbeddedError, match=rf"Operation not permitted.*{remedy}"):
        Embedded(tmp_path / "base", binaries.directory).start()
