"""One seed from beginning to end: the engine's clock, tokens and threads replaced in one place."""

import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from unittest import mock

import psycopg
import structlog

import cronledger.replica  # noqa: F401 - all of the engine is loaded before its clock is replaced
from cronledger.engine.claiming import tokens
from cronledger.engine.commands.client import Supervisor
from cronledger.engine.maintenance import check_in
from cronledger.engine.running import heartbeats
from cronledger.engine.running.heartbeats import Heartbeats
from cronledger.engine.runtime import assembly
from tests.simulation.support.backend import Database, install
from tests.simulation.support.boots import boot_of
from tests.simulation.support.cluster import LOGGED, Cluster, Tell
from tests.simulation.support.effects import install_effects, simulated_transactions
from tests.simulation.support.jobs import STARTS
from tests.simulation.support.loop import LANE, SimLoop, StuckError, virtual_loop
from tests.simulation.support.providers import hurried_providers

BUGS = frozenset(
    {"planner_crashed", "execution_crashed", "heartbeats_crashed", "outcome_dropped", "job_broken",
     "outcome_refused", "other_database_found", "other_ledger_found", "scope_provider_failed"}
)  # fmt: skip
"""Log events that no fault of the simulator may cause."""


@dataclass(frozen=True)
class Verdict:
    """What came of one seed."""

    seed: int
    violations: tuple[str, ...]
    digest: str
    executions: int
    spans: int
    faults: Counter[str]
    steps: Counter[str]
    events: Counter[str]
    statements: int
    waits: int
    virtual_seconds: float
    real_seconds: float

    @property
    def command(self) -> str:
        return f"python -m tests.simulation {self.seed} --trace"

    def __str__(self) -> str:
        lines = "\n  ".join(self.violations[:10])
        return f"seed {self.seed}: {len(self.violations)} violations\n  {lines}\n{self.command}"


class SimHeartbeats(Heartbeats):
    """The thread of heartbeats as a task in a lane of its own, which a blocked main lane does not
    hold up."""

    def start(self) -> None:
        lane = LANE.get()
        assert lane is not None
        loop = _loop()
        loop.spawn(lane.process.beat, self._run(), f"heartbeats {lane.process.name}")


class SimSupervisor(Supervisor):
    """No commands run here, so there is no process for them."""

    async def start(self) -> None:
        return None


def _loop() -> SimLoop:
    import asyncio

    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    return loop


@contextmanager
def replaced(
    loop: SimLoop, seed: int, note: Callable[[str, Mapping[str, Any]], None]
) -> Iterator[None]:
    """The monotonic clock, randomness, tokens and threads of the engine are the simulator's."""
    drawn_outside = random.getstate()
    random.seed(seed)
    minted = random.Random(f"tokens {seed}")

    def logged(_: Any, method: str, event: MutableMapping[str, Any]) -> Any:
        note(method, event)
        raise structlog.DropEvent

    before = structlog.get_config()
    with (
        mock.patch.multiple(assembly, Supervisor=SimSupervisor, Heartbeats=SimHeartbeats),
        simulated_transactions(),
        hurried_providers(),
        mock.patch.object(heartbeats, "is_disconnected", lambda connection: connection.closed),
        mock.patch.object(check_in, "boot_of", boot_of),
        mock.patch.object(tokens, "urandom", minted.randbytes),
    ):
        clocked = [
            module
            for name, module in sys.modules.items()
            if name.startswith("cronledger.")
            and getattr(module, "monotonic", None) is time.monotonic
        ]
        structlog.configure(processors=[structlog.contextvars.merge_contextvars, logged])
        for module in clocked:
            module.monotonic = loop.time  # type: ignore[attr-defined]
        try:
            yield
        finally:
            for module in clocked:
                module.monotonic = time.monotonic  # type: ignore[attr-defined]
            structlog.configure(**before)
            random.setstate(drawn_outside)  # other workers of the tests have the same seeds


def simulate(seed: int, database: Database, tell: Tell | None = None) -> Verdict:
    """Run one seed on a prepared database, which is cleared before. `tell` gets its trace."""
    began = time.monotonic()
    threads = threading.active_count()
    database.clear()
    with virtual_loop() as loop:
        cluster = Cluster(seed, database, loop, tell)
        events: Counter[str] = Counter()

        def note(method: str, event: Mapping[str, Any]) -> None:
            name = event["event"]
            events[f"{name} {event['how']}" if "how" in event else name] += 1
            if tell is not None:
                tell(f"{loop.time():.6f} {LOGGED} {method} {dict(event)}")
            error = event.get("exc_info")
            unknown = name == "step_failed" and not isinstance(error, psycopg.Error)
            if name == "lease_lost" and "attempt" in event:
                cluster.handlers.judge_lost(event["execution_id"], event["attempt"])
            if name == "scope_provider_failed" and cluster.providers.expected(event["job"]):
                return
            if name in ("other_database_found", "other_ledger_found") and cluster.elsewhere.began:
                return
            if name == "job_broken" and event["error"].startswith("requires:"):
                return  # what it requires is retired
            if name in BUGS or unknown:
                cluster.record.wrong(f"log: {dict(event)}", loop.time())

        with replaced(loop, seed, note):
            try:
                loop.run_until_complete(cluster.run())
            except (StuckError, RuntimeError) as stuck:
                if loop.broke:
                    cluster.bury()
                    raise loop.broke[0] from stuck
                cluster.record.wrong(f"stuck: {stuck}", loop.time())
            virtual, digest = loop.time(), cluster.digest
            violations = tuple(cluster.record.violations)
            cluster.bury()
    assert threading.active_count() <= threads, "something of the engine runs outside of the loop"
    executions = database.eye.execute("SELECT count(*) FROM executions").fetchone()
    return Verdict(
        seed, violations, digest, executions[0] if executions else 0,
        len(cluster.record.spans), cluster.faults.counts, cluster.steps, events,
        cluster.statements.total(), cluster.waits, virtual, time.monotonic() - began,
    )  # fmt: skip


def prepare(url: str) -> None:
    """A migrated database becomes one for simulations: its clock, its guards, its partitions."""
    install(url)
    with psycopg.connect(url, autocommit=True) as c:
        install_effects(c)
        c.execute("SET search_path = cronledger")
        for (part,) in c.execute("SELECT name FROM partitions()").fetchall():
            c.execute(f"DROP TABLE {part}".encode())
        first, last = min(STARTS.values()), max(STARTS.values())
        c.execute(
            "SELECT cronledger_internal.create_partitions(%s, %s, %s)",
            (first - timedelta(days=1), last + timedelta(days=20), 60 * 86400),
        )
        c.execute("UPDATE retention SET keep = '3000 days'")
        # Its workers come when they like, and take locks. Database.clear clears away.
        tables = c.execute(
            "SELECT oid::regclass FROM pg_class"
            " WHERE relnamespace = 'cronledger'::regnamespace AND relkind = 'r'"
        ).fetchall()
        for (table,) in tables:
            c.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)".encode())
