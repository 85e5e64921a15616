"""What the kill points need: the worlds in which a process is killed, and how the ledger is judged.

A world is a ledger in which one step sends each of its statements. It is built once and cloned for
each kill. After the kill an heir takes over on travelled time, until nothing runs or waits.
"""

import ast
import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from cronledger.audit.verify import verify
from cronledger.ledger.statements import Statements
from cronledger.rules import outcome
from cronledger.sources.apply import apply
from tests.cluster import killed
from tests.cluster.harness import ROOT, clean_environ, until
from tests.cluster.marks import read
from tests.db.engine import LONG_AGO, Ledger, Runner
from tests.travel import Travel

ENGINE = ("claim", "steal", "refused", "unknown", "finish", "sweep")
WHOLE = ("drain", "transaction")

SOURCES = (
    "engine/claim.py", "engine/revisions.py", "engine/finisher.py", "engine/sweeper.py",
    "engine/dispatcher.py", "engine/draining.py",
)  # fmt: skip
"""Whoever sends the statements of claim, finish, steal, sweep and drain."""


class Point(NamedTuple):
    """The `at`-th statement of a step, which is `name`; `when`: before, sent, after."""

    step: str
    at: int
    name: str
    when: str

    def __str__(self) -> str:
        return f"{self.step}: {self.when} {self.at} {self.name}"


def points(step: str, seen: Sequence[str]) -> list[Point]:
    """Once before and once after each statement; a COMMIT also between being sent and answered."""
    found = []
    for at, name in enumerate(seen):
        whens = ("before", "sent", "after") if name == "COMMIT" else ("before", "after")
        found += [Point(step, at, name, when) for when in whens]
    return found


def statements_of_the_steps() -> set[str]:
    """The files of `sql/` that the sources of the steps name: read, so that no list goes stale."""
    methods = {name for name in vars(Statements) if not name.startswith("_")}
    found = set()
    for source in SOURCES:
        tree = ast.parse((ROOT / "src" / "cronledger" / source).read_text())
        found |= {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)} & methods
    return found


