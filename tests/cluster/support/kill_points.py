"""What the kill points need: the worlds in which a process is killed, and how the ledger is judged.

A world is a ledger in which one step sends each of its statements. It is built once and cloned for
each kill. After the kill an heir takes over on travelled time, until nothing runs or waits.
"""

import ast
import asyncio
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from cronledger.audit.verify import verify
from cronledger.channels import Function
from cronledger.rules import outcome
from cronledger.sources.apply import apply
from tests import interruptions
from tests.cluster.support import killed_process
from tests.cluster.support.harness import ROOT
from tests.cluster.support.marks import read
from tests.cluster.support.watched_statements import ENDS_THERE
from tests.db.support.engine import LONG_AGO, Ledger, Runner
from tests.processes import clean_environ
from tests.waiting import until

PACKAGE = ROOT / "src" / "cronledger"

ENGINE = (
    "heartbeat", "claim", "ahead", "steal", "refused", "unknown", "finish", "sweep", "gates",
    "alerts", "deliver",
)  # fmt: skip
WHOLE = ("drain", "transaction", "answer_lost", "commit_lost", "scopes", "deploy")

SOURCES = ("engine/**/*.py", "replica.py", "sources/apply.py")
"""Whoever sends what a replica sends. LISTEN changes nothing, and the rest of `sql/` neither: see
`writers`. What clients change is one call of a function each, and so all or nothing."""


class Point(NamedTuple):
    """The `nth` statement called `name` of a step; `when`: before, sent, after. Or the place `name`
    between the statements of a function, at which the backend ends too; `when`: inside.

    Not its place among all statements: what happens to be under way elsewhere (a heartbeat, say)
    can make a step send some statements once more. `at` is its place in the recorded run.
    """

    step: str
    at: int
    name: str
    nth: int
    when: str

    def __str__(self) -> str:
        return f"{self.step}: {self.when} {self.name} ({self.nth}; {self.at} of all)"


def points(step: str, seen: Sequence[str]) -> list[Point]:
    """Once before and once after each statement; a COMMIT also between being sent and answered.

    Of a place in a function, once.
    """
    found, count = [], Counter[str]()
    for at, name in enumerate(seen):
        if name.startswith(interruptions.FUNCTIONS) and name not in files():
            found.append(Point(step, at, name, 1, "inside"))
            continue
        count[name] += 1
        whens = ("before", "sent", "after") if name == "COMMIT" else ("before", "after")
        found += [Point(step, at, name, count[name], when) for when in whens]
    return found


def files() -> dict[str, str]:
    """The files of `sql/` by name, without comments and literals."""
    found = (PACKAGE / "ledger" / "sql").glob("*.sql")
    return {file.stem: re.sub(r"--[^\n]*|'[^']*'", "", file.read_text()) for file in found}


def writers(connection: psycopg.Connection[Any]) -> set[str]:
    """The files of `sql/` that change or lock something, or call a function that may.

    Not those of clients, `call_*`: each is one call, or several in one transaction.
    """
    volatile = connection.execute(
        "SELECT proname FROM pg_proc WHERE pronamespace::regnamespace::text ~ '^cronledger'"
        " AND provolatile = 'v' AND proname <> 'db_clock'"
    )
    words = {"INSERT", "UPDATE", "DELETE", "MERGE", "SHARE", *(f"{name}(" for (name,) in volatile)}
    return {
        name
        for name, text in files().items()
        if not name.startswith("call_") and words & set(re.findall(r"\w+\(?", text))
    }


