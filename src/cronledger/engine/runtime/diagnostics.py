"""The state of a live runner, for /healthz, /diagnostics and the column `runners.diagnostics`."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from time import monotonic
from typing import Any, Literal

from cronledger.engine.apps import AppRegistry
from cronledger.engine.claiming.dispatcher import Dispatcher
from cronledger.engine.clock import DatabaseClock
from cronledger.engine.lease import Leases
from cronledger.engine.maintenance.check_in import State
from cronledger.engine.maintenance.listener import Listener
from cronledger.engine.running.executor import Executor, Running
from cronledger.engine.running.finisher import Finisher
from cronledger.engine.running.heartbeats import Heartbeats
from cronledger.engine.runtime.lifespans import Lifespans
from cronledger.engine.runtime.loops import Loops, LoopStats
from cronledger.metrics.measurements import Measurements, Observation
from cronledger.settings import Settings

MOST_KEPT = 20
LISTEN = "listen"


@dataclass(frozen=True, slots=True)
class Health:
    """The health of a runner.

    `database`: `away` if it is unreachable. `other` if it was restored or cloned, so that nothing
    is claimed until it is accepted, or if it contains another ledger than the one the runner began
    with. `stuck`: the name of a loop that has not stepped for two minutes although the database is
    reachable. `failing`: the error of each loop whose last step failed, of `heartbeats` while
    leases cannot be extended, of `listen` while notifications cannot be received, and of a
    `lifespan` that ended while the runner works.
    """

    state: State
    database: Literal["ok", "away", "other"]
    away_for_s: float | None
    stuck: str | None
    running: int
    slots: int
    last_step_age_s: float
    failing: dict[str, str] = field(default_factory=dict)

    @property
    def ready(self) -> bool:
        """Return whether the runner takes work. Without LISTEN it polls, which counts as ready."""
        return self.state == "running" and self.database == "ok" and self.failing.keys() <= {LISTEN}


@dataclass(frozen=True, slots=True)
class Active:
    """One execution in this process.

    `lease_left_s`: the seconds until its handler is stopped, unless the lease is extended.
    `stopping`: the reason why it was requested to end, or None.
    """

    execution_id: int
    job: str
    scope_kind: str
    scope_id: str
    plan_time: str
    attempt: int
    trigger: str
    age_s: float
    lease_left_s: float
    stopping: str | None


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """The state of a live runner at one moment. Ages and lags are in seconds.

    `database` and `failing` are described at `Health`. `failed`: the errors of the loops that
    failed repeatedly within the last minute, although the database was reachable. `ticks`: the
    number of claims. `lag_s`: the longest time from due_at to start in the last claim with new
    executions. `saturated`: all slots are taken, so that due executions wait. `unwritten`: outcomes
    that the database has not accepted yet. `database_errors`: the errors of the loops since the
    start.
    """

    runner: str
    state: State
    database: Literal["ok", "away", "other"]
    away_for_s: float | None
    queues: Sequence[str]
    slots: int
    running: int
    saturated: bool
    unwritten: int
    ticks: int
    last_tick_age_s: float | None
    lag_s: float | None
    won: int
    stolen: int
    retried: int
    skipped: int
    lost_leases: int
    database_errors: int
    apps: Sequence[str]
    failing: dict[str, str]
    failed: dict[str, str]
    loops: dict[str, LoopStats]
    executions: Sequence[Active]

    def as_json(self, most: int | None = None) -> dict[str, Any]:
        """Return plain values. `most` limits the number of executions; the oldest are kept."""
        return asdict(self) | {"executions": [asdict(x) for x in self.executions[:most]]}


@dataclass(frozen=True, slots=True)
class Inspector:
    """Reads the state of the components. Any thread may call it.

    `state` returns that of the runner.
    """

    runner: str
    settings: Settings
    state: Callable[[], State]
    apps: AppRegistry
    dispatcher: Dispatcher
    executor: Executor
    finisher: Finisher
    leases: Leases
    loops: Loops
    heartbeats: Heartbeats
    listener: Listener | None
    lifespans: Lifespans
    clock: DatabaseClock

    def diagnose(self) -> Diagnostics:
        """Return the state of the runner now."""
        stats, now = self.dispatcher.stats, monotonic()
        _, slots = self.executor.free()
        active = sorted(map(_active, self.executor.executions()), key=lambda x: -x.age_s)
        away = self.loops.away_since
        return Diagnostics(
            runner=self.runner,
            state=self.state(),
            database=self._database(),
            away_for_s=None if away is None else round(now - away, 1),
            queues=list(self.settings.queues),
            slots=slots,
            running=len(active),
            saturated=self.dispatcher.saturated,
            unwritten=self.finisher.waiting,
            ticks=stats.steps,
            last_tick_age_s=round(now - stats.last_step, 3) if stats.steps else None,
            lag_s=stats.lag_s,
            won=stats.won,
            stolen=stats.stolen,
            retried=stats.retried,
            skipped=stats.skipped,
            lost_leases=self.leases.lost,
            database_errors=self.loops.database_errors,
            apps=[app.name or "" for app in self.apps.apps],
            failing=self._failing(),
            failed=self.loops.failed(),
            loops=self.loops.stats(),
            executions=active,
        )

    @property
    def listening(self) -> bool:
        """Whether notifications are received."""
        return self.listener is not None and self.listener.listening

    def described(self) -> dict[str, Any]:
        """Return the columns of the runner's row that change, and what its check-ins leave out."""
        deploy = self.settings.deploy
        if deploy is None:  # the newest one of the Apps
            deploys = (app.deploy for app in self.apps.apps if app.deploy is not None)
            deploy = max(deploys, default=None)
        return {
            "state": "draining" if self.state() in ("draining", "stopped") else "running",
            "running": self.executor.running,
            "handlers": sorted(self.apps.claimable),
            "excluded_jobs": self.dispatcher.excluded_jobs(),
            # Nothing but a check-in reports what comes due, unless there are notifications.
            "due_from": self.dispatcher.due_from if self.listening else None,
            "diagnostics": self.diagnose().as_json(MOST_KEPT),
            "deploy": deploy,
        }

    def _database(self) -> Literal["ok", "away", "other"]:
        if self.loops.away_since is not None:
            return "away"
        refused = self.dispatcher.refused is not None or self.loops.elsewhere is not None
        return "other" if refused else "ok"

    def _failing(self) -> dict[str, str]:
        found = {**self.loops.failing(), **self.lifespans.failing}
        if self.leases.failing is not None:
            found["heartbeats"] = self.leases.failing
        if self.listener is not None and self.listener.failing is not None:
            found[LISTEN] = self.listener.failing
        return found

    def health(self) -> Health:
        """Return the health of the runner, for load balancers and process supervisors."""
        now, away = monotonic(), self.loops.away_since
        _, slots = self.executor.free()
        stepped = self.loops.last_step("dispatcher") or self.dispatcher.stats.last_step
        return Health(
            self.state(),
            self._database(),
            None if away is None else round(now - away, 1),
            self.loops.stuck() if away is None else None,
            self.executor.running,
            slots,
            round(now - stepped, 1),
            self._failing(),
        )

    def observe(self, counts: Measurements) -> Observation:
        """Return the current state of the runner, from which its metrics are made."""
        errors, ages = dict(self.loops.errors), self.loops.ages()
        errors["heartbeats"] = self.heartbeats.errors
        if self.listener is not None and "listener" in ages:
            # Its steps handle the errors of its connection themselves.
            errors["listener"] += self.listener.errors
            if (since := self.listener.failing_since) is not None:
                ages["listener"] = monotonic() - since
        skew = self.clock.skew()
        return Observation(
            counts,
            self.state(),
            database_reachable=self.loops.away_since is None,
            slots=self.executor.free()[1],
            running=self.executor.running,
            unwritten=self.finisher.waiting,
            leases_lost=self.leases.lost,
            loop_errors=errors,
            loop_ages=ages,
            clock_skew=None if skew is None else skew.total_seconds(),
        )


def _active(running: Running) -> Active:
    claimed, now = running.lease.claimed, monotonic()
    return Active(
        execution_id=claimed.id,
        job=claimed.key.job_name,
        scope_kind=claimed.key.scope_kind,
        scope_id=claimed.key.scope_id,
        plan_time=claimed.key.plan_time.isoformat(),
        attempt=claimed.attempt,
        trigger=claimed.trigger,
        age_s=round(running.duration_ms / 1000, 3),
        lease_left_s=round(running.lease.deadline - now, 3),
        stopping=running.stop,
    )
