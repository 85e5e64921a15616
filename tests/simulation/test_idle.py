"""An idle replica in virtual time: which statements it sends, and how soon it finds what nobody
announces. Notifications of what is written here reach nobody."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import astuple, dataclass
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from cronledger.declaring.app import Context
from cronledger.engine.maintenance.sweeper import EXAMINE_SECONDS, MAINTENANCE, SLACK_SECONDS
from cronledger.engine.runtime.assembly import LONGEST_REST
from cronledger.ledger import statements
from cronledger.settings import LISTENING_POLL, POLL, Settings
from tests.marks import first_fast
from tests.simulation.support.backend import Database
from tests.simulation.support.cluster import Cluster
from tests.simulation.support.jobs import FUNCTION
from tests.simulation.support.loop import virtual_loop
from tests.simulation.support.replica import SimReplica
from tests.simulation.support.run import replaced
from tests.simulation.support.scene import Scene

STATEMENTS = {file.stem for file in (Path(statements.__file__).parent / "sql").glob("*.sql")}
SEED = next(seed for seed in count() if not any(astuple(Scene.draw(seed))))
"""In which there is nothing but replicas and clients."""
STARTED = 50.0
"""Seconds after which a replica has done what it does at its start."""
LATE = 0.5
"""Seconds that a step and its statements may take."""
EXAMINED = EXAMINE_SECONDS + SLACK_SECONDS


class Idle:
    """One replica on a quiet network, and an operator."""

    def __init__(self, database: Database, cluster: Cluster, events: list[str]) -> None:
        self._database = database
        self.cluster = cluster
        self.events = events
        self.started: list[str] = []
        cluster.handlers.python = self._work  # type: ignore[method-assign]

    async def _work(self, context: Context) -> None:
        self.started.append(context.job)

    async def start(self, *, listens: bool) -> None:
        """Start the replica, and wait until it is idle."""
        process = self.cluster._new_process("idle")
        process.is_replica = True
        replica = SimReplica(
            self.cluster, process, Settings(runner_id="idle", pgbouncer=not listens)
        )
        await self.cluster.loop.spawn(process.main, replica.start(), "replica idle")
        await asyncio.sleep(STARTED)

    def execute(self, statement: str, *values: object) -> list[Any]:
        operator = self._database.judge(self.cluster.now())
        operator.execute("SELECT set_config('sim.who', 'operator', false)")
        cursor = operator.execute(statement.replace("{}", "cronledger").encode(), values or None)
        return cursor.fetchall() if cursor.description is not None else []

    def job(self, name: str = "job", **columns: object) -> None:
        target = f'{{"python": "{FUNCTION}"}}'
        given = {"name": name, "handler": "python", "target": target, **columns}
        names, marks = ", ".join(given), ", ".join(["%s"] * len(given))
        self.execute(f"INSERT INTO {{}}.jobs ({names}) VALUES ({marks})", *given.values())

    def is_true(self, condition: str) -> bool:
        ((found,),) = self.execute(f"SELECT {condition}")
        return bool(found)

    async def statements_in(self, seconds: float) -> Counter[str]:
        """Return how often each statement of the product is sent in this time."""
        before = self.cluster.statements.copy()
        await asyncio.sleep(seconds)
        sent = self.cluster.statements - before
        return Counter({name: times for name, times in sent.items() if name in STATEMENTS})

    async def next_check_in(self) -> None:
        """Wait for a check-in and its reply, so that the following one is as far away as can be."""
        sent = self.cluster.statements["check_in"]
        await self.found_within(LISTENING_POLL, lambda: self.cluster.statements["check_in"] > sent)
        await asyncio.sleep(0.01)

    async def found_within(self, most: float, condition: Callable[[], bool]) -> None:
        """Wait until `condition` is true. Raise AssertionError if that takes longer than `most`."""
        for seconds in count(0, 0.02):
            if condition():
                break
            assert seconds <= most + LATE
            await asyncio.sleep(0.02)


def simulate(database: Database, course: Callable[[Idle], Awaitable[None]]) -> None:
    """Run `course` in an empty ledger and in virtual time."""
    database.clear()
    events: list[str] = []
    with virtual_loop() as loop:
        cluster = Cluster(SEED, database, loop, None)
        cluster.chance.settle_down()
        idle = Idle(database, cluster, events)

        async def whole() -> None:
            await course(idle)

        with replaced(loop, SEED, lambda method, event: events.append(event["event"])):
            try:
                loop.run_until_complete(whole())
            finally:
                cluster.bury()


# -- statements -----------------------------------------------------------------------------------

CLAIM = ("claim_look", "next_due")
FULL_ROUND = (
    "sweep_stale", "resume_paused", "rearm_left_behind", "settle_left_behind", "end_orphans",
    "wake_left_gates", "follow_hosts",
    "reap_runners", "maintain_partitions", "mark_changed_hours", "roll_up_hours", "prune_hours",
    "redact_outputs",
    "prune_breaches", "lock_deadlines", "take_manual_deadlines", "judge_deadlines",
    "close_breaches", "next_deadline",
)  # fmt: skip
OWN_DATABASE = 4
"""How often a full round checks that this is the ledger's own database."""


