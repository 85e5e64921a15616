"""Registers and unregisters Apps: their jobs in the ledger, and their functions in the runner."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from functools import partial

from cronledger.app import App
from cronledger.engine.apps import AppRegistry, source_of
from cronledger.engine.runtime.lifespans import Lifespans
from cronledger.ledger.identity import ExpectedLedger
from cronledger.logger import get_logger
from cronledger.sources.apply import Applied, Retired, apply, check_owners, retire

log = get_logger(__name__)


@dataclass(slots=True)
class AppLifecycle:
    """Changes the Apps of a runner. The changes must not overlap.

    `check_in` publishes the functions that the runner has now. `unused` waits for the ends of the
    executions of functions that were removed.
    """

    apps: AppRegistry
    lifespans: Lifespans
    url: str = field(repr=False)
    expected: ExpectedLedger
    runner: str
    check_in: Callable[[], Awaitable[float]]
    unused: Callable[[Collection[str]], Awaitable[None]]

    async def register(self, app: App, *, force: bool) -> Applied:
        """See `Replica.register`."""
        source_of(app)
        known = app in self.apps
        if not known:
            self.apps.add(app)
        try:
            await self.lifespans.enter(app)
            await self.check_in()  # otherwise a peer parks the new jobs as `no_runner`
            return await self.apply(app, force=force)
        except BaseException:
            if not known:
                self._remove(app)
            raise

    async def unregister(self, app: App) -> Retired:
        """See `Replica.unregister`."""
        if app not in self.apps:
            raise ValueError(f"App {app.name!r} is not registered with this replica")
        source = source_of(app)
        self.apps.withhold(app)
        try:
            await self.check_in()  # so that others know that this runner lost the functions
            done = await asyncio.to_thread(
                retire, self.url, list(app.jobs), source=source, runner=self.runner,
                schema=self.expected.schema, deploy=app.deploy, by=f"runner {self.runner}",
                ledger=self.expected.id,
            )  # fmt: skip
        except BaseException:
            if self.lifespans.usable(app):
                self.apps.offer(app)
            raise
        self._remove(app)
        if done.refused is not None:
            log.warning("source_refused", source=source, reason=done.refused)
        log.info(
            "app_unregistered", runner=self.runner, app=app.name, retired=list(done.retired),
            kept=list(done.kept), cancelling=list(done.cancelling),
        )  # fmt: skip
        return done

    def _remove(self, app: App) -> None:
        """Remove the App. Its lifespan ends after the last handler of its functions."""
        functions = self.apps.remove(app)
        self.lifespans.leave(app, partial(self.unused, functions))

    async def apply_all(self) -> None:
        """Apply the jobs of all Apps to the ledger.

        Raises ConfigurationError, and applies nothing, if a job belongs to another source.
        """
        apps = self.apps.apps
        sources = {source_of(app): list(app.jobs) for app in apps}
        if len(apps) > 1:
            await asyncio.to_thread(check_owners, self.url, sources, self.expected.schema)
        for app in apps:
            await self.apply(app)

    async def apply(self, app: App, *, force: bool = False) -> Applied:
        """Apply the jobs of `app` to the ledger, as the App declares them."""
        source = source_of(app)
        applied = await asyncio.to_thread(
            apply, self.url, list(app.jobs.values()), source=source, schema=self.expected.schema,
            deploy=app.deploy, force=force, by=f"runner {self.runner}", ledger=self.expected.id,
        )  # fmt: skip
        if applied.refused is not None:
            log.warning("source_refused", source=source, reason=applied.refused)
        log.info(
            "app_registered", runner=self.runner, app=app.name, added=len(applied.added),
            changed=len(applied.changed), retired=len(applied.retired),
            unchanged=applied.unchanged,
        )  # fmt: skip
        return applied