def statements_of_the_steps() -> set[str]:
    """The files of `sql/` that the sources of the steps name: read, so that no list goes stale.

    A method of `Statements` has the name of its file; `text` and the like are given it as a string.
    """
    found = set()
    for source in (path for pattern in SOURCES for path in PACKAGE.glob(pattern)):
        tree = ast.parse(source.read_text())
        found |= {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
        found |= {str(n.value) for n in ast.walk(tree) if isinstance(n, ast.Constant)}
    return found & files().keys()


class Killer:
    """The warm process that forks those that are killed_process."""

    def __init__(self, log: Path) -> None:
        self._log = log.open("w")
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from tests.cluster.support.killed_process import main; main()"],
            cwd=ROOT, env=clean_environ(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self._log, text=True,
        )  # fmt: skip

    def order(self, step: str, url: str, marks: Path, point: Point | None = None) -> dict[str, Any]:
        """Let a process do the step, and be killed at `point`; what it told."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order: dict[str, Any] = {"step": step, "url": url, "marks": str(marks)}
        if point is not None:
            order |= {"name": point.name, "nth": point.nth, "when": point.when}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(90)
        self._process.stdout.close()
        self._log.close()


# -- worlds ----------------------------------------------------------------------------------------

CRON = "* * * * *"
EFFECT = "INSERT INTO public.effects SELECT current_setting('cronledger.execution_id')::bigint"


def build(step: str, url: str) -> None:
    """A world for the step in the fresh ledger `url`."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE public.reached (place text)")
        interruptions.install(connection, ENDS_THERE)
    ledger = Ledger(url)
    ledger.travel(to=(ledger.now() + timedelta(days=1)).replace(hour=12, minute=0, second=30))
    try:
        if step in WHOLE:
            _whole(step, url, ledger)
        elif step == "ahead":
            ledger.job("plain", schedule=CRON)
        elif step == "gates":
            asyncio.run(_gated(url, ledger))
        elif step in ("alerts", "deliver"):
            _alerting(ledger)
            if step == "deliver":
                ledger.values("SELECT cronledger_internal.raise_alerts(1000)")
                ledger.values("SELECT test_channel('slow', '1 day')")
                ledger.values("UPDATE deliveries SET max_attempts = 10")
        elif step == "refused":
            ledger.travel(by=timedelta(days=40))
            for name in ("bad", "good"):
                ledger.job(name, schedule=CRON)
            ledger.values(
                "ALTER TABLE executions ADD CONSTRAINT of_this_site"
                " CHECK (job_name <> 'bad' OR status <> 'RUNNING')"
            )
            ledger.travel(by=timedelta(minutes=1))
            ledger.values(  # travel has created it
                "SELECT cronledger_internal.drop_partition(name) FROM partitions()"
                " WHERE db_now() BETWEEN from_plan_time AND before_plan_time"
            )
        else:
            asyncio.run(_busy(url, ledger))
    finally:
        ledger.close()


def _whole(step: str, url: str, ledger: Ledger) -> None:
    """What replicas of the apps have applied, and left waiting."""
    if step == "deploy":
        older, visitor = killed_process.older, killed_process.visitor
        # A channel that the newer version drops.
        channel = {"ops": Function(python="killed:accept")}
        apply(url, [*older.jobs.values()], channels=channel, source="plugged", deploy=older.deploy)
        apply(url, [*visitor.jobs.values()], channels=visitor.channels, source="visitor",
              deploy=visitor.deploy)  # fmt: skip
        waiting = ["gone", "visiting"]
    elif step == "scopes":
        apply(url, [*killed_process.scoped.jobs.values()], source="scoped")
        ledger.values("SELECT cronledger_internal.set_scopes('scoped', 'shard', ARRAY['a', 'b'])")
        ledger.travel(by=timedelta(minutes=2))
        waiting = []
    else:
        apply(url, [*killed_process.app.jobs.values()], source=killed_process.NAME)
        ledger.values("CREATE TABLE public.effects (id bigint)")
        ledger.job(
            "effect_sql", handler="sql", allow_stale_reentry=True, max_attempts=2,
            retry_backoff=["1 m"], target={"sql": EFFECT},
        )  # fmt: skip
        kind = "drained" if step == "drain" else "effect"
        waiting = [name for name in ledger.values("SELECT name FROM jobs") if name.startswith(kind)]
    for name in waiting:
        ledger.trigger(name)


def _alerting(ledger: Ledger) -> None:
    """A job that has failed, a channel that gets its alerts, and one that does not end."""
    for channel, function in (("ops", "accept"), ("slow", "hang")):
        ledger.channel(channel, kind="python", python=f"{killed_process.__name__}:{function}")
    ledger.job("broken", schedule=None, handler="external", target={})
    ledger.values("""UPDATE jobs SET notify = '[{"channel": "ops"}]' WHERE name = 'broken'""")
    ledger.trigger("broken")
    ledger.values("SELECT fail(id, lease_token, 'failed', 'no') FROM claim_next('default', 'w')")


