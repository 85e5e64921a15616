"""Registers and unregisters Apps: their jobs in the ledger, and their functions in the runner."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial

from cronledger.declaring.app import App
from cronledger.engine.apps import AppRegistry, source_of
from cronledger.engine.claiming.claimer import Claimer
from cronledger.engine.event import Event
from cronledger.engine.maintenance.check_in import CheckIn
from cronledger.engine.running.executor import Executor
from cronledger.engine.runtime.lifespans import Lifespans
from cronledger.extras import require_http
from cronledger.ledger.identity import ExpectedLedger
from cronledger.logs.loggers import get_logger
from cronledger.rules.channels import Slack, Webhook
from cronledger.rules.model import Handler
from cronledger.sources.apply import (
    Applied,
    ApplyRequest,
    Retired,
    apply,
    check_owners,
    retire,
)  # fmt: skip

log = get_logger(__name__)


@dataclass(slots=True)
class AppLifecycle:
    """Changes the Apps of a runner. The changes must not overlap.

    `applied`: the jobs of its first Apps are in the ledger already. `request`: another source that
    is applied at the start, or None.

    Events: `changed`, the runner has other functions; `unregistered`, before that, executions may
    have been requested to end.
    """

    apps: AppRegistry
    lifespans: Lifespans
    url: str = field(repr=False)
    expected: ExpectedLedger
    runner: str
    check_ins: CheckIn
    claimer: Claimer
    executor: Executor
    applied: bool
    request: ApplyRequest | None
    changed: Event[[]] = field(default_factory=Event, init=False)
    unregistered: Event[[]] = field(default_factory=Event, init=False)

    async def step(self) -> None:
        """Apply the jobs with which the runner starts: those of its Apps, and of the request.

        Raises ConfigurationError, and applies nothing, if a job belongs to another source.
        """
        if not self.applied:
            apps = self.apps.apps
            sources = {source_of(app): list(app.jobs) for app in apps}
            if len(apps) > 1:
                await asyncio.to_thread(check_owners, self.url, sources, self.expected.schema)
            for app in apps:
                await self.apply(app)
        if self.request is not None:
            applied = await self._apply(self.request)
            if applied.refused is None:
                log.info("source_applied", source=self.request.source, **_counts(applied))

    async def register(self, app: App, *, force: bool) -> Applied:
        """See `Replica.register`."""
        source_of(app)
        known = app in self.apps
        if not known:
            self.apps.add(app)
        try:
            await self.lifespans.enter(app)
            await self.check_ins.step()  # otherwise a peer parks the new jobs as `no_runner`
            applied = await self.apply(app, force=force)
        except BaseException:
            if not known:
                self._remove(app)
            raise
        self.changed()
        return applied

    async def unregister(self, app: App) -> Retired:
        """See `Replica.unregister`."""
        if app not in self.apps:
            raise ValueError(f"App {app.name!r} is not registered with this replica")
        source = source_of(app)
        self.apps.withhold(app)
        try:
            await self.check_ins.step()  # so that others know that this runner lost the functions
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
        self.unregistered()
        self.changed()
        return done

    def _remove(self, app: App) -> None:
        """Remove the App. Its lifespan ends after the last handler of its functions."""
        functions = self.apps.remove(app)
        self.lifespans.leave(app, partial(self._wait_unused, functions))

    async def _wait_unused(self, functions: Collection[str]) -> None:
        """Wait for the ends of the executions of these functions, which are not claimable."""
        await self.claimer.wait_idle()  # its claim may have begun when they were
        await self.executor.wait_ended(functions)

    def forget_functions(self) -> None:
        """Forget the functions of removed Apps that do not run any more."""
        if not self.claimer.in_flight:
            self.apps.forget(self.executor.functions())

    async def apply(self, app: App, *, force: bool = False) -> Applied:
        """Apply the jobs of `app` to the ledger, as the App declares them."""
        applied = await self._apply(
            ApplyRequest(
                jobs=list(app.jobs.values()), channels=app.channels, source=source_of(app),
                deploy=app.deploy, force=force, by=f"runner {self.runner}",
                calendars=app.calendars,
            )
        )  # fmt: skip
        log.info("app_registered", runner=self.runner, app=app.name, **_counts(applied))
        return applied

    async def _apply(self, request: ApplyRequest) -> Applied:
        _require_libraries(request)
        await self.executor.prepare(request.jobs)
        applied = await asyncio.to_thread(
            apply, self.url, request.jobs, source=request.source, channels=request.channels,
            schema=self.expected.schema, deploy=request.deploy, force=request.force, by=request.by,
            ledger=self.expected.id, calendars=request.calendars, host=request.host,
        )  # fmt: skip
        for problem in applied.warnings:
            log.warning("declaration_warning", problem=str(problem))
        if applied.refused is not None:
            log.warning("source_refused", source=request.source, reason=applied.refused)
        return applied


def _require_libraries(request: ApplyRequest) -> None:
    """Raise ConfigurationError if a job or channel needs an extra that is not installed."""
    for job in request.jobs:
        if job.handler is Handler.HTTP:
            require_http(f"jobs.{job.name}.url")
        if job.ping is not None:
            require_http(f"jobs.{job.name}.ping")
    for name, channel in request.channels.items():
        if isinstance(channel, Webhook | Slack):
            require_http(f"channels.{name}")


def _counts(applied: Applied) -> dict[str, int]:
    counts = {x: len(getattr(applied, x)) for x in ("added", "changed", "retired")}
    return counts | {"unchanged": applied.unchanged}
