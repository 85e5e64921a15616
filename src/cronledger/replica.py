"""A replica: claims and runs due work, in `cronledger run` or in any asyncio program.

This is the public interface. `cronledger.engine.runtime` does the work.
"""

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from cronledger.declaring.app import App
from cronledger.declaring.resources import LifespanError
from cronledger.engine.apps import AppRegistry, source_of
from cronledger.engine.maintenance.check_in import State
from cronledger.engine.runtime.diagnostics import Diagnostics, Health
from cronledger.engine.runtime.drain import DrainReport
from cronledger.engine.runtime.manual import Ran
from cronledger.engine.runtime.runtime import Runtime
from cronledger.extras import require_http, require_library
from cronledger.ledger.access import dsn_of
from cronledger.logs.loggers import follow
from cronledger.settings import PREFIX, Settings
from cronledger.sources.apply import Applied, ApplyRequest, Retired
from cronledger.tracing.interface import require_extra

if TYPE_CHECKING:
    from cronledger.metrics.replica_metrics import ReplicaCollector

__all__ = [
    "Applied", "Diagnostics", "DrainReport", "Health", "LifespanError", "Ran", "Replica", "Retired",
    "State",
]  # fmt: skip


class Replica:
    """One runner: `async with Replica(app, url=...)` claims and runs due work until the block
    ends, and then drains.

    The jobs of `apps` run. They are applied under the name of their App, unless `applied` (the
    caller has checked the schema and applied them). `request`: another source, whose jobs are
    applied at the start. `register` and `unregister` add and remove Apps later. `functions`:
    further handlers by `module:qualname`. `settings`: by default those of the environment. `url`:
    by default the database of the settings. `manual`: nothing runs by itself; a test calls `step`.
    """

    def __init__(
        self,
        *apps: App,
        url: str | None = None,
        settings: Settings | None = None,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        applied: bool = False,
        request: ApplyRequest | None = None,
        manual: bool = False,
    ) -> None:
        self.settings = settings or Settings.load()
        require_extra(self.settings)
        if self.settings.ping_url is not None:
            require_http(PREFIX + "PING_URL")
        registry = AppRegistry(functions or {})
        for app in apps:
            if not applied:
                source_of(app)
            registry.add(app)
        self._runtime = Runtime(
            self.settings, url or dsn_of(self.settings), registry, applied=applied,
            request=request, manual=manual,
        )  # fmt: skip

    @property
    def state(self) -> State:
        """`starting`, `running`, `draining` or `stopped`."""
        return self._runtime.state

    @property
    def is_draining(self) -> bool:
        """Return whether a drain has begun or ended."""
        return self.state in ("draining", "stopped")

    @property
    def runner_id(self) -> str:
        """The name of the runner in the ledger: the configured one, else `host-pid`, which is known
        once the replica has started.

        Raises RuntimeError before that.
        """
        return self._runtime.runner_id

    async def start(self) -> None:
        """Enter the lifespans of its Apps, register the runner, apply the Apps, and begin to work.

        If `manual`, nothing runs before a call of `step`.

        Explicit log settings take effect (see `logger.follow`).

        Raises psycopg.OperationalError when the database is unreachable or refuses the connection,
        MigrationError when there is no ledger or an older one, LifespanError when a lifespan
        raises, ConfigurationError when a job belongs to another source or a parameter of a handler
        receives nothing, OtherDatabaseError when the ledger was restored or cloned, and any other
        error that prevents a start. In each case nothing runs, and no lifespan is open.
        """
        follow(self.settings)
        await self._runtime.start()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        await self.drain()

    async def drain(self, timeout: float | None = None) -> DrainReport:  # noqa: ASYNC109
        """Stop claiming, wait up to `timeout` seconds (default: `drain_timeout`) for running work,
        then stop the rest and release it. The lifespans end last; they are cancelled after the rest
        of `timeout`, at least 5 seconds. Return how the executions ended.

        Idempotent: a second call waits for the first and returns the same report.
        """
        return await self._runtime.drain(timeout)

    async def abort(self) -> DrainReport:
        """Stop now: cancel the handlers, and release or fail their executions.

        A drain in progress stops waiting for them. Idempotent. Return what `drain` returns.
        """
        return await self._runtime.abort()

    async def register(self, app: App, *, force: bool = False) -> Applied:
        """Apply the jobs of `app` under its name, and run them from now on. Plan_times at which
        they were retired do not run.

        If a newer deploy was applied before, `refused` of the result gives the reason and the
        jobs do not change (`force` overrides this).

        Its lifespan is entered first. Raises LifespanError if that raises, ConfigurationError for
        an App without a name, with a job or function that another App has, or with a parameter that
        receives nothing, and psycopg.Error when the database is unreachable. In each case nothing
        has changed.
        """
        return await self._runtime.register(app, force=force)

    async def unregister(self, app: App) -> Retired:
        """Retire the jobs of `app`. Waiting executions become CANCELLED, and running ones are
        requested to end (their handlers may still be running). A job whose function another live
        runner has is not retired, and its executions here continue. The lifespan of `app` ends
        after its last handler here.

        Raises ValueError when the App is not registered, and psycopg.Error when the database is
        unreachable. Then the App is still registered, but its jobs may be retired: call it again.
        """
        return await self._runtime.unregister(app)

    async def step(self) -> tuple[Ran, ...]:
        """Claim everything that is due now, run it to its end, and write the outcomes. Return the
        attempts in the order in which they ended. Needs `manual`.

        Executions that these make due run as well, but no later plan_time of a schedule. Raises
        RuntimeError when not `manual` or not running, psycopg.Error when the database is
        unreachable.
        """
        return await self._runtime.step()

    def diagnostics(self) -> Diagnostics:
        """Return the state of the replica now. Any thread may call this once the replica has
        started; RuntimeError before."""
        return self._runtime.diagnostics()

    def collector(self) -> "ReplicaCollector":
        """Return a collector of the metrics of this replica, for a registry of prometheus-client.

        The replica counts from the first call on, so call it before `start`. Register the
        collectors of two replicas in two registries, because their metrics have the same names.
        Raises ConfigurationError without the extra `metrics`.
        """
        require_library("prometheus_client", "metrics", "collector()")
        from cronledger.metrics.replica_metrics import ReplicaCollector  # noqa: PLC0415 - of an extra

        self._runtime.measuring.begin()
        return ReplicaCollector(self._runtime.observation, self._runtime.settings.ledger_name)

    def health(self) -> Health:
        """Return whether the replica takes work and makes progress. Does not block."""
        return self._runtime.health()