async def _gated(url: str, ledger: Ledger) -> None:
    """Jobs that require others: one of these has succeeded, and one will never do so."""
    ledger.job("extract", schedule=CRON, overlap="allow")
    ledger.job("broken", schedule=CRON, overlap="allow")
    ledger.job("load", schedule=CRON, requires=[{"job": "extract", "scope": "same"}])
    ledger.job("given_up", schedule=CRON, requires=[{"job": "broken", "scope": "same"}])
    ledger.job("later", schedule=CRON, wait_at_most="1 h", requires=[
        {"job": "extract", "scope": "same"}, {"job": "broken", "scope": "same"}])  # fmt: skip
    before = Runner(url, "before")
    await before.open()
    await before.settle()
    ledger.travel(by=timedelta(seconds=61))
    for start in await before.settle():
        bad = start.claimed.key.job_name == "broken"
        ended = outcome.failure(ValueError("no")) if bad else None
        before.put(start, ended)
    while before.finisher.waiting:
        await before.finisher.step()
    await before.close()
    ledger.travel(by=timedelta(seconds=61))


async def _busy(url: str, ledger: Ledger) -> None:
    """Something of each kind, held by a runner that is gone, an hour to be counted and redacted."""
    ledger.job("earlier", schedule=None, keep_output="1 h", payload='"personal"')
    ledger.values("SELECT cancel(%s)", ledger.trigger("earlier"))
    ledger.travel(by=timedelta(hours=2))
    ledger.values("SELECT set_calendar('open', '{}', (db_now() + interval '9 years')::date)")
    ledger.job("plain", schedule=CRON, start_by="5s", finish_by="10s", calendar="open")
    ledger.job("again", schedule=CRON, allow_stale_reentry=True, windows=True)
    ledger.job("ext", schedule=CRON, handler="external", target={}, windows=True)
    ledger.job(
        "limited", schedule=CRON, max_running=1, scope_kind="shard", scopes=["a", "b"],
        allow_stale_reentry=True, overlap="wait", windows=True,
    )  # fmt: skip
    ledger.values("INSERT INTO queues (name, max_running) VALUES ('narrow', 1)")
    ledger.job("queued", schedule=CRON, queue="narrow")
    ledger.job("swap", schedule=CRON, overlap="replace", stale_timeout="1 h")
    ledger.job("blocked", schedule=CRON, stale_timeout="1 h")
    ledger.job("elsewhere", schedule=CRON, target={"python": "tests:nobody"})
    ledger.job("command", schedule=CRON, handler="command", target={"command": ["true"]})
    ledger.job("pushed", schedule=None, allow_stale_reentry=True)
    ledger.job("failed", schedule=None, max_attempts=3, retry_backoff=["0 s"], windows=True)
    ledger.job(
        "stale_again", schedule=None, allow_stale_reentry=True, stale_timeout="5 s", windows=True
    )
    ledger.job("stale_once", schedule=None, stale_timeout="5 s", overlap="wait")
    ledger.job("orphan", schedule=None, max_attempts=2)
    ledger.job("dozing", schedule=CRON)
    ledger.job("unready", schedule=CRON, allow_stale_reentry=True)
    ledger.job("planned", schedule=CRON)
    ledger.job("seen", schedule=CRON, handler="observed", target={})
    ledger.values("SELECT skip('plain', db_clock() + interval '1 day', 'stocktaking')")
    for name in ("swap", "blocked", "failed", "stale_again", "stale_once", "orphan"):
        ledger.trigger(name)
    gone = Runner(url, "gone")
    await gone.open()
    for start in await gone.settle():
        name = start.claimed.key.job_name
        if name == "orphan":
            ledger.values("SELECT retire('orphan')")
        if name in ("orphan", "failed"):
            await gone.finish(start, outcome.failure(ValueError("no")))
    await gone.close()
    ledger.values("SELECT enqueue('pushed', watermark => 5)")
    ledger.values("SELECT pause('dozing', until => db_clock() + interval '20 s')")
    ledger.values(
        "SELECT plan_pause('night', db_clock() + interval '20 s', db_clock() + interval '2 min',"
        " job => 'planned')"
    )
    ledger.values(
        "INSERT INTO runners (id, host, pid, version, state, queues, slots, stale_after)"
        " VALUES ('old', 'h', 1, '1', 'running', '{}', 1, db_now() - interval '2 days')"
    )
    ledger.values("SELECT observe_end('seen')")
    ledger.job("flaps", schedule=CRON, scope_kind="shard", scopes=["a"])
    for scopes in ([], ["a"]):
        ledger.edit("flaps", scopes=scopes)
    ledger.job("rotate", schedule=CRON, scope_kind="host", scopes=["away"])
    ledger.edit("rotate", scopes=[])
    ledger.travel(by=timedelta(seconds=61))