def hourly(poll: float) -> Counter[str]:
    """The statements of an idle hour."""
    return Counter(
        {
            "check_in": round(MAINTENANCE / poll),
            **dict.fromkeys(CLAIM, round(MAINTENANCE / LONGEST_REST)),
            **dict.fromkeys(FULL_ROUND, 1),
            "require_own_database": OWN_DATABASE,
        }
    )


def nothing(idle: Idle) -> None:
    return


def planned(idle: Idle) -> None:
    for number in range(20):
        idle.job(f"job{number}", schedule="0 0 1 1 *")


def parked(idle: Idle) -> None:
    """What waits for something else than this replica."""
    idle.job("paused", schedule="@every 1s")
    idle.execute("SELECT {}.enqueue('paused')")
    idle.execute("SELECT {}.pause('paused')")
    idle.job("undeployed", schedule="@every 1s", target='{"python": "gone:gone"}')
    idle.job("elsewhere", schedule="@every 1s", queue="elsewhere")
    idle.execute("SELECT {}.trigger('elsewhere')")
    idle.job("external", handler="external", target="{}")
    idle.execute("SELECT {}.trigger('external')")
    idle.job("unnamed", schedule="@every 1s", handler="command", target='{"command": ["true"]}')
    idle.execute("INSERT INTO {}.queues (name, paused_at) VALUES ('stopped', {}.db_now())")
    idle.job("stopped", schedule="@every 1s", queue="stopped")


@pytest.mark.parametrize(
    ("listens", "state"), first_fast([(True, parked), (True, nothing), (True, planned),
                                      (False, nothing)])
)  # fmt: skip
@pytest.mark.long
def test_an_idle_hour_has_these_statements(
    simulated: Database, listens: bool, state: Callable[[Idle], None]
) -> None:
    """However many schedules there are, and whatever waits for others."""
    poll = LISTENING_POLL if listens else POLL

    async def course(idle: Idle) -> None:
        state(idle)
        await idle.start(listens=listens)
        assert await idle.statements_in(MAINTENANCE) == hourly(poll)
        assert idle.started == []

    simulate(simulated, course)
    if listens:
        assert hourly(poll).total() / 60 <= 6


# -- detection ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Change:
    """Something that a replica has to find although nobody notifies it.

    `before` and `happens` are statements, `found` is a condition. It is found `within` seconds.
    """

    happens: str
    found: str
    within: float
    before: str = ""
    schedule: str | None = None


