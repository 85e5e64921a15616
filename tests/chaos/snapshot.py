"""A ledger of its own on the same server, whose database is put back to a snapshot while its
replicas run."""

import json
import random
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from psycopg import errors
from psycopg.conninfo import make_conninfo

from cronledger.ledger.migrate import migrate
from cronledger.rules.problems import Exit
from tests.chaos.fleet import Fleet
from tests.chaos.world import World
from tests.cluster.support.harness import ROOT
from tests.processes import clean_environ

NAME: LiteralString = "side"
COPY: LiteralString = "side_snapshot"
PATIENCE = 180.0
PASSING = (psycopg.OperationalError, errors.ObjectInUse, errors.ReadOnlySqlTransaction)
"""Errors of the other faults, which end by themselves."""
TICK: LiteralString = """
INSERT INTO cronledger.jobs (name, schedule, handler, target, stale_timeout)
VALUES ('tick', '*/5 * * * * *', 'sql', '{"sql": "SELECT 1"}', '6 s')
ON CONFLICT (name) DO NOTHING"""
SEEN: LiteralString = """
SELECT count(*) FROM cronledger.executions
WHERE job_name = 'tick' AND status = 'SUCCESS' AND revision = %s AND started_at > %s"""


def restore_snapshot(world: World, draw: random.Random) -> None:
    """Snapshot, edit, restore, accept, and another edit with the number of the one that is gone.

    Two replicas live through all of it. They have to follow what the ledger says at each time, and
    `verify` has to agree.
    """
    side = _Side(world)
    try:
        side.begin()
        side.runs_by(1)
        side.copy(NAME, COPY)
        side.edit("* * * * * *")
        side.runs_by(2)
        time.sleep(draw.uniform(0, 2))
        side.copy(COPY, NAME)
        side.cronledger("accept-database", "--catch-up")
        side.runs_by(1)
        side.edit("*/2 * * * * *")
        side.runs_by(2)
        side.verify()
    finally:
        side.end()


class _Side:
    """The ledger and its two replicas. The server may be away at any time: each step is repeated
    until it is done."""

    def __init__(self, world: World) -> None:
        self._world = world
        directory = Path(world.directory) / "side"
        directory.mkdir(exist_ok=True)
        self._fleet = Fleet(directory, directory / "marks")
        self._dsn = make_conninfo(world.dsn, dbname=NAME)

    def begin(self) -> None:
        self._repeat("the side ledger is made", self._make)
        for name in ("side-a", "side-b"):
            member = self._fleet.replica(name, self._dsn)
            member.argv = [
                str(Path(sys.executable).parent / "cronledger"), "run", "tests.chaos.side:app",
                "--no-migrate", "--wait", "10m",
            ]  # fmt: skip
            self._fleet.start(member)
        self._repeat("the replicas run", self._started)

    def _started(self) -> bool:
        """Both replicas have started. One whose start met another fault is started again. After a
        failover before their first check-in nobody has been seen on the timeline of the ledger, so
        that it has to be accepted as after a restore."""
        members = self._fleet.members.values()
        for member in members:
            code = None if member.popen is None else member.popen.poll()
            if code == Exit.OTHER_DATABASE:
                self.cronledger("accept-database", "--catch-up")
            if code == Exit.OTHER_DATABASE or (code in (1, 3) and not member.has_started):
                self._fleet.start(member)
        return all(member.has_started for member in members)

    def _make(self) -> bool:
        for name in (NAME, COPY):
            self._world.sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        self._world.sql(f"CREATE DATABASE {NAME}")
        migrate(self._dsn)
        self._sql(TICK)
        return True

    def copy(self, source: LiteralString, target: LiteralString) -> None:
        """The database `target` is a copy of `source`; nobody stays connected to either."""

        def done() -> bool:
            self._world.sql(f"DROP DATABASE IF EXISTS {target} WITH (FORCE)")
            try:
                self._world.sql(f"ALTER DATABASE {source} WITH ALLOW_CONNECTIONS false")
                self._world.sql(
                    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                    " WHERE datname = %s", source,
                )  # fmt: skip
                self._world.sql(f"CREATE DATABASE {target} TEMPLATE {source}")
            finally:
                self._world.sql(f"ALTER DATABASE {source} WITH ALLOW_CONNECTIONS true")
            return True

        self._repeat(f"{target} is a copy of {source}", done)

    def edit(self, schedule: str) -> None:
        statement: LiteralString = (
            "UPDATE cronledger.jobs SET schedule = %s WHERE name = 'tick' AND schedule <> %s"
        )
        self._repeat("the edit", lambda: self._sql(statement, schedule, schedule) or True)

    def runs_by(self, revision: int) -> None:
        """Executions of that revision succeed that start from now on, and none of another."""
        ((now,),) = self._repeat("now", lambda: self._sql("SELECT cronledger.db_now()"))
        self._repeat(
            f"the replicas run by revision {revision}",
            lambda: self._sql(SEEN, revision, now)[0][0] >= 2,
        )
        newest: LiteralString = (
            "SELECT revision FROM cronledger.executions WHERE job_name = 'tick'"
            " ORDER BY plan_time DESC LIMIT 1"
        )
        ((found,),) = self._repeat("the newest", lambda: self._sql(newest))
        if found != revision:
            self._world.failures.append(
                f"snapshot: the newest execution is of revision {found}, not {revision}"
            )

    def verify(self) -> None:
        report = json.loads(self.cronledger("verify", "--json"))
        if report["violations"]:
            self._world.failures.append(f"snapshot: {report['violations'][:3]}")

    def cronledger(self, *arguments: str) -> str:
        """What the command printed, once it ended with 0 or 1."""
        command = [str(Path(sys.executable).parent / "cronledger"), *arguments]
        environ = {**clean_environ(), "CRONLEDGER_DATABASE_URL": self._dsn}

        def done() -> str | None:
            ended = subprocess.run(
                command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False,
                timeout=PATIENCE,
            )  # fmt: skip
            return ended.stdout or "{}" if ended.returncode in (0, 1) else None

        return str(self._repeat(" ".join(arguments), done))

    def end(self) -> None:
        """The replicas drained well, and the databases are gone."""
        for member in self._fleet.members.values():
            if member.popen is not None and member.popen.poll() is not None:
                self._world.failures.append(
                    f"snapshot: {member.name} ended by itself: {member.popen.returncode}"
                )
        self._repeat("the server answers", lambda: self._world.sql("SELECT 1"))
        self._world.failures += [f"snapshot: {bad}" for bad in self._fleet.end()]
        self._fleet.close()
        for name in (NAME, COPY):
            self._repeat(
                f"{name} is gone",
                lambda name=name: (
                    self._world.sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)") or True
                ),
            )

    def _sql(self, statement: LiteralString, *values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._dsn, autocommit=True, connect_timeout=5) as c:
            cursor = c.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []

    def _repeat(self, what: str, step: Any) -> Any:
        give_up_at = time.monotonic() + PATIENCE
        while True:
            with suppress(*PASSING):
                if found := step():
                    return found
            assert time.monotonic() < give_up_at, f"not within {PATIENCE} s: {what}"
            time.sleep(0.2)