# -- the heir --------------------------------------------------------------------------------------


UNMARKED = "finished_at IS NOT NULL AND next_attempt_at IS NULL AND changed_xact IS NULL"


class Heir(Ledger):
    """What takes over after the kill, on travelled time, and what it started."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.started: Counter[int] = Counter()
        self.looked_at: datetime | None = None

    def leave_behind(self, seconds: float) -> None:
        """Time has passed; everything due by `looked_at` is looked at from here on."""
        self.looked_at = self.travel(by=timedelta(seconds=seconds))

    async def take_over(self, step: str) -> None:
        """Nothing is RUNNING, PENDING or awaits a retry; what is due has run."""
        await (self._whole(step) if step in WHOLE else self._parts())

    async def _parts(self) -> None:
        runner = Runner(self.url, "heir", queues=killed_process.QUEUES)
        await runner.open()
        for seconds in (70, 7200, 70):
            self.leave_behind(seconds)
            await runner.repair()
            await runner.steal()
            while runner.held or await runner.check_gates() or await runner.settle():
                for start in list(runner.held):
                    self.started[start.claimed.id] += 1
                    runner.put(start)
                while runner.finisher.waiting:
                    await runner.finisher.step()
            self.values("SELECT cronledger_internal.raise_alerts(1000)")
            for execution, token in self.values(
                "SELECT id, lease_token FROM cronledger.claim_next('default', 'worker', 100)"
            ):
                self.started[execution] += 1
                self.values("SELECT cronledger.finish(%s, %s)", execution, token)
            runner.trust()
            await killed_process.deliveries_of(runner).run_all()
        await runner.close()

    async def _whole(self, step: str) -> None:
        make = killed_process.plugged if step == "deploy" else killed_process.whole
        async with make(self.url, "heir") as replica:
            if step == "deploy":
                self.leave_behind(70)  # what the killed one had is nobody's any more
                await replica.register(killed_process.visitor)
                await replica.unregister(killed_process.visitor)
            for seconds in (0, 70, 10):
                self.leave_behind(seconds)
                await replica._runtime.components.check_ins.step()  # it sees the clock leap
                replica._runtime.components.clock.trusted_since = LONG_AGO
                replica._runtime.components.dispatcher.steal_at = LONG_AGO
                for ran in await replica.step():
                    self.started[ran.execution_id] += 1


def judge_looks(heir: Heir, step: str) -> None:
    """Before an heir comes: whose COMMIT landed has ended, and so has, but for the last one, whose
    COMMIT was found missing."""
    running = heir.one("SELECT count(*) FROM executions WHERE status = 'RUNNING'")
    assert running <= {"answer_lost": 0, "commit_lost": 1}.get(step, running), running


def judge(heir: Heir, step: str, marks: Path) -> None:
    """Nothing is missing, doubled or left; no work ran again that must not, and none was lost."""
    assert not heir.values(
        "SELECT id, job_name, status, runner_id, stale_after, next_attempt_at"
        " FROM cronledger.executions WHERE status IN ('PENDING', 'RUNNING')"
        " OR next_attempt_at IS NOT NULL"
    )
    assert not heir.values("SELECT * FROM cronledger.violations")
    assert not list(verify(heir.url))
    assert not heir.values(
        "SELECT * FROM cronledger.schedules WHERE next_due_at <= %s", heir.looked_at
    )
    lines = read(marks.read_text()) if marks.exists() else []
    began = {m.execution for m in lines if m.what == "start"}
    ended = {m.execution for m in lines if m.what == "end"}
    for execution, reentrant, status in heir.values(
        "SELECT e.id, j.allow_stale_reentry, e.status FROM cronledger.executions e"
        " JOIN cronledger.jobs j ON j.name = e.job_name WHERE e.id = ANY (%s)",
        list(began),
    ):
        if reentrant or step == "answer_lost":
            assert status == "SUCCESS", (execution, status)
        if not reentrant and execution not in ended:
            assert execution not in heir.started, execution
    assert not heir.values("SELECT * FROM cronledger.output_chunks")
    _judge_effects(heir)
    _judge_definitions(heir, step)
    _judge_hours(heir, step)
    _judge_alerts(heir, step)
    _judge_deadlines(heir, step)


def _judge_effects(heir: Heir) -> None:
    there = heir.one("SELECT to_regclass('public.effects') IS NOT NULL")
    if there:
        assert not heir.values(
            "SELECT e.id, e.status, count(f.id) FROM cronledger.executions e"
            " LEFT JOIN public.effects f ON f.id = e.id WHERE e.job_name LIKE 'effect%'"
            " GROUP BY e.id, e.status HAVING count(f.id) <> (e.status = 'SUCCESS')::integer"
        )


def _judge_hours(heir: Heir, step: str) -> None:
    """All ends are known to the roll-up. The hour of a killed sweeper is counted and redacted."""
    assert not heir.values(f"SELECT * FROM cronledger.executions WHERE {UNMARKED}")
    if step != "sweep":
        return
    heir.values("SELECT cronledger_internal.mark_changed_hours('0', 20000)")
    heir.values("SELECT cronledger_internal.roll_up_hours(200)")
    counted = "SELECT cancelled FROM cronledger.execution_hours WHERE job_name = 'earlier'"
    assert heir.values(counted) == [1]
    while heir.one("SELECT unfinished FROM cronledger_internal.redact_outputs(200)"):
        pass
    redacted = "SELECT payload IS NULL FROM cronledger.executions WHERE job_name = 'earlier'"
    assert heir.values(redacted) == [True]


def _judge_alerts(heir: Heir, step: str) -> None:
    """The failure has raised one alert, which one delivery has; the state is open."""
    expected = [("failed", "opened", "SUCCESS")] if step in ("alerts", "deliver") else []
    found = "SELECT event, kind, delivery_status FROM cronledger.alerts"
    assert heir.values(found) == expected
    assert heir.values("SELECT event FROM cronledger.alert_states") == [row[0] for row in expected]
    deliveries = heir.values("SELECT status FROM cronledger.deliveries")
    assert deliveries == ["SUCCESS"] * (len(expected) + (step == "deliver"))


def _judge_deadlines(heir: Heir, step: str) -> None:
    """A killed sweeper has left no deadline unjudged. verify compares the breaches."""
    if step != "sweep":
        return
    assert not heir.values(
        "SELECT * FROM cronledger.unjudged_deadlines WHERE look_at <= %s", heir.looked_at
    )
    counted = heir.one("SELECT sum(met_late + missed) FROM cronledger.compliance")
    assert counted == heir.one("SELECT count(*) FROM cronledger.breaches") > 0


def _judge_definitions(heir: Heir, step: str) -> None:
    """The jobs and channels are those of the newest deploy, the scopes those of the provider."""
    if step == "deploy":
        assert heir.values("SELECT name FROM cronledger.channels") == []
        assert heir.values("SELECT name FROM cronledger.calendars") == ["weekdays"]
    expected = {
        "deploy": [(name, "global", "0 3 * * *") for name in ("fresh", "kept")],
        "scopes": [("scoped", scope, CRON) for scope in ("b", "c")],
    }
    live = heir.values(
        "SELECT s.job_name, s.scope_id, j.schedule FROM cronledger.schedules s"
        " JOIN cronledger.jobs j ON j.name = s.job_name"
        " WHERE j.source IN ('scoped', 'plugged', 'visitor') AND j.retired_at IS NULL"
        " AND s.retired_at IS NULL ORDER BY 1, 2"
    )
    assert live == expected.get(step, []), live


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
        " WHERE pronamespace::regnamespace::text ~ '^cronledger'"
        " UNION ALL SELECT 'schema', nspname::text FROM pg_namespace WHERE nspname ~ '^cronledger'"
        " UNION ALL SELECT 'constraint', conname::text || conrelid::regclass::text"
        " FROM pg_constraint WHERE connamespace = to_regnamespace('cronledger')"
        " UNION ALL SELECT 'trigger', tgname::text || tgrelid::regclass::text FROM pg_trigger"
        " WHERE tgrelid IN (SELECT oid FROM pg_class"
        " WHERE relnamespace = to_regnamespace('cronledger')) AND NOT tgisinternal"
        " ORDER BY 1, 2"
    ).fetchall()
    return tuple(found)


def spread(found: Sequence[Point], every: int) -> list[Point]:
    """Every COMMIT between being sent and answered, of the others every so many, and the last."""
    return [p for n, p in enumerate(found) if p.when == "sent" or n % every == 0 or p == found[-1]]