class Killer:
    """The warm process that forks those that are killed."""

    def __init__(self, log: Path) -> None:
        self._log = log.open("w")
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from tests.cluster.killed import main; main()"],
            cwd=ROOT, env=clean_environ(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self._log, text=True,
        )  # fmt: skip

    def order(self, step: str, url: str, marks: Path, point: Point | None = None) -> dict[str, Any]:
        """Let a process do the step, and be killed at `point`; what it told."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = {"step": step, "url": url, "marks": str(marks)}
        if point is not None:
            order |= {"at": point.at, "when": point.when}  # type: ignore[dict-item]
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()
        self._log.close()


# -- worlds ----------------------------------------------------------------------------------------

CRON = "* * * * *"


def build(step: str, url: str) -> None:
    """A world for the step in the fresh ledger `url`."""
    travel = Travel(url)
    ledger = Ledger(url, travel)
    tomorrow = (travel.now() + timedelta(days=1)).replace(hour=12, minute=0, second=30)
    travel.travel(to=tomorrow)
    try:
        if step in WHOLE:
            apply(url, [*killed.app.jobs.values()], source=killed.NAME)
            ledger.rows("CREATE TABLE public.effects (id bigint)")
            kind = "drained" if step == "drain" else "effect"
            for name in killed.app.jobs:
                if name.startswith(kind):
                    ledger.trigger(name)
        elif step == "refused":
            travel.travel(by=timedelta(days=40))  # no partition is so far ahead
            for name in ("bad", "good"):
                ledger.job(name, schedule=CRON)
            ledger.rows(
                "ALTER TABLE executions ADD CONSTRAINT of_this_site"
                " CHECK (job_name <> 'bad' OR status <> 'RUNNING')"
            )
            travel.travel(by=timedelta(minutes=1))
        else:
            asyncio.run(_busy(url, ledger))
    finally:
        ledger.close()
        travel.close()


async def _busy(url: str, ledger: Ledger) -> None:
    """Something of each kind, held by a runner that is gone."""
    ledger.job("plain", schedule=CRON)
    ledger.job("again", schedule=CRON, allow_stale_reentry=True)
    ledger.job("ext", schedule=CRON, handler="external", target={})
    ledger.job(
        "limited", schedule=CRON, max_running=1, scope_kind="shard", scopes=["a", "b"],
        allow_stale_reentry=True, overlap="wait",
    )  # fmt: skip
    ledger.rows("INSERT INTO queues (name, max_running) VALUES ('narrow', 1)")
    ledger.job("queued", schedule=CRON, queue="narrow")
    ledger.job("swap", schedule=CRON, overlap="replace", stale_timeout="1 h")
    ledger.job("blocked", schedule=CRON, stale_timeout="1 h")
    ledger.job("elsewhere", schedule=CRON, target={"function": "tests:nobody"})
    ledger.job("command", schedule=CRON, handler="command", target={"argv": ["true"]})
    ledger.job("pushed", schedule=None, allow_stale_reentry=True)
    ledger.job("failed", schedule=None, max_attempts=3, retry_backoff=["0 s"])
    ledger.job("stale_again", schedule=None, allow_stale_reentry=True, stale_timeout="5 s")
    ledger.job("stale_once", schedule=None, stale_timeout="5 s", overlap="wait")
    ledger.job("orphan", schedule=None, max_attempts=2)
    ledger.job("dozing", schedule=CRON)
    for name in ("swap", "blocked", "failed", "stale_again", "stale_once", "orphan"):
        ledger.trigger(name)
    gone = Runner(url, "gone")
    await gone.open()
    for start in await gone.settle():
        name = start.claimed.key.job_name
        if name == "orphan":
            ledger.rows("SELECT retire('orphan')")
        if name in ("orphan", "failed"):
            await gone.finish(start, outcome.failure(ValueError("no")))
    await gone.close()
    ledger.rows("SELECT enqueue('pushed', watermark => 5)")
    ledger.rows("SELECT pause('dozing', until => db_clock() + interval '20 s')")
    ledger.rows(
        "INSERT INTO runners (id, host, pid, version, state, queues, slots, stale_after)"
        " VALUES ('old', 'h', 1, '1', 'running', '{}', 1, db_now() - interval '2 days')"
    )
    ledger.clock.travel(by=timedelta(seconds=61))


# -- the heir --------------------------------------------------------------------------------------


@dataclass
class Heir:
    """What takes over after the kill, on travelled time, and what it started."""

    url: str
    connection: psycopg.Connection[Any]
    started: Counter[int] = field(default_factory=Counter)
    looked_at: datetime | None = None

    def travel(self, seconds: float) -> None:
        """Time has passed; everything due by `looked_at` is looked at from here on."""
        self.connection.execute(
            "UPDATE cronledger.time_travel SET ahead = ahead + %s", [timedelta(seconds=seconds)]
        )
        ((self.looked_at,),) = self.rows("SELECT cronledger.db_now()")

    def rows(self, statement: str, *values: object) -> list[Any]:
        return self.connection.execute(statement.encode(), values or None).fetchall()

    async def take_over(self, step: str) -> None:
        """Nothing is RUNNING, PENDING or awaits a retry; what is due has run."""
        await (self._whole() if step in WHOLE else self._parts())

    async def _parts(self) -> None:
        runner = Runner(self.url, "heir", queues=killed.QUEUES)
        await runner.open()
        for seconds in (70, 7200, 70):
            self.travel(seconds)
            await runner.repair()
            await runner.steal()
            while runner.held or await runner.settle():
                for start in list(runner.held):
                    self.started[start.claimed.id] += 1
                    runner.put(start)
                while runner.finisher.waiting:
                    await runner.finisher.step()
            for execution, token in self.rows(
                "SELECT id, lease_token FROM cronledger.claim_next('default', 'worker', 100)"
            ):
                self.started[execution] += 1
                self.rows("SELECT cronledger.finish(%s, %s)", execution, token)
        await runner.close()

    async def _whole(self) -> None:
        replica = killed.whole(self.url, "heir")
        async with replica:
            for seconds in (0, 70, 10):
                self.travel(seconds)
                await replica._pulse()  # it sees the clock leap
                replica._parts.clock._trusted_since = LONG_AGO
                replica._parts.dispatcher.steal_at = LONG_AGO
                for ran in await replica.step():
                    self.started[ran.execution_id] += 1


def judge(heir: Heir, marks: Path) -> None:
    """Nothing is missing, doubled or left; no work ran again that must not, and none was lost."""
    assert not heir.rows(
        "SELECT id, job_name, status, runner_id, stale_after, next_attempt_at"
        " FROM cronledger.executions WHERE status = 'RUNNING' OR next_attempt_at IS NOT NULL"
    )
    assert not heir.rows("SELECT * FROM cronledger.violations")
    assert not list(verify(heir.connection))
    assert not heir.rows(
        "SELECT * FROM cronledger.schedules WHERE next_due_at <= %s", heir.looked_at
    )
    lines = read(marks.read_text()) if marks.exists() else []
    began = {m.execution for m in lines if m.what == "start"}
    ended = {m.execution for m in lines if m.what == "end"}
    for execution, reentrant, status in heir.rows(
        "SELECT e.id, j.allow_stale_reentry, e.status FROM cronledger.executions e"
        " JOIN cronledger.jobs j ON j.name = e.job_name WHERE e.id = ANY (%s)",
        list(began),
    ):
        if reentrant:
            assert status == "SUCCESS", (execution, status)
        elif execution not in ended:
            assert execution not in heir.started, execution
    _judge_effects(heir)


def _judge_effects(heir: Heir) -> None:
    ((there,),) = heir.rows("SELECT to_regclass('public.effects') IS NOT NULL")
    if there:
        assert not heir.rows(
            "SELECT e.id, e.status, count(f.id) FROM cronledger.executions e"
            " LEFT JOIN public.effects f ON f.id = e.id WHERE e.job_name LIKE 'effect%'"
            " GROUP BY e.id, e.status HAVING count(f.id) <> (e.status = 'SUCCESS')::integer"
        )


def alone(connection: psycopg.Connection[Any]) -> None:
    """The backends of the killed process have noticed its end: what it held is free."""
    until(
        "the killed process's backends are gone",
        lambda: (
            not connection.execute(
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
                " AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
            ).fetchall()
        ),
    )


def schema_of(connection: psycopg.Connection[Any]) -> tuple[Any, ...]:
    """What migrate has made, by name and text; equal for equal schemas."""
    found = connection.execute(
        "SELECT 'class', relkind::text || relname::text FROM pg_class"
        " WHERE relnamespace = to_regnamespace('cronledger')"
        " UNION ALL SELECT 'function', oid::regprocedure::text || prosrc FROM pg_proc"
        " WHERE pronamespace = to_regnamespace('cronledger')"
        " UNION ALL SELECT 'schema', nspname::text FROM pg_namespace WHERE nspname = 'cronledger'"
        " UNION ALL SELECT 'constraint', conname::text || conrelid::regclass::text"
        " FROM pg_constraint WHERE connamespace = to_regnamespace('cronledger')"
        " UNION ALL SELECT 'trigger', tgname::text || tgrelid::regclass::text FROM pg_trigger"
        " WHERE tgrelid IN (SELECT oid FROM pg_class"
        " WHERE relnamespace = to_regnamespace('cronledger')) AND NOT tgisinternal"
        " ORDER BY 1, 2"
    ).fetchall()
    return tuple(found)


def spread(found: Sequence[Point], every: int) -> list[Point]:
    """Every COMMIT between being sent and answered, and of the others every so many."""
    return [p for number, p in enumerate(found) if p.when == "sent" or number % every == 0]