RAN = "EXISTS (SELECT FROM {}.executions WHERE status = 'SUCCESS')"
DUE = "EXISTS (SELECT FROM {}.schedules WHERE parked IS NULL AND next_due_at IS NOT NULL)"
PARKED = "UPDATE {}.schedules SET parked = '%s', next_due_at = NULL"
DEAD = (
    "INSERT INTO {}.runners"
    " (id, host, pid, version, state, queues, slots, diagnostics, stale_after) VALUES"
    " ('dead', 'h', 1, '1', 'running', ARRAY[]::text[], 1, jsonb_build_object('slots', 1),"
    " {}.db_now() - interval '%s')"
)
CHANGES = {
    "a PENDING row": Change("SELECT {}.trigger('job')", RAN, LISTENING_POLL),
    "a retry in 20 s": Change(
        "SELECT {}.trigger('job'); UPDATE {}.executions SET due_at = {}.db_now() + interval '20 s',"
        " next_attempt_at = {}.db_now() + interval '20 s'",
        RAN, 20,
    ),
    "a manual execution in a pause": Change(
        "SELECT {}.trigger('job', force => true)", RAN, LISTENING_POLL,
        before="SELECT {}.pause('job')",
    ),
    "a job": Change(
        "INSERT INTO {}.jobs (name, schedule, handler, target) SELECT 'new', '@every 1s', handler,"
        " target FROM {}.jobs",
        RAN, LISTENING_POLL + 1,
    ),
    "an edit": Change(
        "UPDATE {}.jobs SET schedule = '@every 1s'", RAN, LISTENING_POLL + 1, schedule="0 0 1 1 *"
    ),
    "a resumed queue": Change(
        "UPDATE {}.queues SET paused_at = NULL", RAN, LISTENING_POLL,
        before="INSERT INTO {}.queues (name, paused_at) VALUES ('default', {}.db_now());"
        " SELECT {}.trigger('job', force => true)",
    ),
    "a schedule that another replica made due": Change(
        "UPDATE {}.schedules SET next_due_at = {}.db_now() + interval '20 s', next_plan_time ="
        " {}.db_now() + interval '20 s'",
        "(SELECT next_due_at > {}.db_now() + interval '1 h' FROM {}.schedules)",
        2 * LISTENING_POLL + 1,  # the search of everything
        schedule="0 0 1 1 *",
    ),
    "the end of a pause": Change(
        "SELECT {}.pause('job', until => {}.db_clock() + interval '20 s')",
        "(SELECT paused_at IS NULL FROM {}.jobs)", 20,
    ),
    "a stale lease": Change(
        "SELECT {}.claim_next('workers', 'gone')",
        "EXISTS (SELECT FROM {}.executions WHERE error_code = 'stale_timeout')", 30,
        before="UPDATE {}.jobs SET handler = 'external', queue = 'workers', stale_timeout = '29 s';"
        " SELECT {}.trigger('job')",
    ),
    "a stale lease that was short": Change(
        "SELECT {}.claim_next('workers', 'gone')",
        "EXISTS (SELECT FROM {}.executions WHERE error_code = 'stale_timeout')", LISTENING_POLL,
        before="UPDATE {}.jobs SET handler = 'external', queue = 'workers', stale_timeout = '5 s';"
        " SELECT {}.trigger('job')",
    ),
    **{
        f"a schedule parked {why}": Change(PARKED % why, DUE, EXAMINED, schedule="0 0 1 1 *")
        for why in ("waiting", "limit", "no_runner", "spec_error")
    },
    "input that was not settled": Change(
        "UPDATE {}.schedules SET success_watermark = NULL",
        "(SELECT success_watermark = 5 FROM {}.schedules)", EXAMINED,
        before="SELECT {}.enqueue('job', watermark => 5)",
    ),
    "an orphan": Change(
        "ALTER TABLE {}.jobs DISABLE TRIGGER USER; DELETE FROM {}.jobs;"
        " ALTER TABLE {}.jobs ENABLE TRIGGER USER",
        "EXISTS (SELECT FROM {}.executions WHERE status = 'CANCELLED')", EXAMINED,
        before="SELECT {}.enqueue('job'); SELECT {}.pause('job')",
    ),
    "a dead runner": Change(
        DEAD % "2 days",
        "(SELECT diagnostics = jsonb_build_object() FROM {}.runners WHERE id = 'dead')", EXAMINED
    ),
    "a dead runner older than the retention": Change(
        DEAD % "3001 days", "NOT EXISTS (SELECT FROM {}.runners WHERE id = 'dead')", EXAMINED
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", first_fast(CHANGES))
@pytest.mark.long
def test_a_change_is_found_without_a_notification(simulated: Database, what: str) -> None:
    change = CHANGES[what]

    async def course(idle: Idle) -> None:
        idle.job(schedule=change.schedule)
        for statement in filter(None, change.before.split(";")):
            idle.execute(statement)
        await idle.start(listens=True)
        await idle.next_check_in()
        for statement in change.happens.split(";"):
            idle.execute(statement)
        assert not idle.is_true(change.found)
        await idle.found_within(change.within, lambda: idle.is_true(change.found))

    simulate(simulated, course)


@pytest.mark.slow
def test_a_leap_of_the_clock_is_found_by_a_check_in(simulated: Database) -> None:
    async def course(idle: Idle) -> None:
        idle.job(schedule="@hourly")
        await idle.start(listens=True)
        idle.started.clear()
        idle.cluster.leap(timedelta(hours=1))
        await idle.found_within(LISTENING_POLL, lambda: bool(idle.started))
        assert "database_clock_jumped" in idle.events

    simulate(simulated, course)


def test_a_check_in_corrects_the_instant_of_the_next_claim(simulated: Database) -> None:
    """A replica claims by its estimate of the database's clock, minutes after its last claim."""

    async def course(idle: Idle) -> None:
        idle.job(schedule="* * * * *")
        await idle.start(listens=True)
        idle.started.clear()
        await idle.found_within(60, lambda: bool(idle.started))
        idle.cluster.leap(timedelta(milliseconds=100))
        idle.started.clear()
        await idle.found_within(60, lambda: bool(idle.started))
        ((late,),) = idle.execute(
            "SELECT extract(epoch FROM max(started_at - due_at))::float8 FROM {}.executions"
            " WHERE due_at = (SELECT max(due_at) FROM {}.executions)"
        )
        assert late < 0.005

    simulate(simulated, course)


@pytest.mark.slow
def test_another_database_and_its_acceptance_are_found_by_a_check_in(simulated: Database) -> None:
    async def course(idle: Idle) -> None:
        await idle.start(listens=True)
        ((system,),) = idle.execute("SELECT system_identifier FROM {}.identity")
        for identifier, event in ((1, "other_database_found"), (system, "database_accepted")):
            idle.execute("UPDATE {}.identity SET system_identifier = %s", identifier)
            await idle.found_within(LISTENING_POLL, partial(idle.events.__contains__, event))

    simulate(simulated, course)
